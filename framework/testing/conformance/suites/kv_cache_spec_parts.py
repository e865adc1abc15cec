"""What the suite of cache manager types is made of: specs, slow references, a watch on pages."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from framework.contracts.kv_cache_spec import DTYPE_BYTES, CacheManagerType, KVCacheSpec
from framework.contracts.messages import EngineOutputs
from framework.core.kv.managers import BUILT_IN
from framework.core.kv.pages import NULL_PAGE
from framework.testing.conformance.cases import expect
from framework.testing.conformance.outcomes import Violation
from framework.testing.harness import Harness

HORIZON = 40
"""Tokens that are looked ahead: longer than any window or chunk of `random_spec`."""

_BY_NAME: dict[str, Any] = {
    "dtype": lambda rng: str(rng.choice(sorted(DTYPE_BYTES))),
    "shapes": lambda rng: tuple((int(n),) for n in rng.integers(1, 9, 2)),
    "dtypes": lambda rng: ("float32", "float16"),
}


def random_spec(cls: type[KVCacheSpec], rng: np.random.Generator) -> KVCacheSpec:
    """A spec whose fields without a default are drawn by name, and integers from 1 to 12.

    Raises Violation for a field that it cannot draw.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            continue
        draw = _BY_NAME.get(field.name)
        if draw is None and field.type not in (int, "int"):
            raise Violation(
                f"{cls.__name__}.{field.name} of type {field.type} cannot be made up\n"
                "  expected: a suite of your own, with `spec(case)`"
            )
        values[field.name] = draw(rng) if draw else int(rng.integers(1, 13))
    return cls(**values)


def pages_read(spec: KVCacheSpec, computed: int, page_tokens: int) -> set[int]:
    """Pages that tokens from position `computed` on read of what lies before it: the slow and
    obvious reference."""
    return {
        position // page_tokens
        for later in range(computed, computed + HORIZON)
        for span in spec.reads(later)
        for position in span
        if position < computed
    }


def all_present(pages: int) -> Iterator[tuple[bool, ...]]:
    """Every way in which so many pages are in the cache or not."""
    return itertools.product((False, True), repeat=pages)


def hit_of(manager: CacheManagerType, present: Sequence[bool], size: int, spec: Any) -> int:
    """Raise Violation unless it is an answer of `longest_hit`."""
    hit = manager.longest_hit(present, size, spec)
    fine = isinstance(hit, int) and not isinstance(hit, bool) and 0 <= hit <= len(present)
    expect(
        fine,
        "longest_hit is no number of the pages",
        expected=f"0 .. {len(present)}",
        found=f"{hit!r} for present={list(present)}",
    )
    return hit


def dropped(manager: CacheManagerType, computed: int, size: int, spec: Any) -> range:
    """Raise Violation unless it is an answer of `droppable`."""
    answer = manager.droppable(computed, size, spec)
    fine = (
        isinstance(answer, tuple)
        and len(answer) == 2
        and all(isinstance(end, int) and not isinstance(end, bool) for end in answer)
        and 0 <= answer[0] <= answer[1]
    )
    expect(fine, "droppable is no pair 0 <= start <= stop", found=answer)
    return range(*answer)


class WatchedPages(Harness):
    """An engine in which no request may hold more pages of a group than its spec says."""

    def __init__(self, manager: CacheManagerType, **more: Any) -> None:
        runner = {"managers": (manager,), **more.pop("runner")}
        managers = (*(make() for make in BUILT_IN), manager)
        super().__init__(managers=managers, runner=runner, **more)

    def step(self) -> EngineOutputs:
        outputs = super().step()
        state = self.core._state
        for slot, request in enumerate(state.slots.requests):
            if request is None:
                continue
            for index, group in enumerate(state.kv.groups):
                held = state.kv.tables[index, slot, : state.kv.held[index, slot]]
                count = int((held != NULL_PAGE).sum())
                length = int(state.slots.planned[slot])
                most = group.spec.max_pages(length, group.page_tokens, self.config.tokens_in_flight)
                expect(
                    count <= most,
                    f"a request holds more pages than {type(group.spec).__name__}.max_pages says",
                    expected=f"at most {most} for {length} tokens, in pages of "
                    f"{group.page_tokens}, {self.config.tokens_in_flight} of them in flight",
                    found=count,
                )
        return outputs
