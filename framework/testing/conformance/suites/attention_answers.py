"""Clauses for what an attention backend answers and how it lays out its pages."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import DTYPE_BYTES, KVCacheSpec
from framework.errors import UnsupportedError
from framework.testing.conformance.cases import expect, expect_raises
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.suites.attention_base import AttentionClauses
from framework.testing.conformance.suites.attention_reference import Features
from framework.testing.conformance.suites.queries import but, check_newer, check_rejected

UNKNOWN = ("tensor_api", "dtype", "cache_dtype", "layer_type", "mask", "graph_mode")
UNTRIED: dict[str, object] = {
    "mla": True,
    "cascade": True,
    "tensor_parallel": 2,
    "context_parallel": 2,
    "connector": True,
}
"""Features that no clause runs."""
MANY, MORE = 1009, 1013
"""Numbers of pages to lay out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OtherSpec(KVCacheSpec):
    """A cache that no backend can know."""

    def state_bytes(self) -> int:
        return 64


def answer_some(backend: Any) -> None:
    """Ask a few queries, as `framework explain` may; for the process that watches imports."""
    for dtype in ("float32", "bfloat16", "float16"):
        for size in (16, 64, 128):
            features = Features(dtype=dtype, cache_dtype=dtype, head_size=size, head_size_v=size)
            for platform in ("cpu", "cuda"):
                backend.answer(
                    AttentionQuery(
                        platform=platform,
                        dtype=dtype,
                        cache_dtype=dtype,
                        head_size=size,
                        head_size_v=size,
                        num_heads=features.num_heads,
                        num_kv_heads=features.num_kv_heads,
                    )
                )


