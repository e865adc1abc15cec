"""What the clauses for structured output share: masks as sets, random outputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from framework.contracts.base import Supported
from framework.contracts.structured_output import STRUCTURES, Grammar, Matcher, StructuredOutput
from framework.contracts.structures import query_of
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.structured_examples import EXAMPLES, VOCABULARY, Example


def allowed(matcher: Matcher) -> set[int]:
    """The tokens of its mask."""
    row = np.full(VOCABULARY.words, 0xFFFFFFFF, np.uint32)
    matcher.fill_bitmask(row)
    return tokens_of(row)


def tokens_of(row: npt.NDArray[np.uint32]) -> set[int]:
    """Those whose bits are set."""
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    return {int(token) for token in np.flatnonzero(bits)}


def takes(matcher: Matcher, text: str) -> int:
    """How many bytes of a text it takes, one by one."""
    data = text.encode()
    return next((at for at, byte in enumerate(data) if not matcher.accept(byte)), len(data))


class StructuredOutputBase(Suite):
    """walk: tokens of a random output."""

    kind = "structured_output"
    ordinary = ("matchers_are_apart",)
    walk = 24

    def served(self, plugin: StructuredOutput) -> Iterator[Example]:
        """Examples that the plugin covers."""
        found = [e for e in EXAMPLES if isinstance(plugin.answer(query_of(e.grammar)), Supported)]
        expect(found, "it covers none of the examples of the kit", expected=", ".join(STRUCTURES))
        yield from found

    def matcher(self, plugin: StructuredOutput, grammar: Grammar) -> Matcher:
        """A new one."""
        return plugin.load(plugin.compile(grammar, VOCABULARY), VOCABULARY).matcher()

    def walks(self, count: int) -> Iterator[tuple[Case, Example, Matcher]]:
        """Random cases with a covered example."""
        plugin = self.new()
        covered = list(self.served(plugin))
        for case in self.cases(count * len(covered)):
            example = covered[case.index % len(covered)]
            case.note(structure=example.grammar.structure, text=repr(example.grammar.text))
            yield case, example, self.matcher(plugin, example.grammar)

    @staticmethod
    def pick(case: Case, mask: set[int]) -> int:
        """One of the tokens of a mask."""
        return int(case.rng.choice(sorted(mask)))
