"""Suffixes: what most often followed the longest ending that occurred before.

After Oliaro et al. 2024, "SuffixDecoding: Extreme Speculative Decoding for Emerging AI
Applications", for the tokens of the request itself:

    .. a b c . a b d . a b c . a b      after "a b": c in 2 of 3 places, then "." in 2 of 2

It goes on as long as what it proposes is likely enough by these counts, and no longer than the
ending that it found: a long one is right for longer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.proposer import ComputedStep, SpeculativeProposer
from framework.contracts.step import I32, empty_i32


class SuffixOptions(BaseModel):
    """How far it looks back, and how sure it must be."""

    model_config = ConfigDict(extra="forbid")

    suffix_max: int = Field(
        default=16, ge=1, le=1024, description="Most of the last tokens that are looked up."
    )
    least_probability: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Drafts end where all of them together were seen in a smaller share of places.",
    )
    drafts_per_token: float = Field(
        default=2.0, gt=0, description="Most drafts for each token of the ending that was found."
    )


class SuffixProposer(SpeculativeProposer):
    """Needs no model and keeps nothing."""

    Options = SuffixOptions

    def propose(self, step: ComputedStep) -> Sequence[Sequence[int] | I32]:
        options = self.options if isinstance(self.options, SuffixOptions) else SuffixOptions()
        return [
            go_on(step.known(row), wanted, options)
            for row, wanted in enumerate(step.wanted.tolist())
        ]


def go_on(tokens: I32, wanted: int, options: SuffixOptions) -> list[int] | I32:
    """Up to `wanted` tokens that may follow tokens int32 [n]."""
    places, length = longest(tokens, options.suffix_max)
    if not length:
        return empty_i32()
    drafts: list[int] = []
    probability = 1.0
    while len(drafts) < min(wanted, int(length * options.drafts_per_token)):
        places = places[places < len(tokens) - 1] + 1
        if not len(places):
            break
        followers = tokens[places]
        ids, counts = np.unique(followers, return_counts=True)
        best = counts == counts.max()
        # Of equally frequent ones the one that came last.
        last = followers[np.isin(followers, ids[best])][-1]
        probability *= float(counts.max()) / len(places)
        if probability < options.least_probability:
            break
        drafts.append(int(last))
        places = places[followers == last]
    return drafts


def longest(tokens: I32, most: int) -> tuple[np.ndarray, int]:
    """(where the longest ending of at most `most` tokens occurred before, by its last token, its
    length); 0 if the last token is new."""
    end = len(tokens)
    places, length = np.flatnonzero(tokens[:-1] == tokens[-1]) if end else np.zeros(0, int), 0
    found = places
    while len(places):
        found, length = places, length + 1
        if length == most:
            break
        places = places[places >= length]
        places = places[tokens[places - length] == tokens[end - 1 - length]]
    return found, length
