"""Clauses for `builder`, `plan` and `run` of an attention backend, without a capability."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np

from framework.contracts.attention_backend import AttentionSupported
from framework.contracts.base import Rejected
from framework.testing.conformance import garbage
from framework.testing.conformance.cases import Case, expect, expect_close
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.attention_base import (
    AttentionClauses,
    advance,
    noted,
    random_lengths,
)
from framework.testing.conformance.suites.attention_parts import NAN, Options, Values, coarser
from framework.testing.conformance.suites.attention_reference import Features
from framework.testing.conformance.suites.attention_stage import Stage

LONG = 600
"""Tokens of a row that no block of a kernel holds at once."""


class RunClauses(AttentionClauses):
    """On a stage with a cache of its own."""

    @clause(
        "ATTN-030",
        "prefills, pieces of them and decodes in one batch are as the reference",
        of=("builder", "run"),
    )
    def mixed_batches_are_right(self) -> None:
        for case in self.tries(4):
            self.play(case, self.plain(), self.best())

    @clause("ATTN-031", "any combination that it supports is as the reference", of=("run",))
    def supported_combinations_are_right(self) -> None:
        for case in self.tries(10):
            features = self.draw(case, AttentionSupported)
            if features is not None:
                sizes = [size for size in self.page_sizes(features) if size <= 64]
                size = int(case.rng.choice(sizes or self.page_sizes(features)[:1]))
                self.play(case, features, size)

    @clause("ATTN-032", "any combination that it rejects is refused", of=("layout", "run"))
    def rejected_combinations_are_refused(self) -> None:
        for case in self.tries(10):
            features = self.draw(case, Rejected)
            if features is not None:
                self.refused(case, features)

    @clause("ATTN-033", "only pages of new tokens are written", of=("run",))
    def nothing_else_is_written(self) -> None:
        for case in self.tries(2):
            options = Options(padding=64, layout=_layout(case))
            stage = self.stage(case, [self.plain()] * 2, options)
            requests = [stage.request() for _ in range(3)]
            stage.step([(request, int(case.rng.integers(1, 12))) for request in requests])
            rows = [(request, 2) for request in requests[:2]]
            values = stage.values(4)
            metadata = stage.begin(rows, values)
            before = stage.content()
            stage.run(0, values, metadata)
            pages = {0}  # writes to the null page mean nothing
            for request, new in rows:
                places = range(request.length - new, request.length)
                pages |= {stage.slot(request, at) // stage.page_tokens for at in places}
            after = stage.content()
            for page in pages:
                before[stage.span(0, page)] = after[stage.span(0, page)]
            wrong = np.flatnonzero(before != after)
            expect(
                not len(wrong),
                "memory is written that belongs to no new token",
                expected=f"pages {sorted(pages)} of layer 0, in slabs of {stage.plan.slab_bytes}",
                found=f"{len(wrong)} bytes, the first at {wrong[:1]}",
            )

    @clause("ATTN-034", "queries, keys, values and metadata are only read", of=("run",))
    def inputs_stay(self) -> None:
        case = self.once()
        stage = self.stage(case, [self.plain()])
        request = stage.request()
        stage.step([(request, 5)])
        values = stage.values(3)
        rows = [(request, 3)]
        common = stage.common_of(rows, values)
        read = stage.place.bridge.array
        told = (common.query_starts, common.lengths, common.page_table, common.slot_mapping)
        inputs = stage.inputs(0, values)
        before = [read(tensor) for tensor in (*inputs, *told)]
        stage.call(0, inputs, stage.builder.plan(common), stage.blank(0, 3))
        for old, tensor in zip(before, (*inputs, *told), strict=True):
            expect(np.array_equal(old, read(tensor)), "an input was changed", expected=old)

    @clause("ATTN-054", "it keeps nothing of a call: what it was given goes", of=("run",))
    def calls_are_let_go(self) -> None:
        case = self.once()
        stage = self.stage(case, [self.plain()])
        request = stage.request()
        stage.step([(request, 5)])
        values = stage.values(3)
        common = stage.common_of([(request, 3)], values)
        with garbage.of_its_own():
            given = (*stage.inputs(0, values), stage.blank(0, 3))
            names = ("queries", "keys", "values", "output")
            held = [weakref.ref(tensor) for tensor in given]
            stage.call(0, given[:3], stage.builder.plan(common), given[3])
            del given
            gc.collect()
        kept = [name for name, ref in zip(names, held, strict=True) if ref() is not None]
        expect(not kept, "it holds what a call gave it", found=" and ".join(kept))

    @clause("ATTN-035", "rows without a query are passed over", of=("builder", "run"))
    def rows_without_queries_pass(self) -> None:
        for case in self.tries(2):
            stage = self.stage(case, [self.plain()])
            one, two, three = (stage.request() for _ in range(3))
            stage.step([(one, 4), (two, 6), (three, 1)])
            stage.step([(one, 0), (two, 3), (three, 0)])
            stage.step([(two, 0), (one, 2)])
            stage.step([(one, 0), (two, 0)])

    @clause("ATTN-036", "NaN where a row has no token does not show", of=("run",))
    def garbage_does_not_show(self) -> None:
        for case in self.tries(3):
            self.play(case, self.plain(), self.best(), options=Options(garbage=NAN))

    @clause("ATTN-037", "rows may share pages", of=("run",))
    def pages_can_be_shared(self) -> None:
        for case in self.tries(2):
            stage = self.stage(case, [self.plain()])
            first = stage.request()
            stage.step([(first, 2 * stage.page_tokens + 3)])
            second, third = stage.request(first, 2), stage.request(first, 1)
            stage.step([(second, 2), (first, 1), (third, stage.page_tokens + 1)])
            stage.step([(first, 1), (second, 1), (third, 1)])

    @clause("ATTN-038", "pages may lie apart from each other", of=("run",))
    def caches_can_be_strided(self) -> None:
        for case in self.tries(2):
            options = Options(padding=128, layout="page_outermost")
            stage = self.stage(case, [self.plain()] * 3, options)
            advance(stage, [(stage.request(), n) for n in random_lengths(case.rng, 16)], steps=3)

    @clause("ATTN-039", "queries, keys and values may be parts of one tensor", of=("run",))
    def inputs_can_be_strided(self) -> None:
        for case in self.tries(2):
            self.play(case, self.plain(), self.best(), options=Options(parted=True))

    @clause("ATTN-040", "large scores do not overflow", of=("run",))
    def large_scores_are_right(self) -> None:
        # Scores of about 100 at most: their exponential is infinite in float16, and their
        # rounding still within tolerance.
        case = self.once()
        self.play(case, self.plain(), self.best(), options=Options(magnitude=5.0), totals=[9, 17])

    @clause("ATTN-041", "rows longer than a block are as the reference", of=("run",))
    def long_rows_are_right(self) -> None:
        case = self.once()
        stage = self.stage(case, [self.plain()], totals=[LONG, 40])
        long, short = stage.request(), stage.request()
        stage.step([(long, LONG - 20)])
        stage.step([(short, 30), (long, 9)])
        stage.step([(long, 1), (short, 1)])

    @clause("ATTN-042", "each page size that is offered is served", of=("run",))
    def page_sizes_are_served(self) -> None:
        sizes = self.page_sizes(self.plain())
        for case in self.cases(len(sizes)):
            self.play(case, self.plain(), sizes[case.index], totals=[sizes[case.index] + 3, 9])

    @clause("ATTN-043", "each head size that is supported is served", of=("run",))
    def head_sizes_are_served(self) -> None:
        sizes = self.head_sizes()
        for case in self.cases(len(sizes)):
            size = sizes[case.index]
            features = replace(self.plain(), head_size=size, head_size_v=size)
            self.play(case, features, self.page_sizes(features)[0], totals=[7, 19])

    def best(self) -> int:
        """The page size that the backend likes best."""
        return self.page_sizes(self.plain())[0]

    def stage(
        self,
        case: Case,
        layers: list[Features],
        options: Options | None = None,
        totals: list[int] | None = None,
        backend: Any = None,
    ) -> Stage:
        """One with room for a few requests, or for `totals`."""
        size = self.best()
        case.note(**noted(layers[0]), page_tokens=size)
        pages = sum(-(-total // size) for total in totals or [100] * 3) + 4
        chosen = replace(options or Options(), num_pages=pages)
        return Stage(backend or self.new(), self.place(), layers, size, case.rng, chosen)

    def draw(self, case: Case, wanted: type) -> Features | None:
        """Random features with an answer of the wanted type; None if there seem to be none."""
        sizes = self.head_sizes()[:3]
        for _ in range(40):
            features = random_features(case.rng, self.plain(), sizes, self.facts().dtypes)
            if isinstance(self.ask(features), wanted):
                return features
        return None


def random_features(
    rng: np.random.Generator, plain: Features, sizes: list[int], dtypes: tuple[str, ...]
) -> Features:
    """Plain ones with some changes."""
    size = int(rng.choice(sizes))
    dtype = str(rng.choice(dtypes))
    kv_heads = int(rng.integers(1, 4))
    window = int(rng.integers(1, 30)) if rng.random() < 0.4 else None
    return replace(
        plain,
        dtype=dtype,
        cache_dtype=dtype if rng.random() < 0.8 else str(rng.choice(dtypes)),
        head_size=size,
        head_size_v=size if rng.random() < 0.8 else int(rng.choice(sizes)),
        num_kv_heads=kv_heads,
        num_heads=kv_heads * int(rng.choice([1, 2, 4])),
        window=window,
        sink_tokens=int(rng.integers(1, 9)) if window and rng.random() < 0.4 else 0,
        chunk=int(rng.integers(1, 30)) if rng.random() < 0.2 else None,
        softcap=float(rng.uniform(0.5, 5)) if rng.random() < 0.3 else None,
        sinks=bool(rng.random() < 0.3),
        alibi=bool(rng.random() < 0.3),
        causal=bool(rng.random() < 0.8),
    )


def _layout(case: Case) -> Any:
    return "page_outermost" if case.rng.random() < 0.5 else "layer_outermost"


def alone(
    stage: Stage, rows: list[tuple[Any, int]], values: Values, outs: list[Any], *, exact: bool
) -> None:
    """Compute each row of a step once more by itself, and compare."""
    first = 0
    for row, (request, new) in enumerate(rows):
        stage.rewind(request, new)
        (out,) = stage.step([(request, new)], values.part(first, first + new), keep=True)
        beside = outs[0][first : first + new]
        what = f"the output of row {row}, beside others and alone,"
        if exact:
            same = np.array_equal(out, beside)
            expect(same, f"{what} differs", expected="equal bits", found=np.abs(out - beside).max())
        else:
            expect_close(out, beside, coarser(stage.layers[0]), what)
        first += new
