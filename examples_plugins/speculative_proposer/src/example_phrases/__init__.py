"""A speculative proposer: phrases that the operator expects, as in forms and boilerplate.

LLM(MODEL, speculative_config={"method": "phrases", "phrases": [[12, 7, 301, 9]]})
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from framework.contracts.proposer import ComputedStep, SpeculativeProposer
from framework.contracts.step import I32


class Options(BaseModel, extra="forbid"):
    """What --plugin-option speculative_proposer.phrases.KEY=VALUE can set."""

    phrases: list[list[int]] = Field(
        default_factory=lambda: [[*range(5, 13)]],
        description="Token ids of each phrase; the longest begun one is gone on with.",
    )


class Phrases(SpeculativeProposer):
    """Goes on with a phrase whose beginning stands at the end of the tokens."""

    Options = Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._phrases = (options or Options()).phrases

    def propose(self, step: ComputedStep) -> Sequence[Sequence[int]]:
        return [self._go_on(step.known(row), int(step.wanted[row])) for row in range(len(step))]

    def _go_on(self, tokens: I32, wanted: int) -> list[int]:
        longest = max(map(len, self._phrases), default=0)
        end = tokens[-longest:].tolist() if longest else []
        begun = ((self._begun(phrase, end), phrase) for phrase in self._phrases)
        length, phrase = max(begun, default=(0, []))
        return phrase[length : length + wanted] if length else []

    @staticmethod
    def _begun(phrase: list[int], end: list[int]) -> int:
        """How many tokens of the phrase stand at the end; all but its last at most."""
        lengths = range(min(len(phrase) - 1, len(end)), 0, -1)
        return next((n for n in lengths if end[-n:] == phrase[:n]), 0)
