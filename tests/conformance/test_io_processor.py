"""One broken IO processor for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import unicodedata

import pytest

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Reading, known_keys
from framework.errors import InputError, RequestError
from framework.testing.conformance import check
from framework.testing.conformance.suites.io_processor import IOProcessorSuite
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

READS = ("IO-009", "IO-003", "IO-006", "IO-007", "IO-010", "IO-011", "IO-012", "IO-013", "IO-014")


class Sound(IOProcessor):
    """Continues the words of a text, each by itself."""

    examples = ({"text": "one two"}, {"text": "three"})

    def words(self, request):
        text = known_keys(request, {"text": None})["text"]
        if not isinstance(text, str) or not text.split():
            raise InputError("no words", parameter="text", expected="a text with words")
        return text.split()

    def read(self, request, place):
        words = self.words(request)
        if place.limit is not None:
            place.limit.check(request["text"])
        prompts = [EnginePrompt(ids=place.tokenizer.encode(w), text=w) for w in words]
        return Reading(prompts=tuple(prompts))

    def answer(self, request, reading, outputs):
        return [output.outputs[0].text for output in outputs]


@breaks("IO-001")
class Paints(Sound):
    """Asks for what no engine does."""

    task = "paint"


@breaks("IO-002", "IO-004", *READS)
class Array(Sound):
    """Hands over the ids as a tuple."""

    def read(self, request, place):
        [*prompts] = super().read(request, place).prompts
        return Reading(prompts=tuple(EnginePrompt(ids=tuple(p.ids)) for p in prompts))


@breaks("IO-002")
class Hollow(Sound):
    """Has prompts of nothing."""

    def read(self, request, place):
        reading = super().read(request, place)
        return Reading(prompts=tuple(EnginePrompt(ids=[], text=p.text) for p in reading.prompts))


@breaks("IO-002", "IO-003", "IO-004", "IO-005", "IO-006", "IO-007", "IO-008", *READS)
class SaysNothing(Sound):
    """Has no examples."""

    examples = ()


@breaks("IO-003", "IO-002", "IO-006", "IO-007", "IO-010", "IO-011", "IO-012", "IO-013")
class Takes(Sound):
    """Takes the text out of the request."""

    def read(self, request, place):
        reading = super().read(request, place)
        request["read"] = True
        return reading


@breaks("IO-003", "IO-004", "IO-005")
class Completes(Sound):
    """Puts in what is missing."""

    def read(self, request, place):
        if isinstance(request, dict):
            request.setdefault("text", "")
        return super().read(request, place)


@breaks("IO-004", "IO-005")
class Trusts(Sound):
    """Expects what its documentation says."""

    def words(self, request):
        return request["text"].split() or [" "]


@breaks("IO-005")
class Blames(Sound):
    """Does not say what is wrong."""

    def words(self, request):
        try:
            return super().words(request)
        except InputError as error:
            raise InputError(error.message) from None


@breaks("IO-006", "IO-007", "IO-012")
class Counts(Sound):
    """Marks the prompts with a number of its own."""

    number = 0

    def read(self, request, place):
        reading = super().read(request, place)
        self.number += 1
        [first, *rest] = reading.prompts
        return Reading(prompts=(EnginePrompt(ids=first.ids, salt=str(self.number)), *rest))


@breaks("IO-007", "IO-008")
class Keeps(Sound):
    """Uses the tokenizer that it was first given."""

    tokenizer = None

    def read(self, request, place):
        self.tokenizer = self.tokenizer or place.tokenizer
        words = self.words(request)
        if place.limit is not None:
            place.limit.check(request["text"])
        prompts = [EnginePrompt(ids=self.tokenizer.encode(w), text=w) for w in words]
        return Reading(prompts=tuple(prompts))


@breaks("IO-008")
class Eager(Sound):
    """Looks at the limit when the work is done."""

    def read(self, request, place):
        words = self.words(request)
        prompts = [EnginePrompt(ids=place.tokenizer.encode(w), text=w) for w in words]
        if place.limit is not None:
            place.limit.check(request["text"])
        return Reading(prompts=tuple(prompts))


@breaks("IO-010", "IO-003", "IO-012", "IO-013", "IO-011", "IO-014")
class OnePrompt(Sound):
    """Answers requests of one prompt only."""

    def answer(self, request, reading, outputs):
        [output] = outputs
        return output.outputs[0].text


@breaks("IO-014")
class BlamesTheEngine(Sound):
    """Takes every output without text for a fault."""

    def answer(self, request, reading, outputs):
        if any(output.outputs[0].finish_reason == "error" for output in outputs):
            raise RequestError("the engine failed")
        return super().answer(request, reading, outputs)


@breaks("IO-011", "IO-014")
class Hopes(Sound):
    """Takes every output for one that brought tokens."""

    def answer(self, request, reading, outputs):
        return [output.outputs[0].token_ids[-1] for output in outputs]


@breaks("IO-012")
class Remembers(Sound):
    """Answers the request that it read last."""

    last = None

    def read(self, request, place):
        self.last = super().read(request, place)
        return self.last

    def answer(self, request, reading, outputs):
        return [prompt.text for prompt in self.last.prompts]


@breaks("IO-013", "IO-012")
class Empties(Sound):
    """Takes the texts out of the outputs."""

    def answer(self, request, reading, outputs):
        return [outputs.pop(0).outputs[0].text for _ in reading.prompts]


@breaks("IO-009")
class Folds(Sound):
    """So that more of what is asked is asked alike."""

    def words(self, request):
        return [word.casefold() for word in super().words(request)]


@breaks("IO-009")
class Composes(Sound):
    """Has one form for each letter."""

    def words(self, request):
        return [unicodedata.normalize("NFC", word) for word in super().words(request)]


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, IOProcessorSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(IOProcessorSuite, MUTANTS) == set()
    assert unpaired(IOProcessorSuite) == set()


def test_a_sound_processor_conforms():
    report = check(Sound, suite=IOProcessorSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("name", ["text", "chat", "embedding"])
def test_the_built_in_processors_conform(name):
    report = check(f"io_processor:{name}")
    assert not report.failures, report.text()
