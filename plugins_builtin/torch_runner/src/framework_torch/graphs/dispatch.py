"""Which graph serves a step, by what it looks like from outside.

a step of 3 rows, one token each        tokens 3, requests 3, uniform 1
FULL graphs of uniform 1:               1, 2, 4, 8 ... requests     -> that of 4
a step of 3 rows with 20 tokens         tokens 20, requests 3, uniform 0
PIECEWISE graphs:                       8, 16, 24 ... tokens        -> that of 24
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from framework_torch.graphs.modes import Mode, Modes

LARGEST = 512
"""Tokens of the largest graph, if nobody says another: what is larger keeps a device busy long
enough for its calls to be given meanwhile."""


@dataclass(frozen=True, slots=True)
class BatchDescriptor:
    """The key of a graph.  tokens, requests: of the step; requests is 0 where they do not matter,
    as attention is no part of the graph.  uniform: tokens of each row, or 0 where rows differ.
    adapters: whether any row has one."""

    tokens: int
    requests: int
    uniform: int = 0
    adapters: bool = False


def usual_sizes(most: int) -> tuple[int, ...]:
    """Numbers of tokens to capture graphs for: close to one another where a step is short."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, LARGEST + 1, 16)]
    return tuple(size for size in sizes if size <= most)


class Dispatcher:
    """sizes: numbers of tokens, or of requests of uniform steps, ascending.  uniform: numbers of
    tokens of a row for which uniform steps are captured.  max_tokens, max_requests: of any step."""

    def __init__(
        self,
        modes: Modes,
        sizes: Sequence[int],
        uniform: Collection[int],
        max_tokens: int,
        max_requests: int,
    ) -> None:
        self._modes = modes
        self._uniform = tuple(sorted(uniform))
        self._max_requests = max_requests
        self._tokens = [size for size in sizes if size <= max_tokens]
        self._requests = [size for size in sizes if size <= max_requests]
        if max_requests not in self._requests and max_requests <= max(sizes, default=0):
            self._requests.append(max_requests)
        self._keys = frozenset(self.graphs())

    def graphs(self) -> Iterator[tuple[Mode, BatchDescriptor]]:
        """All graphs to capture, the largest first: the others then fit into its memory."""
        if Mode.FULL is self._modes.uniform:
            for query in self._uniform:
                for count in reversed(self._requests):
                    yield Mode.FULL, BatchDescriptor(count * query, count, query)
        for tokens in reversed(self._tokens):
            if Mode.FULL is self._modes.mixed:
                yield Mode.FULL, self._mixed(tokens)
            if Mode.PIECEWISE in self._modes.all:
                yield Mode.PIECEWISE, BatchDescriptor(tokens, 0)

    def dispatch(self, step: BatchDescriptor) -> tuple[Mode, BatchDescriptor]:
        """The mode and the key of the graph, which is as large as the step or larger; NONE and the
        step itself where none was captured.  The order is FULL, PIECEWISE, NONE."""
        if not step.adapters:
            for found in self._candidates(step):
                if found in self._keys:
                    return found
        return Mode.NONE, step

    def _candidates(self, step: BatchDescriptor) -> Iterator[tuple[Mode, BatchDescriptor]]:
        count = _at_least(self._requests, step.requests)
        if step.uniform and count:
            yield Mode.FULL, BatchDescriptor(count * step.uniform, count, step.uniform)
        tokens = _at_least(self._tokens, step.tokens)
        if tokens:
            yield Mode.FULL, self._mixed(tokens)
            yield Mode.PIECEWISE, BatchDescriptor(tokens, 0)

    def _mixed(self, tokens: int) -> BatchDescriptor:
        return BatchDescriptor(tokens, min(tokens, self._max_requests))


def _at_least(sizes: Sequence[int], wanted: int) -> int:
    """The least of the sizes that is large enough, or 0."""
    place = bisect_left(sizes, wanted)
    return sizes[place] if place < len(sizes) else 0