class AnswerClauses(AttentionClauses):
    """Of `answer` and `layout`; no tensor is needed."""

    @clause(
        "ATTN-009",
        "answering loads no heavy library, and starts nothing",
        layer=Layer.IMPORT,
        of=("answer",),
    )
    def answering_is_light(self) -> None:
        seen = self.trial(answer_some)
        expect(not seen.error, f"answering fails: {seen.error}")
        expect(
            not seen.heavy,
            "answering loads heavy libraries",
            expected="facts and rules only",
            found=", ".join(seen.heavy),
        )
        started = seen.threads + seen.processes + seen.network
        expect(not started, "answering starts something", found="; ".join(started))

    @clause(
        "ATTN-010",
        "it serves a plain query on a platform that is ready",
        layer=Layer.CONSTRUCT,
        of=("answer",),
    )
    def something_is_served(self) -> None:
        self.found()

    @clause("ATTN-001", "equal queries get equal answers", of=("answer",))
    def answers_are_stable(self) -> None:
        own, asked = self.new(), [self.query(), replace(self.query(), mla=True, window=3)]
        first = [own.answer(query) for query in asked]
        for _ in range(3):
            expect([own.answer(query) for query in asked] == first, "an answer changes")
        other = self.new()
        expect([other.answer(query) for query in asked] == first, "instances differ in an answer")

    @clause("ATTN-002", "page sizes that are offered are served when asked for", of=("answer",))
    def offered_page_sizes_are_served(self) -> None:
        sizes = self.page_sizes(self.plain())
        good = bool(sizes) and all(type(size) is int and size > 0 for size in sizes)
        expect(good, "page sizes that are none", expected="integers > 0", found=sizes)
        expect(len(set(sizes)) == len(sizes), "a page size is offered twice", found=sizes)
        for size in sizes:
            answer = self.ask(self.plain(), size)
            expect(
                isinstance(answer, AttentionSupported) and size in answer.page_tokens,
                f"pages of {size} tokens are offered, and not served when asked for",
                found=answer,
            )

    @clause("ATTN-003", "a page size below 1 is rejected", of=("answer",))
    def senseless_page_sizes_are_rejected(self) -> None:
        for size in (0, -16):
            check_rejected(self.new(), replace(self.query(), page_tokens=size), "page_tokens")

    @clause("ATTN-004", "a reason names a field of the query, its value and a mend", of=("answer",))
    def reasons_can_be_used(self) -> None:
        known = set(AttentionQuery.__dataclass_fields__)
        for query in self._bad_queries():
            answer = self.new().answer(query)
            for reason in answer.reasons if isinstance(answer, Rejected) else ():
                expect(
                    reason.field in known,
                    "a reason names no field of the query",
                    found=reason.field,
                )
                expect(
                    reason.found == getattr(query, reason.field),
                    f"a reason tells another {reason.field} than was asked for",
                    expected=getattr(query, reason.field),
                    found=reason.found,
                )
                expect(reason.code and reason.remedy, "a reason without a code or a remedy")

    @clause("ATTN-005", "all reasons are given at once", of=("answer",))
    def all_reasons_are_given(self) -> None:
        for first, second in (("dtype", "layer_type"), ("tensor_api", "mask")):
            query = but(self.query(), **{first: "unheard-of", second: "unheard-of"})
            check_rejected(self.new(), query, first)
            check_rejected(self.new(), query, second)

    @clause("ATTN-006", "values that it cannot know are rejected", of=("answer",))
    def unknown_values_are_rejected(self) -> None:
        for field in UNKNOWN:
            check_rejected(self.new(), but(self.query(), **{field: "unheard-of"}), field)

    @clause("ATTN-007", "numbers of heads that do not fit are rejected", of=("answer",))
    def misfitting_heads_are_rejected(self) -> None:
        for heads, kv_heads in ((3, 2), (4, 0), (0, 4), (2, 4)):
            query = replace(self.query(), num_heads=heads, num_kv_heads=kv_heads)
            check_rejected(self.new(), query, "num_heads", "num_kv_heads")

    @clause(
        "ATTN-008", "a query of a contract that it does not know is not supported", of=("answer",)
    )
    def newer_queries_are_rejected(self) -> None:
        check_newer(self.target, self.query())

    @clause(
        "ATTN-011", "a type of cache that it prefers is narrower, and it serves it", of=("answer",)
    )
    def preferred_types_are_served(self) -> None:
        for capability in (None, "grouped_heads", "window", "softcap", "sinks"):
            for features in [self.plain(), *(self.supported(capability) if capability else ())]:
                preferred = self.ask(features).cache_dtypes
                expect(
                    isinstance(preferred, tuple),
                    "cache_dtypes is no tuple",
                    expected='("float16",), or ()',
                    found=repr(preferred),
                )
                for name in preferred:
                    expect(
                        name in DTYPE_BYTES,
                        "cache_dtypes holds what is no type of cache",
                        expected=f"some of {', '.join(DTYPE_BYTES)}",
                        found=repr(name),
                    )
                    asked = DTYPE_BYTES[features.cache_dtype]
                    expect(
                        DTYPE_BYTES[name] < asked,
                        "a preferred type of cache is not narrower than the one asked for",
                        expected=f"one of less than {asked} bytes",
                        found=name,
                    )
                    answer = self.ask(replace(features, cache_dtype=name))
                    expect(
                        isinstance(answer, AttentionSupported),
                        "a type of cache is preferred, and not served when asked for",
                        found=answer,
                    )

    @clause("ATTN-020", "a page of the layout has the bytes that the spec says", of=("layout",))
    def layouts_have_the_planned_size(self) -> None:
        for capability in ("float32", "float16", "bfloat16", "grouped_heads", "unequal_head_sizes"):
            for features in [self.plain(), *self.supported(capability)]:
                for size in self.page_sizes(features):
                    spec = features.plain_spec()
                    layout = self.new().layout(spec, size, MANY)
                    expect(layout.dtype in DTYPE_BYTES, "unknown type", found=layout.dtype)
                    expect(
                        layout.shape[0] == MANY, "dimension 0 is not num_pages", found=layout.shape
                    )
                    found = math.prod(layout.shape[1:]) * DTYPE_BYTES[layout.dtype]
                    expect(
                        found == spec.page_bytes(size),
                        f"a page of {size} tokens has the wrong size for {spec}",
                        expected=f"{spec.page_bytes(size)} bytes",
                        found=f"{found}: {layout}",
                    )

    @clause("ATTN-021", "a kind of cache that it does not know is refused", of=("layout",))
    def unknown_caches_are_refused(self) -> None:
        with expect_raises(UnsupportedError, "a layout for a spec that nobody knows"):
            self.new().layout(_OtherSpec(), self.page_sizes(self.plain())[0], 4)

    @clause("ATTN-022", "the layout depends on its arguments only", of=("layout",))
    def layouts_are_stable(self) -> None:
        spec, size = self.plain().plain_spec(), self.page_sizes(self.plain())[0]
        own = self.new()
        first, second = own.layout(spec, size, MANY), own.layout(spec, size, MORE)
        expect(first.shape[1:] == second.shape[1:], "pages differ with their number", found=second)
        expect(own.layout(spec, size, MANY) == first, "a layout changes", found=first)
        for pages, found in ((MANY, first), (MORE, second)):
            same = self.new().layout(spec, size, pages) == found
            expect(same, "what was asked before changes a layout", found=found)

    def unproven(self) -> tuple[str, ...]:
        """Features of a query that it supports and that no clause runs."""
        plain, own = self.query(), self.new()
        answers = {name: own.answer(but(plain, **{name: value})) for name, value in UNTRIED.items()}
        found = [name for name, answer in answers.items() if isinstance(answer, AttentionSupported)]
        return tuple(found)

    def _bad_queries(self) -> list[AttentionQuery]:
        plain = self.query()
        found = [but(plain, **{field: "unheard-of"}) for field in UNKNOWN]
        found += [but(plain, **{field: True}) for field in ("mla", "cascade")]
        found += [but(plain, **{f: 2}) for f in ("context_parallel", "tensor_parallel")]
        found += [replace(plain, num_heads=3, num_kv_heads=2), replace(plain, page_tokens=0)]
        return [*found, replace(plain, mask="bidirectional", window=4), replace(plain, window=0)]
