"""Reasoning between <think> and </think>."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.reasoning_parser import ReasoningParser, ReasoningStream, Split
from framework_parsers.marks import held_back

if TYPE_CHECKING:
    from framework.contracts.tokenizer import Tokenizer

OPEN, CLOSE = "<think>", "</think>"


class _Thinking(ReasoningParser):
    """always: the model thinks first even where no mark opens it."""

    always: ClassVar[bool] = False

    def stream(self, prompt: str) -> ReasoningStream:
        """See ReasoningParser."""
        return _Stream(inside=_opens(prompt) or (self.always and not _closes(prompt)))

    def reasoning_ended(self, token_ids: Sequence[int], tokenizer: Tokenizer) -> bool:
        """See ReasoningParser."""
        # The marks are single tokens of these models; their text is found wherever they lie.
        text = tokenizer.decode(token_ids, skip_special_tokens=False)
        return text.rfind(CLOSE) > text.rfind(OPEN)


class DeepSeekR1(_Thinking):
    """DeepSeek R1: always thinks first, and often leaves the opening mark to the template."""

    always: ClassVar[bool] = True


class Qwen3(_Thinking):
    """Qwen 3: thinks when the mark opens it, in the prompt or in the answer."""


def _opens(prompt: str) -> bool:
    return prompt.rstrip().endswith(OPEN)


def _closes(prompt: str) -> bool:
    """A template that switches thinking off writes it empty."""
    return prompt.rstrip().endswith(CLOSE)


class _Stream:
    """before: nothing but space has come, so that a mark would open the reasoning."""

    def __init__(self, *, inside: bool) -> None:
        self._inside = inside
        self._before = True
        self._buffer = ""

    def push(self, text: str) -> Split:
        self._buffer += text
        reasoning = content = ""
        if self._before:
            bare = self._buffer.lstrip()
            if OPEN.startswith(bare) and bare != OPEN:  # also when it is empty
                return Split()
            self._before = False
            if bare.startswith(OPEN):
                self._inside, self._buffer = True, bare[len(OPEN) :]
        if self._inside:
            reasoning, hit, after = self._buffer.partition(CLOSE)
            if not hit:
                keep = held_back(self._buffer, (CLOSE,))
                free = self._buffer[: len(self._buffer) - keep]
                self._buffer = self._buffer[len(free) :]
                return Split(reasoning=free)
            self._inside, self._buffer = False, after
        content, self._buffer = self._buffer, ""
        return Split(reasoning, content)

    def finish(self) -> Split:
        rest, self._buffer = self._buffer, ""
        return Split(reasoning=rest) if self._inside else Split(content=rest)
