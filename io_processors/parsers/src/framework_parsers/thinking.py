"""Reasoning between <think> and </think>."""

from __future__ import annotations

import re
from typing import ClassVar

from framework.contracts.reasoning_parser import ReasoningParser, ReasoningStream, Split
from framework_parsers.marks import Until

OPEN, CLOSE = "<think>", "</think>"
_TURN = re.compile(r"<[|\uff5c]")
"""How marks of these models begin that end a turn: what stands before one is another's."""


class _Thinking(ReasoningParser):
    """always: the model thinks first even where no mark opens it."""

    example: ClassVar[str] = f"{OPEN}why{CLOSE}because"
    always: ClassVar[bool] = False

    def stream(self, prompt: str) -> ReasoningStream:
        """See ReasoningParser."""
        opened, closed = prompt.rfind(OPEN), prompt.rfind(CLOSE)
        if _TURN.search(prompt, max(opened, closed, 0)):
            opened = closed = -1
        if closed > opened:
            return _Stream(_ANSWER)
        return _Stream(_REASONING if opened >= 0 or self.always else _UNKNOWN)


class DeepSeekR1(_Thinking):
    """DeepSeek R1: always thinks first, and often leaves the opening mark to the template."""

    always: ClassVar[bool] = True


class Qwen3(_Thinking):
    """Qwen 3: thinks when the mark opens it, in the prompt or in the answer."""


_UNKNOWN, _REASONING, _ANSWER = range(3)


class _Stream:
    """place: what the text is before its first mark.  A mark at its very beginning opens the
    reasoning, and stands there twice where the prompt has it already."""

    def __init__(self, place: int) -> None:
        self._place = place
        self._space: list[str] = []
        self._first = "" if place != _ANSWER else None
        self._until = Until(CLOSE)

    @property
    def ended(self) -> bool:
        """See ReasoningStream."""
        return self._place == _ANSWER

    def push(self, text: str) -> Split:
        """See ReasoningStream."""
        if self._first is not None:
            text = self._begins(text, self._first)
        if not text or self._place == _ANSWER:
            return Split(content=text)
        reasoning, after = self._until.take(text)
        if after is None:
            return Split(reasoning=reasoning)
        self._place = _ANSWER
        return Split(reasoning, after)

    def finish(self) -> Split:
        """See ReasoningStream."""
        rest = "".join((*self._space, self._first or "", self._until.rest()))
        self._space, self._first = [], None
        return Split(reasoning=rest) if self._place == _REASONING else Split(content=rest)

    def _begins(self, text: str, first: str) -> str:
        """What can be told once the first mark, or anything else but space, has come."""
        whole = first + text
        bare = whole.lstrip()
        self._space.append(whole[: len(whole) - len(bare)])
        if len(bare) < len(OPEN) and OPEN.startswith(bare):
            self._first = bare
            return ""
        space, self._space, self._first = "".join(self._space), [], None
        if bare.startswith(OPEN):
            self._place = _REASONING
            return bare[len(OPEN) :]
        if self._place == _UNKNOWN:
            self._place = _ANSWER
        return space + bare
