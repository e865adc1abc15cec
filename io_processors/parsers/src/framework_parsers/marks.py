"""Marks in a text that comes in pieces."""

from __future__ import annotations


def held_back(text: str, mark: str) -> int:
    """Length of the longest end of `text` that may be the beginning of `mark`."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


class Until:
    """Looks for one mark; holds back no more than may be the beginning of it."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._held = ""

    def take(self, text: str) -> tuple[str, str | None]:
        """(text before the mark, what follows it); None: the mark has not come yet."""
        before, hit, after = (self._held + text).partition(self._mark)
        if hit:
            self._held = ""
            return before, after
        free = len(before) - held_back(before, self._mark)
        self._held = before[free:]
        return before[:free], None

    def rest(self) -> str:
        """What is held back, once nothing more comes."""
        rest, self._held = self._held, ""
        return rest
