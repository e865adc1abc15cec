"""Prompt lookup: what came after these tokens the last time they occurred.

known   .. a b c d e ........ x a b c        looked up: x a b c, then a b c, then b c
                 ^ what followed  ^ end      proposed:  d e ..
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from framework.contracts.proposer import ComputedStep, SpeculativeProposer
from framework.contracts.step import I32, empty_i32


class NgramOptions(BaseModel):
    """How many of the last tokens are looked up."""

    model_config = ConfigDict(extra="forbid")

    prompt_lookup_max: int = Field(
        default=4, ge=1, le=1024, description="Most of the last tokens that are looked up."
    )
    prompt_lookup_min: int = Field(
        default=2,
        ge=1,
        description="Least of them; fewer find more, and what they find is right less often.",
    )

    @model_validator(mode="after")
    def _in_order(self) -> NgramOptions:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError("prompt_lookup_min must be at most prompt_lookup_max")
        return self


class NgramProposer(SpeculativeProposer):
    """Needs no model and keeps nothing: it searches the tokens of the request in each step."""

    Options = NgramOptions

    def propose(self, step: ComputedStep) -> Sequence[Sequence[int] | I32]:
        options = self.options if isinstance(self.options, NgramOptions) else NgramOptions()
        return [
            look_up(step.known(row), wanted, options.prompt_lookup_max, options.prompt_lookup_min)
            for row, wanted in enumerate(step.wanted.tolist())
        ]


def look_up(tokens: I32, wanted: int, longest: int, shortest: int) -> I32:
    """Up to `wanted` tokens that followed the last occurrence of the longest possible ending.

    tokens: int32 [n].  Of the endings of longest .. shortest tokens the longest that occurred
    before counts, of its occurrences the last one.  Where that overlaps the end, what followed
    goes on as it began: the tokens repeat.
    """
    end = len(tokens)
    if wanted < 1 or end <= shortest:
        return empty_i32()
    # Where the last token occurred before; then those whose token before agrees, too, and so on.
    places = np.flatnonzero(tokens[:-1] == tokens[-1])
    found = empty_i32()
    for length in range(1, longest + 1):
        if length > 1:
            places = places[places >= length - 1]
            places = places[tokens[places - (length - 1)] == tokens[end - length]]
        if not len(places):
            break
        if length >= shortest:
            period = end - 1 - int(places[-1])
            found = tokens[end - period + np.arange(wanted) % period]
    return found
