"""The suite of kind `tool_parser`: whatever models write, whole and in pieces.

How a call is written it learns from the plugin's `example`, with other names and values in it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from framework.contracts.tool_parser import (
    CallArguments,
    CallBegins,
    Text,
    ToolEvent,
    ToolParser,
)
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.text_parts import (
    AGAIN,
    LONG,
    MARKS,
    ODD_PROSE,
    cuts,
    mixture,
    note_text,
    prose,
    time_of_push,
)
from framework.testing.conformance.suites.tool_parts import Found, events_of, gather, tools

NAME, VALUE = "weather", "Paris"
STREAM = ("stream",)


class ToolParserSuite(Suite):
    """push_budget: seconds that a push of one character may take, in the median."""

    kind = "tool_parser"
    ordinary = ("cuts_change_nothing",)
    push_budget: ClassVar[float] = 0.001

    def written(self, name: str = NAME, value: str = VALUE) -> str:
        """A call as models write it."""
        example: str = getattr(self.target.load(), "example", "")
        expect(example, "the class has no example", expected=f"a call of {NAME} with {VALUE}")
        return example.replace(NAME, name).replace(VALUE, value)

    def read(self, pieces: Sequence[str], *names: str) -> Found:
        """What a new instance finds; names: of the tools, by default the example's own."""
        parser: ToolParser = self.new()
        return gather(events_of(parser.stream(tools(*(names or (NAME, "clock")))), pieces))

    def texts(self, case: Case) -> Iterable[str]:
        """Calls, broken calls, marks and words, in any order."""
        own = (self.written(), self.written("clock"), self.written("nothing"))
        for _ in range(12):
            yield mixture(case, own, int(case.rng.integers(1, 7)))

    @clause(
        "TOOL-001",
        "the example is a call of weather with {city: Paris}, and nothing else",
        layer=Layer.CONSTRUCT,
        of=STREAM,
    )
    def the_example_is_a_call(self) -> None:
        found = self.read([self.written()])
        try:
            values = [json.loads(text) for text in found.arguments.values()]
        except ValueError:
            values = []
        expect(
            [*found.names.values()] == [NAME] and values == [{"city": VALUE}] and not found.text,
            "the example is not read as one call",
            expected='weather({"city": "Paris"}), and no text',
            found=found,
        )

    @clause("TOOL-010", "a text is read alike wherever it is cut", of=STREAM)
    def cuts_change_nothing(self) -> None:
        for case in self.cases(6):
            for text in self.texts(case):
                whole = self.read([text])
                for pieces in cuts(case, text):
                    note_text(case, text, pieces)
                    found = self.read(pieces)
                    expect(found == whole, "cut, it is another", expected=whole, found=found)

    @clause("TOOL-011", "calls are numbered from 0 on, and begin before their arguments", of=STREAM)
    def calls_are_numbered(self) -> None:
        for case in self.cases(6):
            several = "\n".join([self.written(), self.written("clock"), self.written()])
            for text in (several, *self.texts(case)):
                note_text(case, text)
                parser: ToolParser = self.new()
                begun = 0
                for event in events_of(parser.stream(tools(NAME, "clock")), [text]):
                    if isinstance(event, CallBegins):
                        expect(event.index == begun, "a wrong index", expected=begun, found=event)
                        begun += 1
                    elif isinstance(event, CallArguments):
                        expect(event.index < begun, "arguments of no call", found=event)
                    else:
                        expect(isinstance(event, Text), "no event of the contract", found=event)

    @clause("TOOL-012", "what holds no call comes out as it went in", of=STREAM)
    def text_stays(self) -> None:
        for case in self.cases(6):
            for text in (prose(case, 8), " \n ", ODD_PROSE, *self.texts(case)):
                note_text(case, text)
                found = self.read([text])
                expect(
                    found.names or found.text == text,
                    "text is lost or changed",
                    expected=json.dumps(text),
                    found=found,
                )

    @clause("TOOL-013", "nothing is lost of a call that is cut off, wherever that is", of=STREAM)
    def cut_calls_stay(self) -> None:
        for case in self.cases(1):
            whole = self.written(value="Reykjavik")
            begins = whole.index("Reykjavik")
            for end in range(len(whole)):
                text = whole[:end]
                note_text(case, text)
                found = self.read([text])
                if not found.names:
                    expect(found.text == text, "it is no call, and no text", found=found)
                value = whole[begins : min(end, begins + len("Reykjavik"))]
                expect(value in found.everything, f"{value!r} is lost", found=found)

    @clause("TOOL-014", "a call of a tool that the request has not is text", of=STREAM)
    def unknown_tools_are_text(self) -> None:
        for case in self.cases(1):
            text = self.written("delete_all")
            note_text(case, text)
            for names in ((NAME,), ("delete",), ("delete_all_things",), ("Delete_All",)):
                found = self.read([text], *names)
                expect(not found.names, "it is called", expected="text", found=found)
                expect(found.text == text, "the text is another", expected=text, found=found)

    @clause("TOOL-015", "what the model says before and after a call stays", of=STREAM)
    def prose_stays(self) -> None:
        for case in self.cases(4):
            before, after = prose(case, 5), prose(case, 5)
            for space in (" ", "\n", "\n\n"):
                text = f"{before}{space}{self.written()}{space}{after}"
                note_text(case, text)
                found = self.read([text])
                expect(
                    before in found.text and after in found.text and VALUE in found.everything,
                    "words are lost",
                    expected=f"{before!r}, the call, and {after!r}",
                    found=found,
                )

    @clause("TOOL-016", "any text is taken: deep, long, or of odd characters", of=STREAM)
    def any_text_is_taken(self) -> None:
        head, _, tail = self.written().partition(VALUE)
        deep = "[" * 20_000
        odd = "\x00\x1b\u2028\ufeff\ufffd\U0010ffff"
        for case in self.cases(1):
            for inner in (deep, odd, '"' * 999, "\\" * 999, f'", "a": {deep}', "9" * 9000):
                for text in (inner, head + inner, head + inner + tail, *(m + inner for m in MARKS)):
                    note_text(case, f"{text[:60]}...")
                    self.read([text])

    @clause("TOOL-017", "a push of nothing, and an output of nothing, bring nothing", of=STREAM)
    def nothing_brings_nothing(self) -> None:
        for case in self.cases(1):
            note_text(case, "")
            for pieces in ([], [""], ["", ""]):
                found = self.read(pieces)
                expect(found == Found(), "something of nothing", found=found)

    @clause("TOOL-018", "arguments are the text that the model wrote", of=STREAM)
    def arguments_are_not_rewritten(self) -> None:
        plain = f'"{VALUE}"'
        for case in self.cases(1 if plain in self.written() else 0):  # else it writes no JSON
            for value in (r'"P\u0061ris\/x"', '"x",  "n" : 1.50,"n":2', '"\u4e2d e\u0301"'):
                text = self.written().replace(plain, value)
                note_text(case, text)
                found = self.read([text])
                expect(
                    not found.names or value in "".join(found.arguments.values()),
                    "they are rewritten",
                    expected=value,
                    found=found,
                )

    @clause("TOOL-020", "outputs that run beside each other share no state", of=STREAM)
    def streams_are_apart(self) -> None:
        for case in self.cases(2):
            texts = [f"{prose(case, 3)}\n", self.written(), self.written("clock", "Oslo")]
            parser: ToolParser = self.new()
            streams = [parser.stream(tools(NAME, "clock")) for _ in texts]
            events: list[list[ToolEvent]] = [[] for _ in texts]
            for place in range(max(map(len, texts))):
                for index, text in enumerate(texts):
                    events[index] += streams[index].push(text[place : place + 1])
            for index, text in enumerate(texts):
                note_text(case, text)
                events[index] += streams[index].finish()
                alone, found = self.read([text]), gather(events[index])
                expect(found == alone, "beside others it is another", expected=alone, found=found)

    @clause("TOOL-021", "an output that was given up leaves nothing behind", of=STREAM)
    def streams_begin_anew(self) -> None:
        for case in self.cases(1):
            text = self.written()
            for end in range(len(text)):
                note_text(case, text[:end])
                parser: ToolParser = self.new()
                parser.stream(tools(NAME)).push(text[:end])
                found = gather(events_of(parser.stream(tools(NAME)), [text]))
                alone = self.read([text], NAME)
                expect(found == alone, "the next is another", expected=alone, found=found)

    @clause("TOOL-022", "each output has the tools of its own request", of=STREAM)
    def tools_are_apart(self) -> None:
        for case in self.cases(1):
            parser: ToolParser = self.new()
            one, other, none = (parser.stream(tools(*n)) for n in ((NAME,), ("clock",), ()))
            for stream, calls in ((one, [NAME]), (other, []), (none, [])):
                note_text(case, self.written())
                found = gather(events_of(stream, [self.written()]))
                expect([*found.names.values()] == calls, "other tools", expected=calls, found=found)

    @clause("TOOL-023", "the tools stay as they were", of=STREAM)
    def tools_are_not_changed(self) -> None:
        given = tools(NAME, "clock")
        before = copy.deepcopy(given)
        parser: ToolParser = self.new()
        events_of(parser.stream(given), [self.written()])
        expect(given == before, "the tools were changed", expected=before, found=given)

    @clause("TOOL-024", "entries of tools that are no functions are taken", of=STREAM)
    def odd_tools_are_taken(self) -> None:
        odd: list[Mapping[str, Any]] = [
            *({}, {"type": "web_search"}, {"function": None}, {"function": {}}),
            {"type": "function", "function": {"name": None}},
        ]
        for case in self.cases(1):
            for given in (odd, [*odd, *tools(NAME)]):
                case.note(tools=json.dumps(given))
                parser: ToolParser = self.new()
                found = gather(events_of(parser.stream(given), [self.written()]))
                expect(len(found.names) == len(given) - len(odd), "other calls", found=found)

    @clause("TOOL-030", "text is told while it comes", must=False, of=STREAM)
    def text_is_told_early(self) -> None:
        for case in self.cases(1):
            text = "\n".join(prose(case, 10) for _ in range(20))
            parser: ToolParser = self.new()
            stream = parser.stream(tools(NAME))
            told = gather(event for piece in text for event in stream.push(piece)).text
            expect(
                2 * len(told) > len(text),
                "text that can be no call is held back, and a client sees nothing",
                expected="all but what may begin a call",
                found=f"{len(told)} of {len(text)} characters before the end",
            )

    @clause(
        "TOOL-031",
        "a push takes time by the length of the piece, not of the text so far",
        must=False,
        of=STREAM,
    )
    def pushes_are_quick(self) -> None:
        head = self.written().partition(VALUE)[0]
        for text, what in (("x" * LONG, "long text"), (head + "x" * LONG, "long arguments")):
            parser: ToolParser = self.new()
            seconds = time_of_push(self.now, parser.stream(tools(NAME)).push, text)
            self.expect_quick(seconds, self.push_budget, f"a push is slow after {what}", AGAIN)
