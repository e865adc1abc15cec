"""The suite of logits processors: it catches broken ones, and finds no fault in sound ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from framework.contracts.logits_processor import LogitsProcessor
from framework.errors import InputError
from framework.testing.conformance import check
from framework.testing.conformance.suites.logits_processor import LogitsProcessorSuite
from tests.conformance.fake_time import spend
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

EXAMPLE = Path(__file__).parents[2] / "examples_plugins/logits_processor/src"


class Likelier(LogitsProcessor):
    """Makes one token of a request more likely."""

    examples = (5, 0, 17)

    def __init_subclass__(cls):
        cls.__doc__ = cls.__doc__ or "Broken on purpose."

    def __init__(self, options=None):
        super().__init__(options)
        self.tokens = {}

    def own(self, sampling):
        return (sampling.extra_args or {}).get(type(self).__name__)

    def validate(self, sampling):
        token = self.own(sampling)
        if token is not None and (type(token) is not int or not 0 <= token < 1 << 31):
            raise InputError("no token id", parameter="extra_args", found=repr(token))

    def admit(self, request):
        token = self.own(request.sampling)
        if token is not None:
            self.tokens[request.slot] = token

    def drop(self, slot):
        self.tokens.pop(slot, None)

    def apply(self, logits, slots, outputs):
        for row, slot in enumerate(slots.tolist()):
            token = self.tokens.get(slot)
            if token is not None and token < logits.shape[1]:
                self.change(logits[row], token, outputs[row])

    def change(self, row, token, output):
        row[token] += 5.0


class NoStutter(Likelier):
    """Lowers what was generated last, and nothing else."""

    def change(self, row, token, output):
        row[output[-1:].tolist()] -= 50.0


class Counts(Likelier):
    """Lowers what was generated; what was there when the request came is kept from then."""

    def __init__(self, options=None):
        super().__init__(options)
        self.counted = {}

    def admit(self, request):
        super().admit(request)
        self.counted[request.slot] = request.tokens[request.num_prompt :].tolist()

    def apply(self, logits, slots, outputs):
        for row, slot in enumerate(slots.tolist()):
            if slot in self.tokens:
                seen = set(self.counted[slot])
                seen.update(outputs[row][len(self.counted[slot]) :].tolist())
                logits[row, sorted(seen)] -= 2.0


class NoRepeat(Likelier):
    """Forbids what would repeat the last n tokens: its rows depend on what was generated."""

    examples = (1, 2, 3)

    def validate(self, sampling):
        size = self.own(sampling)
        if size is not None and (type(size) is not int or not 1 <= size <= 100):
            raise InputError("no length of a repetition", found=repr(size))

    def change(self, row, size, output):
        tail = output[len(output) - size + 1 :].tolist() if size > 1 else []
        for end in range(size - 1, len(output)):
            if output[end - size + 1 : end].tolist() == tail:
                row[int(output[end])] = -float("inf")


class Warmer(Likelier):
    """Flattens the logits of a row, whose best token stays the best."""

    changes_argmax = False
    examples = (1, 2)

    def change(self, row, token, output):
        row /= 1 + token


@breaks("LOGIT-001", *(f"LOGIT-{number:03}" for number in (*range(2, 24), 101, 201)))
class GivesNoExample(Likelier):
    examples = ()


@breaks("LOGIT-002")
class RefusesItsExample(Likelier):
    examples = (5, 17, "five")

    def admit(self, request):
        if type(self.own(request.sampling)) is int:
            super().admit(request)


@breaks("LOGIT-003", "LOGIT-004")
class ComparesAnything(Likelier):
    def validate(self, sampling):
        token = self.own(sampling)
        if token is not None and (token < 0 or token >= 1 << 31 or type(token) is not int):
            raise InputError("no token id")


@breaks("LOGIT-004")
class LetsAnythingPass(Likelier):
    def validate(self, sampling):
        pass


class Biases(Likelier):
    """Takes {token: bias}, and says itself what is wrong with it."""

    examples = ({"5": 2.0}, {"0": -1.0, "7": 4.0})

    def validate(self, sampling):
        given = self.own(sampling)
        if given is None:
            return
        if not isinstance(given, dict) or not given or not all(map(self.is_token, given)):
            raise InputError("no mapping of tokens")
        for bias in given.values():
            if type(bias) not in (int, float) or not -100 <= bias <= 100:
                self.refuse()

    def is_token(self, key):
        return key.isdecimal() and len(key) < 4 and int(key) < 300

    def refuse(self):
        raise InputError("no bias")

    def apply(self, logits, slots, outputs):
        for row, slot in enumerate(slots.tolist()):
            for token, bias in (self.tokens.get(slot) or {}).items():
                logits[row, int(token)] += bias


@breaks("LOGIT-003", "LOGIT-004")
class RefusesInItsOwnWay(Biases):
    def refuse(self):
        raise ValueError("no bias")


@breaks("LOGIT-004")
class LetsFarTokensPass(Biases):
    def is_token(self, key):
        return key.isdecimal() and len(key) < 9


@breaks("LOGIT-010", "LOGIT-014")
class ChangesAllRows(Likelier):
    def apply(self, logits, slots, outputs):
        super().apply(logits, slots, outputs)
        if self.tokens:
            logits[:, 200] += 1


@breaks("LOGIT-011", "LOGIT-012", "LOGIT-021")
class ReadsOutputsOfTheFirst(Likelier):
    def apply(self, logits, slots, outputs):
        super().apply(logits, slots, (outputs[0],) * len(outputs))

    def change(self, row, token, output):
        row[token] += 5.0 + len(output)


@breaks("LOGIT-012")
class ServesASlotOnce(Likelier):
    def apply(self, logits, slots, outputs):
        _, first = np.unique(slots, return_index=True)
        for row in first.tolist():
            super().apply(logits[row : row + 1], slots[row : row + 1], outputs[row : row + 1])


@breaks("LOGIT-013", *(f"LOGIT-{n:03}" for n in (11, 12, 14, 15, 20, 21)))
class CountsCalls(Likelier):
    calls = 0

    def change(self, row, token, output):
        self.calls += 1
        row[token] += self.calls


@breaks("LOGIT-014", "LOGIT-015")
class ForgetsNothing(Likelier):
    def drop(self, slot):
        pass


@breaks("LOGIT-015", "LOGIT-011")
class KnowsSlotsBelowSix(Likelier):
    def admit(self, request):
        if request.slot < 6 or len(request.tokens) == 3:
            super().admit(request)


@breaks("LOGIT-016")
class SortsOutputs(Likelier):
    def change(self, row, token, output):
        super().change(row, token, output)
        output[:] = output[::-1] + 1


@breaks("LOGIT-016")
class WritesSlots(Likelier):
    def apply(self, logits, slots, outputs):
        super().apply(logits, slots, outputs)
        slots[:] = -1


@breaks("LOGIT-017", "LOGIT-018", "LOGIT-004")
class DividesInfinities(Likelier):
    def change(self, row, token, output):
        row -= row.max()
        row[200] = float("nan")


@breaks("LOGIT-017", "LOGIT-018")
class ForbidsAll(Likelier):
    def change(self, row, token, output):
        row.fill_(-float("inf"))


@breaks("LOGIT-018")
class Revives(Likelier):
    def change(self, row, token, output):
        row[:] = row.clamp(min=-50)
        super().change(row, token, output)


@breaks("LOGIT-018")
class SetsWhatWasLast(NoStutter):
    def change(self, row, token, output):
        row[output[-1:].tolist()] = 5.0


@breaks("LOGIT-018")
class SetsItsToken(Likelier):
    def change(self, row, token, output):
        row[token] = 50.0


@breaks("LOGIT-019", "LOGIT-201")
class ChangesACopy(Likelier):
    def apply(self, logits, slots, outputs):
        super().apply(logits.clone(), slots, outputs)


@breaks("LOGIT-004")
class TakesNumbersThatAreNone(Biases):
    """NaN is never larger than a bound."""

    def validate(self, sampling):
        given = self.own(sampling)
        if given is None or (isinstance(given, dict) and all(map(self.is_token, given))):
            for bias in (given or {}).values():
                if type(bias) not in (int, float) or bias < -100 or bias > 100:
                    self.refuse()
            return
        raise InputError("no mapping of tokens")


@breaks("LOGIT-004")
class ForgetsThatNumbersHaveASign(Biases):
    """A root of what is below zero is none."""

    examples = ({"5": 2.0},)

    def validate(self, sampling):
        given = self.own(sampling)
        if given is None or (isinstance(given, dict) and all(map(self.is_token, given))):
            for bias in (given or {}).values():
                if type(bias) not in (int, float) or not bias <= 100:
                    self.refuse()
            return
        raise InputError("no mapping of tokens")

    def apply(self, logits, slots, outputs):
        for row, slot in enumerate(slots.tolist()):
            for token, bias in (self.tokens.get(slot) or {}).items():
                logits[row, int(token)] *= torch.tensor(float(bias)).sqrt()


@breaks("LOGIT-020", "LOGIT-010", "LOGIT-014")
class KeepsRequestsInTheClass(Likelier):
    """One dictionary for all instances."""

    all: ClassVar[dict] = {}

    def __init__(self, options=None):
        super().__init__(options)
        self.tokens = self.all


@breaks("LOGIT-021")
class TakesTheFirstRow(Likelier):
    """To look how wide the logits are."""

    def apply(self, logits, slots, outputs):
        assert len(logits[0])
        super().apply(logits, slots, outputs)


@breaks("LOGIT-021")
class HasRoomForThirtyTwo(Likelier):
    """Made once, so that a step allocates nothing."""

    def apply(self, logits, slots, outputs):
        super().apply(logits[:32], slots[:32], outputs[:32])


@breaks("LOGIT-022")
class KeepsTheLastLogits(Likelier):
    """For who may ask."""

    def apply(self, logits, slots, outputs):
        super().apply(logits, slots, outputs)
        self.last = logits


@breaks("LOGIT-022")
class KeepsAllOutputs(Likelier):
    """By their identity."""

    def apply(self, logits, slots, outputs):
        super().apply(logits, slots, outputs)
        self.__dict__.setdefault("seen", []).extend(outputs)


@breaks("LOGIT-023")
class ComparesAllWithAll(Likelier):
    """Each token that came with each that came before it."""

    def change(self, row, token, output):
        spend(1e-8 * len(output) ** 2)
        super().change(row, token, output)


@breaks("LOGIT-101")
class SaysItKeepsTheBest(Likelier):
    changes_argmax = False


@breaks("LOGIT-101")
class SaysThatWhatWasLastStaysTheBest(NoStutter):
    changes_argmax = False


@breaks("LOGIT-201")
class SaysNotThatItKeepsTheBest(Warmer):
    changes_argmax = True


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("processor", [Likelier, Biases, NoRepeat, NoStutter, Counts, Warmer])
def test_sound_processors_pass(processor):
    report = check(processor, suite=LogitsProcessorSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, LogitsProcessorSuite)


def test_each_clause_has_a_mutant_and_each_capability_a_pair():
    assert uncovered(LogitsProcessorSuite, MUTANTS) == set()
    assert not unpaired(LogitsProcessorSuite)


def test_the_example_conforms(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE))
    report = check(
        "logits_processor:ban_tokens",
        ad_hoc={"logits_processor:ban_tokens": "example_ban_token:BanTokens"},
    )
    monkeypatch.delitem(sys.modules, "example_ban_token")
    assert not report.failures, report.text()
