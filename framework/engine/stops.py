"""Stop strings: find the one that completes first, and say how much text must be withheld.

Aho and Corasick, "Efficient string matching" (1975), over characters.  A state is the
longest end of the text that begins a stop string, so the text to withhold falls out of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """`end`: characters of the text that was searched, up to and with the stop string."""

    end: int
    stop: str


class StopMatcher:
    """Searches a text that arrives in pieces.

    The stop that completes first wins, whatever the pieces.  Of several that complete with
    the same character, the one that was listed first wins.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fail: list[int] = [0]
        self._depth: list[int] = [0]
        self._stop: list[int | None] = [None]
        self._stops = tuple(stops)
        for index, stop in enumerate(self._stops):
            self._insert(index, stop)
        self._link()
        self._state = 0

    def _insert(self, index: int, stop: str) -> None:
        state = 0
        for char in stop:
            child = self._next[state].get(char)
            if child is None:
                child = len(self._next)
                self._next[state][char] = child
                self._next.append({})
                self._fail.append(0)
                self._depth.append(self._depth[state] + 1)
                self._stop.append(None)
            state = child
        if self._stop[state] is None:
            self._stop[state] = index

    def _link(self) -> None:
        """Failure links in breadth-first order; each state learns the first-listed stop that
        ends there, its own or a shorter one."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                self._fail[child] = self._step(self._fail[state], char)
                queue.append(child)
            own, shorter = self._stop[state], self._stop[self._fail[state]]
            if own is None or (shorter is not None and shorter < own):
                self._stop[state] = shorter

    def _step(self, state: int, char: str) -> int:
        while state and char not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(char, 0)

    @property
    def withheld(self) -> int:
        """Characters at the end of the text that may still become part of a stop string."""
        state = self._state
        # A complete stop that was let pass (min_tokens) begins nothing longer: fall back.
        while state and not self._next[state]:
            state = self._fail[state]
        return self._depth[state]

    def feed(self, text: str, *, act: bool) -> Match | None:
        """Search `text`, the next piece; with `act` False stops that complete in it pass."""
        for position, char in enumerate(text):
            self._state = self._step(self._state, char)
            index = self._stop[self._state]
            if act and index is not None:
                return Match(position + 1, self._stops[index])
        return None
