"""The suite of speculative proposers: it catches broken ones, and finds no fault in sound ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from framework.contracts.proposer import ProposerInfo, SpeculativeProposer
from framework.errors import ModelError
from framework.testing.conformance import check
from framework.testing.conformance.suites.speculative_proposer import SpeculativeProposerSuite
from tests.conformance.fake_time import spend
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    leave_a_thread,
    mutants_of,
    uncovered,
    unpaired,
)

EXAMPLE = Path(__file__).parents[2] / "examples_plugins/speculative_proposer/src"


class Again(SpeculativeProposer):
    """What followed the last token the last time."""

    def __init_subclass__(cls):
        cls.__doc__ = cls.__doc__ or "Broken on purpose."

    def propose(self, step):
        return [
            self.guess(int(step.slots[row]), step.known(row), int(step.wanted[row]))
            for row in range(len(step))
        ]

    def guess(self, slot, tokens, wanted):
        places = np.flatnonzero(tokens[:-1] == tokens[-1])
        start = int(places[-1]) + 1 if len(places) else len(tokens)
        return tokens[start : start + wanted].tolist()


class Keeps(Again):
    """Keeps what followed each token, by slot, and reads what is new in each step."""

    def __init__(self, options=None):
        super().__init__(options)
        self.after, self.read = {}, {}

    def admit(self, request):
        self.after[request.slot], self.read[request.slot] = {}, 0

    def drop(self, slot):
        self.after.pop(slot, None)

    def guess(self, slot, tokens, wanted):
        after = self.after[slot]
        for place in range(self.read[slot], len(tokens) - 1):
            after[int(tokens[place])] = int(tokens[place + 1])
        self.read[slot] = max(len(tokens) - 1, 0)
        found, last = [], int(tokens[-1])
        while len(found) < wanted and last in after:
            last = after[last]
            found.append(last)
        return found


class Heads(SpeculativeProposer):
    """Reads heads, which it would need to be given."""

    need = "hidden_states"

    def load(self, context):
        if context.draft_files is None:
            raise ModelError("it reads heads", expected="speculative_model", found="none")
        return ProposerInfo()

    def propose(self, step):
        return [[] for _ in step.slots]


@breaks("PROP-001", "PROP-201")
class NeedsLuck(Again):
    need = "luck"


@breaks(
    "PROP-010", "PROP-011", "PROP-014", "PROP-015", "PROP-016", "PROP-012", "PROP-018", "PROP-019"
)
class ProposesTooMany(Again):
    def guess(self, slot, tokens, wanted):
        return [1] * (wanted + 1)


@breaks(
    "PROP-010", "PROP-011", "PROP-014", "PROP-015", "PROP-016", "PROP-012", "PROP-018", "PROP-019"
)
class ProposesWhatIsNoToken(Again):
    def guess(self, slot, tokens, wanted):
        return [300]


@breaks("PROP-011")
class ReadsItsNeighbour(Again):
    def propose(self, step):
        found = super().propose(step)
        return [ids[: int(step.wanted.min())] for ids in found]


@breaks("PROP-012", "PROP-011", "PROP-014", "PROP-015", "PROP-016", "PROP-019")
class CountsCalls(Again):
    calls = 0

    def guess(self, slot, tokens, wanted):
        self.calls += 1
        return [self.calls % 7]


@breaks("PROP-013")
class WritesIntoTheTable(Again):
    def propose(self, step):
        found = super().propose(step)
        step.tokens[step.slots, step.lengths] = 1
        return found


@breaks("PROP-014")
class ForgetsWhenTold(Keeps):
    def admit(self, request):
        self.after.setdefault(request.slot, {})
        self.read.setdefault(request.slot, 0)

    def drop(self, slot):
        self.after.pop(slot, None)
        self.read.pop(slot, None)


@breaks("PROP-015", "PROP-011", "PROP-014")
class KnowsItsSlot(Again):
    def guess(self, slot, tokens, wanted):
        return super().guess(slot, tokens, wanted)[: 1 if slot == 6 else wanted]


@breaks("PROP-016", "PROP-011", "PROP-012", "PROP-014", "PROP-015", "PROP-018")
class ReadsTheLastTwoOnly(Keeps):
    def guess(self, slot, tokens, wanted):
        self.read[slot] = max(len(tokens) - 2, 0)
        return super().guess(slot, tokens, wanted)


@breaks("PROP-017")
class TakesItsTime(Again):
    def propose(self, step):
        spend(0.2)
        return super().propose(step)


@breaks("PROP-018")
class SaysNothing(Again):
    def guess(self, slot, tokens, wanted):
        return []


@breaks("PROP-101", *(f"PROP-{number:03}" for number in (*range(10, 19),)), "PROP-019")
class ReadsTheModel(Again):
    def load(self, context):
        self.embed = context.target.embed
        return ProposerInfo()


@breaks("PROP-101")
class WantsStatesAllTheSame(Again):
    def load(self, context):
        return ProposerInfo(taps=(1,))


@breaks("PROP-201")
class TrustsThatHeadsAreThere(Heads):
    """Broken on purpose."""

    def load(self, context):
        return open(context.draft_files.root)


@breaks("ALL-031")
class LeavesAThread(Again):
    def propose(self, step):
        leave_a_thread()
        return super().propose(step)


@breaks("ALL-030")
class Seeds(Again):
    def propose(self, step):
        np.random.seed(1)
        return super().propose(step)


@breaks("PROP-019")
class KeepsAllInTheClass(Keeps):
    """For whichever instance."""

    every: ClassVar[tuple[dict, dict]] = ({}, {})

    def __init__(self, options=None):
        super().__init__(options)
        self.after, self.read = self.every


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("proposer", [Again, Keeps, Heads])
def test_sound_proposers_pass(proposer):
    report = check(proposer, suite=SpeculativeProposerSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, SpeculativeProposerSuite)


def test_each_clause_has_a_mutant_and_each_capability_a_pair():
    assert uncovered(SpeculativeProposerSuite, MUTANTS) == set()
    assert not unpaired(SpeculativeProposerSuite)


@pytest.mark.parametrize("name", ["ngram", "suffix", "draft_model", "eagle", "medusa"])
def test_first_party_proposers_conform(name):
    report = check(f"speculative_proposer:{name}")
    assert report.conformant, report.text()
    assert not report.failures, report.text()


def test_the_example_conforms(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    report = check(
        "speculative_proposer:phrases",
        ad_hoc={"speculative_proposer:phrases": "example_phrases:Phrases"},
    )
    monkeypatch.delitem(sys.modules, "example_phrases")
    assert not report.failures, report.text()
