"""Things that may be reused only after a step in flight has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator


class Fence:
    """Slots and pages that a step in flight may still touch, in order of steps."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, int]] = deque()
        self._pages: deque[tuple[int, list[int]]] = deque()
        self._held: list[tuple[list[Callable[[], bool]], list[int]]] = []

    @property
    def busy(self) -> bool:
        """Something is held back."""
        return bool(self._slots or self._pages or self._held)

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    def pages(self) -> Iterator[int]:
        """All pages behind the fence."""
        for _, pages in self._pages:
            yield from pages
        for _, pages in self._held:
            yield from pages

    @property
    def num_pages_coming(self) -> int:
        """Pages that come back when steps in flight end."""
        return sum(len(pages) for _, pages in self._pages)

    def put(self, step_id: int, slot: int, pages: list[int]) -> None:
        """Free both once step `step_id` has ended."""
        self._slots.append((step_id, slot))
        if pages:
            self._pages.append((step_id, pages))

    def hold(self, done: list[Callable[[], bool]], pages: list[int]) -> None:
        """Free pages when all of `done` say so."""
        self._held.append((done, pages))

    def passed(self, step_id: int) -> tuple[list[int], list[int]]:
        """(slots, pages) that may be reused now that step `step_id` has ended."""
        slots: list[int] = []
        pages: list[int] = []
        while self._slots and self._slots[0][0] <= step_id:
            slots.append(self._slots.popleft()[1])
        while self._pages and self._pages[0][0] <= step_id:
            pages.extend(self._pages.popleft()[1])
        return slots, pages

    def let_go(self) -> list[int]:
        """Pages whose holders are done."""
        if not self._held:
            return []
        ready = [all(done() for done in checks) for checks, _ in self._held]
        pages = [p for (_, own), yes in zip(self._held, ready, strict=True) if yes for p in own]
        self._held = [h for h, yes in zip(self._held, ready, strict=True) if not yes]
        return pages

    @property
    def num_held(self) -> int:
        return len(self._held)
