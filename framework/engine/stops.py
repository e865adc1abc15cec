"""Stop strings: find the one that completes first, and say how much text must be withheld.

Aho and Corasick, "Efficient string matching" (1975), over characters.  A state is the
longest end of the text that begins a stop string, so the text to withhold falls out of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Match:
    """`end`: characters of the text that was searched, up to and with the stop string."""

    end: int
    stop: str


class _Automaton:
    """The states of Aho and Corasick for these stop strings; searching changes nothing in it."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self.next: list[dict[str, int]] = [{}]
        self.fail: list[int] = [0]
        self.depth: list[int] = [0]
        self.stop: list[int | None] = [None]
        self.stops = stops
        for index, stop in enumerate(stops):
            self._insert(index, stop)
        self._link()

    def _insert(self, index: int, stop: str) -> None:
        state = 0
        for char in stop:
            child = self.next[state].get(char)
            if child is None:
                child = len(self.next)
                self.next[state][char] = child
                self.next.append({})
                self.fail.append(0)
                self.depth.append(self.depth[state] + 1)
                self.stop.append(None)
            state = child
        if self.stop[state] is None:
            self.stop[state] = index

    def _link(self) -> None:
        """Failure links in breadth-first order; each state learns the first-listed stop that
        ends there, its own or a shorter one."""
        queue = deque(self.next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self.next[state].items():
                self.fail[child] = self.step(self.fail[state], char)
                queue.append(child)
            own, shorter = self.stop[state], self.stop[self.fail[state]]
            if own is None or (shorter is not None and shorter < own):
                self.stop[state] = shorter

    def step(self, state: int, char: str) -> int:
        while state and char not in self.next[state]:
            state = self.fail[state]
        return self.next[state].get(char, 0)


_automaton = lru_cache(maxsize=8)(_Automaton)
"""All outputs and all prompts of a request have the same stop strings, and may be thousands: each
making its own of long ones would take minutes, and gigabytes."""


class StopMatcher:
    """Searches a text that arrives in pieces.

    The stop that completes first wins, whatever the pieces.  Of several that complete with
    the same character, the one that was listed first wins.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._automaton = _automaton(tuple(stops))
        self._state = 0

    @property
    def withheld(self) -> int:
        """Characters at the end of the text that may still become part of a stop string."""
        known, state = self._automaton, self._state
        # A complete stop that was let pass (min_tokens) begins nothing longer: fall back.
        while state and not known.next[state]:
            state = known.fail[state]
        return known.depth[state]

    def feed(self, text: str, *, act: bool) -> Match | None:
        """Search `text`, the next piece; with `act` False stops that complete in it pass."""
        known = self._automaton
        for position, char in enumerate(text):
            self._state = known.step(self._state, char)
            index = known.stop[self._state]
            if act and index is not None:
                return Match(position + 1, known.stops[index])
        return None
