"""What the clauses of reasoning parsers work with: the marks of the plugin's `example`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from framework.contracts.reasoning_parser import ReasoningParser, ReasoningStream
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.text_parts import ODD_PROSE, mixture

WHY, BECAUSE = "why", "because"


class Found(NamedTuple):
    """Both parts of an output."""

    reasoning: str
    content: str

    def __str__(self) -> str:
        return f"reasoning {json.dumps(self.reasoning)}, content {json.dumps(self.content)}"


def read(stream: ReasoningStream, pieces: Iterable[str]) -> Found:
    """Everything of an output."""
    splits = [*(stream.push(piece) for piece in pieces), stream.finish()]
    return Found(
        "".join(split.reasoning for split in splits), "".join(split.content for split in splits)
    )


class ReasoningBase(Suite):
    """push_budget: seconds that a push of one character may take, in the median.  marks_begin: a
    mark begins the reasoning, so that a template may write it into the prompt."""

    kind = "reasoning_parser"
    capabilities = ("marks_begin",)
    ordinary = ("cuts_change_nothing",)
    push_budget: ClassVar[float] = 0.001

    def declared(self) -> frozenset[str]:
        """`marks_begin` where the example begins with a mark."""
        return frozenset(self.capabilities) if self.marks()[0] else frozenset()

    def marks(self) -> tuple[str, str, str]:
        """What stands before the reasoning, between it and the answer, and behind that."""
        example: str = getattr(self.target.load(), "example", "")
        expect(example, "the class has no example", expected=f"an output with {WHY} and {BECAUSE}")
        before, _, rest = example.partition(WHY)
        between, _, after = rest.partition(BECAUSE)
        return before, between, after

    def written(self, reasoning: str = WHY, content: str = BECAUSE) -> str:
        """An output as models write it."""
        before, between, after = self.marks()
        return "".join((before, reasoning, between, content, after))

    def stream(self, prompt: str = "") -> ReasoningStream:
        """A stream of a new instance."""
        parser: ReasoningParser = self.new()
        return parser.stream(prompt)

    def texts(self, case: Case) -> Iterable[str]:
        """Whole outputs, broken ones, marks and words, in any order."""
        own = (self.written(), *(mark for mark in self.marks() if mark))
        for _ in range(10):
            yield mixture(case, own, int(case.rng.integers(1, 7)))

    def odd_prose(self) -> str:
        """Without what would be a mark."""
        odd = ODD_PROSE
        for mark in filter(None, self.marks()):
            odd = odd.replace(mark, "|")
        return odd

    def words(self, text: str) -> list[str]:
        """Of a text without its marks."""
        for mark in filter(str.strip, self.marks()):
            text = text.replace(mark.strip(), " ")
        return text.split()
