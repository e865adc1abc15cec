"""One broken cache manager or spec for each clause of the suite; those that exist pass it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from framework.contracts.kv_cache_spec import FullAttentionSpec, MambaSpec, SlidingWindowSpec
from framework.core.kv.managers import (
    CrossAttentionManager,
    FullAttentionManager,
    MambaManager,
    SlidingWindowManager,
)
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import check
from framework.testing.conformance.suites.kv_cache_spec import CacheManagerTypeSuite
from framework.testing.harness import Harness
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

RUNS = ("SPEC-030", "SPEC-031", "SPEC-032")
BUILT_IN = [record.name for record in PluginRegistry().records("kv_cache_spec")]


@dataclass(frozen=True, kw_only=True)
class ByIdentity(FullAttentionSpec):
    """No two are equal."""

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


@breaks("SPEC-001")
class ServesIdentities(FullAttentionManager):
    """Of a spec that is no value."""

    spec_class = ByIdentity


class Weightless(FullAttentionSpec):
    """Says that its pages have no bytes."""

    def state_bytes(self):
        return 0


@breaks("SPEC-002", "SPEC-030")
class ServesWeightless(FullAttentionManager):
    """Of a spec without bytes."""

    spec_class = Weightless


class WithHeader(FullAttentionSpec):
    """A header in front of each page."""

    def page_bytes(self, page_tokens):
        return 8 + FullAttentionSpec.page_bytes(self, page_tokens)


@breaks("SPEC-003")
class ServesHeaders(FullAttentionManager):
    """Of a spec whose pages cannot be doubled."""

    spec_class = WithHeader


class GrowingState(MambaSpec):
    """A state for each token."""

    def page_bytes(self, page_tokens):
        return page_tokens * self.state_bytes()


@breaks("SPEC-004")
class ServesGrowingStates(MambaManager):
    """Of a spec whose state grows."""

    spec_class = GrowingState


class FewerForLonger(SlidingWindowSpec):
    """Forgets that a window is not shorter in a long request."""

    def max_pages(self, length, page_tokens, step_tokens):
        most = SlidingWindowSpec.max_pages(self, length, page_tokens, step_tokens)
        return most if length < 50 else min(most, 1)


@breaks("SPEC-005")
class ServesFewerForLonger(SlidingWindowManager):
    """Of a spec that cannot be searched by bisection."""

    spec_class = FewerForLonger


class ReadsItself(FullAttentionSpec):
    """Counts a token's own state among those before it."""

    def reads(self, position):
        return (range(position + 1),)


@breaks("SPEC-006")
class ServesReadsItself(FullAttentionManager):
    """Of a spec that reads what is not there."""

    spec_class = ReadsItself


@breaks("SPEC-010", "SPEC-011", "SPEC-012", "SPEC-013", *RUNS)
class CountsTokens(FullAttentionManager):
    """Tokens instead of pages."""

    def longest_hit(self, present, page_tokens, spec):
        return super().longest_hit(present, page_tokens, spec) * page_tokens


@breaks("SPEC-011", *RUNS)
class LooksAtTheLastPage(SlidingWindowManager):
    """As if a window were never longer than a page."""

    def longest_hit(self, present, page_tokens, spec):
        return max((i for i, there in enumerate(present, 1) if there), default=0)


@breaks("SPEC-012")
class WantsAll(SlidingWindowManager):
    """All pages, although a window needs its own only."""

    def longest_hit(self, present, page_tokens, spec):
        return FullAttentionManager().longest_hit(present, page_tokens, spec)


@breaks("SPEC-013", "SPEC-012")
class LikesOddNumbers(FullAttentionManager):
    """One page more, and there is no hit at all."""

    def longest_hit(self, present, page_tokens, spec):
        hit = super().longest_hit(present, page_tokens, spec)
        return hit if sum(present) % 2 else 0


@breaks("SPEC-014")
class EncoderRestricts(CrossAttentionManager):
    """Counts its own pages, which take no part in the prefix cache."""

    def longest_hit(self, present, page_tokens, spec):
        return FullAttentionManager().longest_hit(present, page_tokens, spec)


class Amnesia(SlidingWindowSpec):
    """Reads nothing of the past."""

    def reads(self, position):
        return ()


