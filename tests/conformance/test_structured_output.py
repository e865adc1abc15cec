"""One broken structured-output backend for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from framework.contracts.base import Supported
from framework.contracts.structured_output import Grammar
from framework.testing.conformance import check
from framework.testing.conformance.suites.structured_examples import EOS, SPECIAL
from framework.testing.conformance.suites.structured_output import StructuredOutputSuite
from tests.conformance.fake_time import timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    assert_fails,
    breaks,
    leave_a_thread,
    mutants_of,
    uncovered,
    unpaired,
)
from tests.conformance.sites import put

LLGuidance = pytest.importorskip("framework_llguidance").LLGuidance
BACKENDS = [
    name
    for name in ("llguidance", "outlines_core", "xgrammar")
    if find_spec(f"framework_{name}") is not None
]


class Passing:
    """A matcher that passes all on."""

    def __init__(self, inner):
        self.inner = inner

    def accept(self, token):
        return self.inner.accept(token)

    def rollback(self, tokens):
        self.inner.rollback(tokens)

    def fill_bitmask(self, row):
        self.inner.fill_bitmask(row)

    def is_terminated(self):
        return self.inner.is_terminated()


class Ready:
    def __init__(self, inner, wrap):
        self.inner, self.wrap = inner, wrap

    def matcher(self):
        return self.wrap(self.inner.matcher())


class Plain(LLGuidance):
    """A sound one."""

    wrap = Passing

    def load(self, compiled, vocabulary):
        return Ready(super().load(compiled, vocabulary), self.wrap)


@breaks("SOUT-001")
class SaysYes(Plain):
    """Takes everything for covered."""

    def answer(self, query):
        return Supported()


@breaks("SOUT-010")
class Picky(Plain):
    """Refuses what it declares."""

    def check(self, grammar):
        if grammar.structure == "choice":
            raise ValueError("no choices today")
        super().check(grammar)


@breaks("SOUT-011")
class Trusting(Plain):
    """Looks at nothing before it compiles."""

    def check(self, grammar):
        return


@breaks("SOUT-011")
class Crashes(Plain):
    """Fails where it should refuse."""

    def compile(self, grammar, vocabulary):
        try:
            return super().compile(grammar, vocabulary)
        except Exception:
            raise RuntimeError("oops") from None


class NoTurn(Passing):
    def accept(self, token):
        return token != ord("z") and super().accept(token)


@breaks(
    "SOUT-020",
    *("SOUT-022", "SOUT-023", "SOUT-024", "SOUT-025", "SOUT-027", "SOUT-030", "SOUT-031"),
)
class NeverZ(Plain):
    """Never accepts one letter."""

    wrap = NoTurn


@breaks("SOUT-021", "SOUT-020")
class AnyJson(Plain):
    """Takes any object for what a schema asks."""

    def compile(self, grammar, vocabulary):
        keys = json.loads(grammar.text) if grammar.structure == "json" else {}
        loose = Grammar("json_object", "") if "properties" in keys else grammar
        return super().compile(loose, vocabulary)


class OneMore(Passing):
    def fill_bitmask(self, row):
        super().fill_bitmask(row)
        if row.any():
            row[ord("Q") // 32] |= np.uint32(1 << ord("Q") % 32)


@breaks("SOUT-022", "SOUT-023", "SOUT-024", "SOUT-027")
class LooseMask(Plain):
    """Allows a letter that it does not accept."""

    wrap = OneMore


class Narrows(Passing):
    def fill_bitmask(self, row):
        mask = np.zeros_like(row)
        super().fill_bitmask(mask)
        row &= mask


@breaks("SOUT-028")
class CountsOnOnes(Plain):
    """Takes tokens away from what stands in the row."""

    wrap = Narrows


class Tires(Passing):
    refused = False

    def accept(self, token):
        taken = super().accept(token)
        self.refused = self.refused or not taken
        return taken

    def fill_bitmask(self, row):
        super().fill_bitmask(row)
        if self.refused:
            row[ord("a") // 32 :] = 0


@breaks("SOUT-023", "SOUT-022", "SOUT-032")
class TakesOffence(Plain):
    """After a token that it refused it allows less."""

    wrap = Tires


class Forgetful(Passing):
    def rollback(self, tokens):
        super().rollback(min(tokens, 2))


@breaks("SOUT-024", "SOUT-027", "SOUT-032")
class TwoAtMost(Plain):
    """Takes back two tokens at most."""

    wrap = Forgetful


class ShortMemory(Passing):
    def rollback(self, tokens):
        super().rollback(min(tokens, 5))


@breaks("SOUT-027", "SOUT-032")
class FiveAtMost(Plain):
    """Takes back five tokens at most."""

    wrap = ShortMemory


class GoesOn(Passing):
    def accept(self, token):
        return token == EOS or super().accept(token)

    def is_terminated(self):
        return False


@breaks("SOUT-025", "SOUT-022", "SOUT-024", "SOUT-023", "SOUT-027")
class NeverEnds(Plain):
    """Goes on after its end."""

    wrap = GoesOn


class ShowsMarks(Passing):
    def accept(self, token):
        return (token == SPECIAL and not self.is_terminated()) or super().accept(token)

    def fill_bitmask(self, row):
        super().fill_bitmask(row)
        if not self.is_terminated():
            row[SPECIAL // 32] |= np.uint32(1 << SPECIAL % 32)


@breaks("SOUT-026", "SOUT-022", "SOUT-023", "SOUT-024", "SOUT-027", "SOUT-032")
class Special(Plain):
    """Lets special tokens through."""

    wrap = ShowsMarks


class Once(Ready):
    kept = None

    def matcher(self):
        self.kept = self.kept or super().matcher()
        return self.kept


@breaks("SOUT-030", "SOUT-027")
class Shares(Plain):
    """One matcher for all."""

    def load(self, compiled, vocabulary):
        return Once(LLGuidance.load(self, compiled, vocabulary), self.wrap)


@breaks("SOUT-031")
class KeepsAtHome(Plain):
    """What it compiles means something to itself alone."""

    def __init__(self, options=None):
        super().__init__(options)
        self.known = {}

    def compile(self, grammar, vocabulary):
        data = super().compile(grammar, vocabulary)
        self.known[str(len(self.known)).encode()] = data
        return str(len(self.known) - 1).encode()

    def load(self, compiled, vocabulary):
        other = super().compile(Grammar("choice", '["?"]'), vocabulary)
        return super().load(self.known.get(compiled, other), vocabulary)


@breaks("SOUT-032")
class Airy(Plain):
    """White space without end."""

    def compile(self, grammar, vocabulary):
        source = super().compile(grammar, vocabulary).decode()
        return source.replace("{0,16}", "*").encode()


SOUND = [pytest.param(f"structured_output:{name}", id=name) for name in BACKENDS]


@breaks("ALL-031")
class LeavesAThread(Plain):
    """Compiles ahead, in a thread that nobody ends."""

    def load(self, compiled, vocabulary):
        leave_a_thread()
        return super().load(compiled, vocabulary)


@breaks("ALL-030")
class LooksDeep(Plain):
    """Grammars may be nested."""

    def compile(self, grammar, vocabulary):
        sys.setrecursionlimit(12_345)
        return super().compile(grammar, vocabulary)


@breaks("SOUT-033")
class KnowsTexts(Plain):
    """Compiles each of them once."""

    def __init__(self, options=None):
        super().__init__(options)
        self.known = {}

    def compile(self, grammar, vocabulary):
        if grammar.text not in self.known:
            self.known[grammar.text] = super().compile(grammar, vocabulary)
        return self.known[grammar.text]


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("plugin", SOUND)
def test_those_that_exist_conform(plugin):
    assert check(plugin).conformant


def test_the_sound_one_conforms():
    report = check(Plain, suite=timed(StructuredOutputSuite), layers=IN_PROCESS)
    assert not report.failures, report.text(verbose=True)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant):
    assert_caught(mutant, StructuredOutputSuite)


CLAIMS = '''
from framework_llguidance import LLGuidance

class P(LLGuidance):
    """The backend."""
'''


def test_a_claim_to_know_what_is_not_written_is_caught(monkeypatch, tmp_path):
    name = put(monkeypatch, tmp_path, "structured_output", CLAIMS, knows='"1000.0"')
    assert_fails(check(name, only=("SOUT-002",)), "SOUT-002")


def test_every_clause_has_a_mutant():
    assert uncovered(StructuredOutputSuite, MUTANTS) == {"SOUT-002"}
    assert unpaired(StructuredOutputSuite) == set()
