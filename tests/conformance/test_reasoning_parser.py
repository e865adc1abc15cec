"""One broken reasoning parser for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import unicodedata

import pytest

from framework.contracts.reasoning_parser import ReasoningParser, Split
from framework.testing.conformance import check
from framework.testing.conformance.suites.reasoning_parser import ReasoningParserSuite
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

MARK = "$"


class Marked:
    """$why$because."""

    def __init__(self, marks):
        self.marks = marks  # that have come

    @property
    def ended(self):
        return self.marks == 2

    def push(self, text):
        if self.marks == 0 and text.startswith(MARK):
            self.marks, text = 1, text[1:]
        elif self.marks == 0 and text:
            self.marks = 2
        if self.marks != 1:
            return Split(content=text)
        reasoning, mark, content = text.partition(MARK)
        self.marks += len(mark)
        return Split(reasoning, content)

    def finish(self):
        return Split()


class Plain(ReasoningParser):
    """A sound one."""

    example = "$why$because"
    made = Marked

    def stream(self, prompt):
        tail = prompt.rstrip()
        if tail.endswith(MARK):
            return self.made(2 if MARK in tail[:-1] else 1)
        return self.made(0)


class HalfMarked(Marked):
    def __init__(self):
        super().__init__(1)


class First(ReasoningParser):
    """A sound one without a mark that begins the reasoning."""

    example = "why$because"
    made = HalfMarked

    def stream(self, prompt):
        return self.made()


@breaks("REAS-001")
class NoExample(ReasoningParser):
    """Does not say how reasoning is marked."""

    def stream(self, prompt):
        return Marked(0)


@breaks("REAS-001")
class OtherExample(Plain):
    """Says another mark than it reads."""

    example = "#why#because"


class Pieces(Marked):
    def push(self, text):
        if MARK in text[1:]:
            return super().push(text)
        ended, split = self.marks == 1 and text == MARK, super().push(text)
        return Split(reasoning=MARK) if ended else split


@breaks("REAS-010", "REAS-020")
class TakesNoMarkAlone(Plain):
    """Knows the mark only with something beside it."""

    made = Pieces


class Tidy(Marked):
    def push(self, text):
        return super().push(text.replace("it's", "it is"))


@breaks("REAS-011", "REAS-010", "REAS-020")
class Corrects(Plain):
    """Improves what the model says."""

    made = Tidy


class Lower(Marked):
    def push(self, text):
        return super().push(text.lower())


@breaks("REAS-011", "REAS-010", "REAS-020")
class Whispers(Plain):
    """Reads letters of either case alike."""

    made = Lower


class Normal(Marked):
    def push(self, text):
        return super().push(unicodedata.normalize("NFC", text))


@breaks("REAS-011", "REAS-010", "REAS-020")
class Normalizes(Plain):
    """Writes each character in one way, where its piece has all of it."""

    made = Normal


@breaks("REAS-012")
class NeedsTheMark(Plain):
    """Looks for the first mark in the answer alone."""

    def stream(self, prompt):
        return self.made(2 if prompt.count(MARK) == 2 else 0)


@breaks("REAS-013")
class AlwaysThinks(Plain):
    """Takes the end for a beginning."""

    def stream(self, prompt):
        return self.made(1 if prompt.rstrip().endswith(MARK) else 0)


@breaks("REAS-014", "REAS-012", "REAS-013", "REAS-019")
class PromptDecides(Plain):
    """Thinks only where there was a question."""

    def stream(self, prompt):
        return super().stream(prompt) if not prompt or MARK in prompt else self.made(2)


@breaks("REAS-015")
class PromptsEnd(First):
    """Looks for the mark in the prompt, too."""

    def stream(self, prompt):
        stream = super().stream(prompt)
        stream.push(prompt if MARK in prompt else "")
        return stream


class Whole(Marked):
    def __init__(self, marks):
        super().__init__(marks)
        self.held = ""

    def push(self, text):
        self.held += text
        if self.held.count(MARK) < 2:
            return Split()
        held, self.held = self.held, ""
        return super().push(held)


@breaks(
    "REAS-016",
    "REAS-010",
    "REAS-011",
    "REAS-012",
    "REAS-013",
    "REAS-018",
    "REAS-019",
    "REAS-020",
    "REAS-030",
)
class WantsBoth(Plain):
    """Has nothing to say of an output that was cut off."""

    made = Whole


class Half:
    """Reads why%%because, and holds back what may be half a mark."""

    def __init__(self):
        self.held, self.ended = "", False

    def push(self, text):
        if self.ended:
            return Split(content=text)
        reasoning, mark, content = (self.held + text).partition("%%")
        self.ended = bool(mark)
        self.held = "%" if not mark and reasoning.endswith("%") else ""
        return Split(reasoning.removesuffix(self.held), content)

    def finish(self):
        return Split(self.held)


class Forgets(Half):
    def finish(self):
        return Split()


class Halves(First):
    """A sound one, whose mark has two characters."""

    example = "why%%because"
    made = Half


@breaks("REAS-016")
class LosesHalves(Halves):
    """Takes half a mark at the end of an output for a whole one."""

    made = Forgets


class Printable(Marked):
    def push(self, text):
        assert "\x00" not in text
        return super().push(text)


@breaks("REAS-017", "REAS-011")
class FearsOddCharacters(Plain):
    """Ends its strings as C does."""

    made = Printable


class Eager(Marked):
    @property
    def ended(self):
        return self.marks > 0


@breaks("REAS-018")
class EndsTooEarly(Plain):
    """Says that reasoning has ended as soon as it has begun."""

    made = Eager


@breaks("REAS-019")
class CountsMarks(Plain):
    """Looks at the ids alone, those of the prompt among them."""

    def reasoning_ended(self, prompt_ids, output_ids, tokenizer):
        return [*prompt_ids, *output_ids].count(ord(MARK)) > 1


@breaks("REAS-020")
class OneState(Plain):
    """Keeps the state of the output that was begun last."""

    def stream(self, prompt):
        one = self.one = super().stream(prompt)
        parser, push = self, one.push

        def shared(text):
            one.marks = parser.one.marks
            split = push(text)
            parser.one.marks = one.marks
            return split

        one.push = shared
        return one


@breaks("REAS-021", "REAS-020")
class GoesOn(Plain):
    """One state for all prompts that are alike."""

    def __init__(self, options=None):
        super().__init__(options)
        self.states = {}

    def stream(self, prompt):
        return self.states.setdefault(prompt, super().stream(prompt))


class Wordy(Marked):
    thought = 0

    def push(self, text):
        if self.marks == 1 and not self.thought and text.startswith(MARK):
            text = text[1:]
        split = super().push(text)
        self.thought += len(split.reasoning)
        return split


@breaks("REAS-022", "REAS-010", "REAS-020")
class ThinksSomething(Plain):
    """Takes no reasoning without a word for an end."""

    made = Wordy


class AtTheEnd(Marked):
    def __init__(self, marks):
        super().__init__(marks)
        self.reasoning, self.content = [], []

    def push(self, text):
        split = super().push(text)
        self.reasoning.append(split.reasoning)
        self.content.append(split.content)
        return Split()

    def finish(self):
        return Split("".join(self.reasoning), "".join(self.content))


@breaks("REAS-030", "REAS-018")
class WaitsForTheEnd(Plain):
    """Tells everything at once."""

    made = AtTheEnd


class Rereading(Marked):
    seen = ""

    def push(self, text):
        self.seen += text
        spend(len(self.seen) * 1e-8)
        return super().push(text)


@breaks("REAS-031")
class ReadsAgain(Plain):
    """Looks at the whole text with every piece."""

    made = Rereading


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, ReasoningParserSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(ReasoningParserSuite, MUTANTS) == set()
    assert unpaired(ReasoningParserSuite) == set()


@pytest.mark.parametrize("plugin", [Plain, First, Halves])
def test_a_sound_parser_conforms(plugin):
    report = check(plugin, suite=timed(ReasoningParserSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("name", ["qwen3", "deepseek_r1"])
def test_the_built_in_parsers_conform(name):
    report = check(f"reasoning_parser:{name}")
    assert not report.failures, report.text()
