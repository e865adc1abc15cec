"""Structured output by llguidance, which parses while it goes and bounds what a step may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.contracts.structured_output import (
    CompiledGrammar,
    Coverage,
    Grammar,
    OfVocabulary,
    StructuredOutput,
    Vocabulary,
)

if TYPE_CHECKING:
    from framework_llguidance.matching import Tokens

_KEYWORDS = (
    *("$ref", "$ref:recursive", "additionalItems", "additionalProperties", "allOf", "anyOf"),
    *("const", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems"),
    *("maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties"),
    *("minimum", "multipleOf", "oneOf", "pattern", "patternProperties", "prefixItems"),
    *("properties", "required", "type"),
)
_FORMATS = (
    *("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"),
)

_BYTES = Vocabulary(tokens=(*(bytes([value]) for value in range(256)), b""), eos_ids=(256,))
"""What can begin over single bytes can over any tokens."""


class LLGuidance(StructuredOutput):
    """A grammar that compiles is its source: what takes time is done while it runs, by limits."""

    libraries = ("llguidance",)
    coverage = Coverage(
        structures=frozenset(
            ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
        ),
        dialects=frozenset(("ebnf", "lark", "tags")),
        keywords=frozenset(_KEYWORDS),
        formats=frozenset(_FORMATS),
    )

    def __init__(self, options: object = None) -> None:
        super().__init__()
        self._tokens = OfVocabulary(_tokens)

    def check(self, grammar: Grammar) -> None:
        from framework_llguidance.sources import checked

        self._tokens(_BYTES).check(checked(grammar))

    def compile(self, grammar: Grammar, vocabulary: Vocabulary) -> bytes:
        from framework_llguidance.sources import checked

        source = checked(grammar)
        self._tokens(vocabulary).check(source)
        return source.encode()

    def load(self, compiled: bytes, vocabulary: Vocabulary) -> CompiledGrammar:
        return self._tokens(vocabulary).load(compiled.decode())


def _tokens(vocabulary: Vocabulary) -> Tokens:
    """The library's view of it."""
    from framework_llguidance.matching import Tokens

    return Tokens(vocabulary)
