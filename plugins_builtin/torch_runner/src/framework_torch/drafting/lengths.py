"""How many drafts a request is worth, by how many were accepted and what a step costs.

A step over T tokens takes about base + each * T seconds.  The i-th draft of a request comes to
something with probability a^i, where a is the share of its drafts that were accepted of late, and
is then worth what a token costs otherwise: (base + each * R) / R with R requests in the step.  It
costs `each`, and the time to propose it.  So drafts grow where they hit, shrink to none where they
miss or where requests fill the machine anyway, and nothing of it needs to be set.

What was refused was computed in vain, and a request must not pay for that again and again.  One
that is worth no draft tries one only so seldom that all such tries together cost a hundredth of the
time, and a new one begins where the requests before it have come to.
"""

from __future__ import annotations

import math

import numpy as np

from framework.contracts.step import I32

FORGET = 0.8
"""Weight of a draft of a request against the one verified after it; about the last five count."""
HOPE = (1.2, 2.0)
"""Drafts accepted and tried that the first request is taken to have had."""
MEMORY = 0.98
"""Weight of a verification of any request against the next one, in what a new one begins with."""
PAUSE = 16
"""Least steps without drafts after which a request that is worth none gets one, to see whether that
still holds."""
SPENT = 0.01
"""Most of the time that goes into such tries."""


class StepCost:
    """Seconds of a step by its tokens: a line through what was measured, old steps forgotten."""

    def __init__(self, forget: float = 0.95) -> None:
        self._forget = forget
        # Sums of weight, T, T^2, seconds, T * seconds.
        self._sums = np.zeros(5)
        self._proposing = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """A step took so long."""
        seen = np.array([1.0, tokens, tokens**2, seconds, tokens * seconds])
        self._sums = self._sums * self._forget + seen

    def add_proposal(self, drafts: int, seconds: float) -> None:
        """To propose this many took so long."""
        if drafts:
            mean = seconds / drafts
            self._proposing += (mean - self._proposing) * (1 - self._forget)

    def share(self) -> float:
        """What one draft costs, as a share of a step of one token; 0.1 until steps of different
        sizes were seen.  In [0.005, 2]."""
        weight, tokens, squares, seconds, products = self._sums
        spread = weight * squares - tokens**2
        if spread <= 1e-3 * weight**2 or seconds <= 0:
            return 0.1
        each = (weight * products - tokens * seconds) / spread
        single = max((seconds - each * (tokens - weight)) / weight, 1e-9)
        return float(np.clip((max(each, 0.0) + self._proposing) / single, 0.005, 2.0))


class DraftLengths:
    """By slot; `start` when a request enters it."""

    def __init__(self, max_slots: int, most: int) -> None:
        self._most = most
        self._accepted = np.zeros(max_slots)
        self._tried = np.ones(max_slots)
        self._without = np.zeros(max_slots, np.int64)
        self._of_all = HOPE
        self.cost = StepCost()

    def start(self, slot: int) -> None:
        """A request enters of which nothing is known: it is taken for one as others were."""
        accepted, tried = self._of_all
        self._accepted[slot], self._tried[slot] = accepted / tried * HOPE[1], HOPE[1]
        self._without[slot] = 0

    def verified(self, slots: I32, drafts: I32, accepted: I32) -> None:
        """Of each of these requests so many drafts were computed, and so many accepted.  What
        follows the first refused one was not looked at."""
        missed = accepted < drafts
        # As if one after another: the accepted ones first, then the one that was refused.
        hits = (1 - FORGET**accepted) / (1 - FORGET)
        older, last = FORGET**accepted, np.where(missed, FORGET, 1.0)
        self._accepted[slots] = (self._accepted[slots] * older + hits) * last
        self._tried[slots] = (self._tried[slots] * older + hits) * last + missed
        kept, hit = MEMORY ** len(slots), float(accepted.sum())
        self._of_all = (
            self._of_all[0] * kept + hit,
            self._of_all[1] * kept + hit + float(missed.sum()),
        )

    def wanted(self, slots: I32, rows: int) -> I32:
        """Most drafts that are of use to each of these requests, int32.  rows: of a step."""
        rate = np.clip(self._accepted[slots] / self._tried[slots], 1e-6, 0.999)
        share, rows = self.cost.share(), max(rows, 1)
        # a^i * (1 + share * (R - 1)) / R > share
        least = share * rows / (1 + share * (rows - 1))
        if least >= 1:
            counts = np.zeros(len(slots), np.int64)
        else:
            counts = np.minimum(np.floor(math.log(least) / np.log(rate)), self._most)
        # One draft for each request of a step makes that longer by a share of `least`.
        probe = (counts == 0) & (self._without[slots] >= max(PAUSE, least / SPENT))
        counts = np.where(probe, 1, counts)
        self._without[slots] = np.where(counts == 0, self._without[slots] + 1, 0)
        return counts.astype(np.int32)
