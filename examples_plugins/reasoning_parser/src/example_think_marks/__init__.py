"""`reasoning_parser:think_marks`: [THINK]why[/THINK]because."""

from __future__ import annotations

from typing import ClassVar

from framework.contracts.reasoning_parser import ReasoningParser, ReasoningStream, Split

OPEN, CLOSE = "[THINK]", "[/THINK]"
UNKNOWN, REASONING, ANSWER = range(3)


class ThinkMarks(ReasoningParser):
    """Tells apart what stands between [THINK] and [/THINK], as Magistral writes it."""

    example: ClassVar[str] = f"{OPEN}why{CLOSE}because"

    def stream(self, prompt: str) -> ReasoningStream:
        """See ReasoningParser."""
        end = prompt.rstrip()
        if end.endswith(CLOSE):
            return _Marked(ANSWER)
        return _Marked(REASONING if end.endswith(OPEN) else UNKNOWN)


class _Marked:
    """place: what comes next.  held: what may be the beginning of a mark."""

    def __init__(self, place: int) -> None:
        self.place, self.held = place, ""

    @property
    def ended(self) -> bool:
        """See ReasoningStream."""
        return self.place == ANSWER

    def push(self, text: str) -> Split:
        """See ReasoningStream."""
        text, self.held = self.held + text, ""
        if self.place == UNKNOWN:
            if text != OPEN and OPEN.startswith(text):
                self.held = text
                return Split()
            self.place = REASONING if text.startswith(OPEN) else ANSWER
            text = text.removeprefix(OPEN)
        if self.place == ANSWER:
            return Split(content=text)
        reasoning, hit, content = text.partition(CLOSE)
        if hit:
            self.place = ANSWER
            return Split(reasoning, content)
        lengths = range(min(len(text), len(CLOSE) - 1), 0, -1)
        keep = next((n for n in lengths if CLOSE.startswith(text[-n:])), 0)
        self.held = text[len(text) - keep :]
        return Split(text[: len(text) - keep])

    def finish(self) -> Split:
        """See ReasoningStream."""
        held, self.held = self.held, ""
        return Split(reasoning=held) if self.place == REASONING else Split(content=held)
