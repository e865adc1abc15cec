"""Broken model runners: what a plan may ask for and a runner may declare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from framework.testing.masks import Masks
from tests.conformance.mutants import (
    breaks,
)
from tests.conformance.runner_mutants import Runner


@breaks("RUN-040")
class OtherScores(Runner):
    """Of the tokens beside them."""

    def finish(self, ticket, late):
        result = super().finish(ticket, late)
        if result.logprobs is None:
            return result
        return replace(result, logprobs=replace(result.logprobs, ids=result.logprobs.ids + 1))


class Lenient(Runner):
    """Takes plans that use `ignored`, which it does not declare."""

    ignored: frozenset[str] = frozenset()

    def __init__(self, options=None):
        super().__init__()
        self.features = self.features - self.ignored

    def submit(self, plan):
        declared, self.features = self.features, self.features | self.ignored
        try:
            return super().submit(plan)
        finally:
            self.features = declared


@breaks("RUN-041")
class LenientWithScores(Lenient):
    """Leaves log-probabilities out."""

    ignored = frozenset(("logprobs",))


@breaks("RUN-042")
class ScoresTheEnd(Runner):
    """Scores what it computes in the first part only."""

    def _score(self, row, occupant, computed, new):
        return [] if computed else super()._score(row, occupant, computed, new)


@breaks("RUN-043")
class LenientWithPrompts(Lenient):
    """Leaves prompt scores out."""

    ignored = frozenset(("prompt_logprobs",))


@breaks("RUN-044")
class CountsDraftsTwice(Runner):
    """The token after the drafts counts as one of them."""

    def finish(self, ticket, late):
        result = super().finish(ticket, late)
        counts = np.diff(result.token_offsets)
        return replace(result, accepted=np.where(counts > 1, counts, 0).astype(np.int32))


@breaks("RUN-045")
class LenientWithDrafts(Lenient):
    """Takes drafts for known tokens."""

    ignored = frozenset(("drafts",))


@breaks("RUN-046")
class LenientWithDummies(Lenient):
    """Computes a dummy step as any other."""

    ignored = frozenset(("lockstep",))


class Masking(Runner):
    """A sound one that keeps to masks.  keep: those of its late inputs that it takes."""

    def __init__(self, options=None):
        super().__init__(features=frozenset(("logprobs", "structured_outputs", "drafts")))

    def keep(self, late):
        return late

    def finish(self, ticket, late):
        return super().finish(ticket, self.keep(late))


@breaks("RUN-047", "RUN-049")
class MasksByOrder(Masking):
    """The first mask goes to the first row."""

    def keep(self, late):
        return replace(late, bitmask_rows=late.bitmask_rows * 0)


@breaks("RUN-049", "RUN-047")
class MasksRows(Masking):
    """The first mask of a row is for all that it samples."""

    def keep(self, late):
        words = None if late.bitmask is None else late.bitmask[:1].repeat(len(late.bitmask), 0)
        return replace(late, bitmask=words)


@breaks("RUN-049", "RUN-047")
class MasksTheNextTokenOnly(Masking):
    """A row's drafts are verified without a grammar."""

    def _sample(self, occupant, drafts):
        new = super()._sample(occupant, drafts[:0])
        self._masks = Masks()
        return [*new, *super()._sample(occupant, drafts[1:])] if drafts[:1] == new else new


@breaks("RUN-048")
class LenientWithMasks(Lenient):
    """Takes grammars and keeps to none."""

    ignored = frozenset(("structured_outputs",))


@breaks("RUN-050", "RUN-051")
class GoesByIds(Runner):
    """Takes the ids of embeddings, which are 0, for those of the prompt."""

    def _enter(self, plan):
        plain = [replace(one, payloads={}) for one in plan.admitted]
        super()._enter(replace(plan, admitted=tuple(plain)))


@breaks("RUN-051")
class EndsTheStep(Runner):
    """One request whose embeddings are gone ends all of the step."""

    def _compute(self, plan):
        result = super()._compute(plan)
        if result.errors:
            return replace(result, errors=dict.fromkeys(range(plan.num_rows), "gone"))
        return result


@breaks("RUN-052")
class LenientWithEmbeddings(Lenient):
    """Computes them without a word."""

    ignored = frozenset(("prompt_embeds",))
