"""Marks in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


def held_back(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of `text` that may be the beginning of a mark."""
    longest = min(len(text), max(map(len, marks)) - 1)
    for length in range(longest, 0, -1):
        end = text[-length:]
        if any(mark.startswith(end) for mark in marks):
            return length
    return 0


def first_mark(text: str, marks: Sequence[str]) -> tuple[int, str] | None:
    """Where the first mark begins, and which it is."""
    found = [(text.index(mark), mark) for mark in marks if mark in text]
    return min(found, default=None)
