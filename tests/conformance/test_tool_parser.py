"""One broken tool parser for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import json

import pytest

from framework.contracts.tool_parser import CallArguments, CallBegins, Text, ToolParser
from framework.testing.conformance import check
from framework.testing.conformance.suites.tool_parser import ToolParserSuite
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)


class Lines:
    """Finds lines that read CALL name {json}."""

    first = 0

    def __init__(self, names):
        self.names, self.held, self.count = names, [], self.first

    def push(self, text):
        first, *more = text.split("\n")
        self.held.append(first)
        found = []
        for piece in more:
            found += self.line("".join(self.held), "\n")
            self.held = [piece]
        return found

    def finish(self):
        held, self.held = self.held, []
        return self.line("".join(held), "")

    def line(self, text, end):
        word, _, rest = text.partition(" ")
        name, _, arguments = rest.partition(" ")
        if word == "CALL" and name in self.names and self.is_object(arguments):
            self.count += 1
            return self.call(self.count - 1, name, arguments)
        return self.text(text + end)

    def call(self, index, name, arguments):
        return [CallBegins(index, name), CallArguments(index, arguments)]

    def text(self, text):
        return [Text(text)] if text else []

    def is_object(self, text):
        try:
            return isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            return False


class Plain(ToolParser):
    """A sound one."""

    example = 'CALL weather {"city": "Paris"}'
    made = Lines

    def stream(self, tools):
        return self.made(self.names(tools))

    def names(self, tools):
        functions = [tool.get("function") or {} for tool in tools]
        return {function.get("name") for function in functions} - {None}


@breaks("TOOL-001")
class NoExample(ToolParser):
    """Does not say how a call is written."""

    def stream(self, tools):
        return Lines(set())


@breaks("TOOL-001")
class OtherExample(Plain):
    """Writes its calls in another way than it reads them."""

    example = 'call weather({"city": "Paris"})'


class Lazy(Lines):
    def finish(self):
        yield from super().finish()


@breaks("TOOL-001")
class AnswersOnce(Plain):
    """With events that can be neither counted nor read again."""

    made = Lazy


class PieceByPiece(Lines):
    def push(self, text):
        found = super().push(text)
        return found if self.held == [""] else [*found, *self.finish()]


@breaks("TOOL-010", "TOOL-020", "TOOL-021")
class TakesPiecesForLines(Plain):
    """As if each piece were whole."""

    made = PieceByPiece


class FromOne(Lines):
    first = 1


@breaks("TOOL-011")
class CountsFromOne(Plain):
    """As people do."""

    made = FromOne


class Stripping(Lines):
    def text(self, text):
        return [Text(text.rstrip(" ").replace("\n", ""))]


@breaks("TOOL-012", "TOOL-013", "TOOL-017", "TOOL-014")
class Strips(Plain):
    """Tidies up what the model says."""

    made = Stripping


class Dropping(Lines):
    def finish(self):
        text = "".join(self.held)
        cut = text.startswith("CALL weather {") and not self.is_object(text[13:])
        return [] if cut else super().finish()


class Neat(Lines):
    def text(self, text):
        return super().text(text.replace("\t", " "))


@breaks("TOOL-012")
class Neatens(Plain):
    """Has an eye for white space."""

    made = Neat


class Anyhow(Lines):
    def __init__(self, names):
        super().__init__({name for own in names if own for name in (own, own.lower())})


@breaks("TOOL-014")
class IgnoresCase(Plain):
    """Knows what the model means."""

    made = Anyhow


class Rewriting(Lines):
    def call(self, index, name, arguments):
        return super().call(index, name, json.dumps(json.loads(arguments)))


@breaks("TOOL-018")
class Rewrites(Plain):
    """Reads the arguments, and writes them again."""

    made = Rewriting


@breaks("TOOL-013", "TOOL-012")
class DropsHalfCalls(Plain):
    """Would rather say nothing than half a call."""

    made = Dropping


class All:
    def __contains__(self, name):
        return True


@breaks("TOOL-014", "TOOL-022", "TOOL-024", "TOOL-015")
class TrustsTheModel(Plain):
    """Calls whatever the model wants."""

    def names(self, tools):
        super().names(tools)
        return All()


class NothingBehind(Lines):
    def text(self, text):
        return super().text(text) if not self.count else []


@breaks("TOOL-015")
class StopsAtTheCall(Plain):
    """Takes the call for the end."""

    made = NothingBehind


class Recursive(Lines):
    def is_object(self, text):
        try:
            return isinstance(json.loads(text), dict)
        except ValueError:
            return False


@breaks("TOOL-016")
class FearsNoDepth(Plain):
    """Reads JSON as deep as it goes."""

    made = Recursive


class Polite(Lines):
    spoken = False

    def push(self, text):
        self.spoken = self.spoken or bool(text)
        return super().push(text)

    def finish(self):
        return super().finish() if self.spoken else [Text("Nothing.")]


@breaks("TOOL-017", "TOOL-012", "TOOL-013", "TOOL-020")
class NeverSaysNothing(Plain):
    """Speaks where the model is silent."""

    made = Polite


@breaks("TOOL-020")
class Remembers(Plain):
    """Keeps the state of the output that was begun last."""

    held = ()

    def stream(self, tools):
        stream = super().stream(tools)
        self.held = stream.held
        parser = self

        class Shared(Lines):
            def push(self, text):
                self.held = parser.held
                found = super().push(text)
                parser.held = self.held
                return found

        return Shared(stream.names)


@breaks("TOOL-021", "TOOL-020", "TOOL-022")
class GoesOn(Plain):
    """One state for all."""

    state = None

    def stream(self, tools):
        if self.state is None:
            self.state = super().stream(tools)
        self.state.names = self.names(tools)
        return self.state


@breaks("TOOL-022")
class Learns(Plain):
    """Knows the tools of all who have asked."""

    def __init__(self, options=None):
        super().__init__(options)
        self.known = set()

    def names(self, tools):
        self.known |= super().names(tools)
        return self.known


@breaks("TOOL-023")
class Sorts(Plain):
    """Brings the tools into an order of its own."""

    def stream(self, tools):
        tools.sort(key=lambda tool: str(tool.get("function")))
        return super().stream(tools)


@breaks("TOOL-024")
class FunctionsOnly(Plain):
    """Knows no other tools."""

    def names(self, tools):
        return {tool["function"]["name"] for tool in tools}


class Waiting(Lines):
    def __init__(self, names):
        super().__init__(names)
        self.pieces = []

    def push(self, text):
        self.pieces.append(text)
        return []

    def finish(self):
        whole = super().push("".join(self.pieces))
        return [*whole, *super().finish()]


@breaks("TOOL-030")
class WaitsForTheEnd(Plain):
    """Reads whole outputs."""

    made = Waiting


class Rereading(Lines):
    def push(self, text):
        found = super().push(text)
        self.held = ["".join(self.held)]
        spend(len(self.held[0]) * 1e-8)
        return found


@breaks("TOOL-031")
class ReadsAgain(Plain):
    """Looks at the whole line with every piece."""

    made = Rereading


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, ToolParserSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(ToolParserSuite, MUTANTS) == set()
    assert unpaired(ToolParserSuite) == set()


def test_a_sound_parser_conforms():
    report = check(Plain, suite=timed(ToolParserSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "mistral"])
def test_the_built_in_parsers_conform(name):
    report = check(f"tool_parser:{name}")
    assert not report.failures, report.text()