@breaks("SPEC-020", "SPEC-012", *RUNS)
class DropsTheNewest(SlidingWindowManager):
    """Also the page that is being written."""

    spec_class = Amnesia

    def droppable(self, computed, page_tokens, spec):
        return 0, -(-computed // page_tokens)


@breaks("SPEC-020", "SPEC-012", *RUNS)
class NoneFarAhead(SlidingWindowManager):
    """Where it has no page to name it names an empty interval past those that are there."""

    spec_class = Amnesia

    def droppable(self, computed, page_tokens, spec):
        start, stop = super().droppable(computed, page_tokens, spec)
        return (start, stop) if start < stop else (1000, 1000)


@breaks("SPEC-021", *RUNS)
class OneTooMany(SlidingWindowManager):
    """Takes the window for one token shorter."""

    def droppable(self, computed, page_tokens, spec):
        return 0, min(max(computed - spec.window + 2, 0), computed) // page_tokens


@breaks("SPEC-022", "SPEC-032")
class DropsAtTimes(SlidingWindowManager):
    """Only where a step ends at an odd number of tokens."""

    def droppable(self, computed, page_tokens, spec):
        found = super().droppable(computed, page_tokens, spec)
        return found if computed % 2 else (0, max(found[1] - 1, 0))


@breaks("SPEC-023", *RUNS)
class SaysThatItKeepsAll(SlidingWindowManager):
    """And names pages all the same."""

    keeps_all: ClassVar[bool] = True


@breaks("SPEC-024", *RUNS)
class NeverDrops(SlidingWindowManager):
    """Every page to the end, although the spec promises less."""

    def droppable(self, computed, page_tokens, spec):
        return 0, 0


@breaks("SPEC-025")
class TurnsAround(FullAttentionManager):
    """Works in the list that it is shown."""

    def longest_hit(self, present, page_tokens, spec):
        hit = super().longest_hit(present, page_tokens, spec)
        if isinstance(present, list):
            present.reverse()
        return hit


class TooFew(SlidingWindowSpec):
    """Counts the pages of the window, and not those of a step."""

    def max_pages(self, length, page_tokens, step_tokens):
        most = -(-length // page_tokens)
        return min(most, -(-self.window // page_tokens) + 1)


@breaks("SPEC-030", "SPEC-031", "SPEC-032")
class ServesTooFew(SlidingWindowManager):
    """Of a spec that promises too little memory."""

    spec_class = TooFew


@breaks("SPEC-031", "SPEC-032")
class KnowsItsPageSize(FullAttentionManager):
    """Beside narrower layers its pages are longer than usual."""

    def longest_hit(self, present, page_tokens, spec):
        if page_tokens > 8:
            raise ValueError("pages of 8 tokens at most")
        return super().longest_hit(present, page_tokens, spec)


@breaks("SPEC-032", "SPEC-011", "SPEC-030", "SPEC-031")
class TakesAll(FullAttentionManager):
    """Whatever is there or not."""

    def longest_hit(self, present, page_tokens, spec):
        return len(present)


class ReadsBackwards(FullAttentionSpec):
    """All tokens, as two ranges with steps: contracts say "in any order"."""

    def reads(self, position):
        return range(position - 1, -1, -2), range(position - 2, -1, -2)


class ServesBackwards(FullAttentionManager):
    """Of a spec whose ranges have steps."""

    spec_class = ReadsBackwards


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, CacheManagerTypeSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(CacheManagerTypeSuite, MUTANTS) == set()
    assert unpaired(CacheManagerTypeSuite) == set()


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_built_in_managers_conform(name):
    report = check(f"kv_cache_spec:{name}", layers=IN_PROCESS)
    assert not report.failures, report.text()


def test_what_is_read_may_be_ranges_of_any_step():
    report = check(ServesBackwards, layers=IN_PROCESS)
    assert not report.failures, report.text()


def test_the_built_in_managers_can_be_imported_as_plugins_must():
    """They share a module, so that one stands for all."""
    assert len(BUILT_IN) == 8
    report = check("kv_cache_spec:full_attention")
    assert not report.failures, report.text()


def test_the_runs_are_under_the_pressure_that_their_clauses_speak_of(monkeypatch):
    made = []
    monkeypatch.setattr(Harness, "check_empty", lambda one: made.append(one.core.stats))
    check(
        SlidingWindowManager,
        suite=CacheManagerTypeSuite,
        only=("SPEC-032",),
        layers=IN_PROCESS,
    )
    assert sum(stats.preemptions > 0 for stats in made) >= 2
    assert sum(stats.prefix_hits > 0 for stats in made) >= 2
