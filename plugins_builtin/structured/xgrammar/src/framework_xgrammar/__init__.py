"""Structured output by XGrammar: a pushdown automaton, most masks of which are made before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.contracts.json_formats import PATTERNS
from framework.contracts.structured_output import (
    CompiledGrammar,
    Coverage,
    Grammar,
    OfVocabulary,
    StructuredOutput,
    Vocabulary,
)

if TYPE_CHECKING:
    from framework_xgrammar.matching import Tokens

_KEYWORDS = (
    *("$ref", "$ref:recursive", "additionalProperties", "anyOf", "const", "enum", "format"),
    *("items", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "oneOf"),
    *("pattern", "prefixItems", "properties", "required", "type"),
)


class XGrammar(StructuredOutput):
    """A grammar that compiles is its automaton, written down."""

    libraries = ("xgrammar",)
    coverage = Coverage(
        structures=frozenset(
            ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
        ),
        dialects=frozenset(("ebnf", "tags", "format")),
        keywords=frozenset(_KEYWORDS),
        formats=frozenset(PATTERNS),
    )

    def __init__(self, options: object = None) -> None:
        super().__init__()
        self._tokens = OfVocabulary(_tokens)

    def check(self, grammar: Grammar) -> None:
        from framework_xgrammar.sources import checked

        checked(grammar)

    def compile(self, grammar: Grammar, vocabulary: Vocabulary) -> bytes:
        from framework_xgrammar.sources import checked

        json = grammar.structure in ("json", "json_object")
        return self._tokens(vocabulary).compile(checked(grammar), json=json)

    def load(self, compiled: bytes, vocabulary: Vocabulary) -> CompiledGrammar:
        return self._tokens(vocabulary).load(compiled)


def _tokens(vocabulary: Vocabulary) -> Tokens:
    """The library's view of it."""
    from framework_xgrammar.matching import Tokens

    return Tokens(vocabulary)
