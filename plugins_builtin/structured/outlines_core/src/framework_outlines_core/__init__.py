"""Structured output by outlines-core: everything is a regular expression, indexed by its states."""

from __future__ import annotations

from framework.contracts.structured_output import (
    CompiledGrammar,
    Coverage,
    Grammar,
    StructuredOutput,
    Vocabulary,
)

_KEYWORDS = (
    *("$ref", "additionalProperties", "anyOf", "const", "enum", "format", "items", "maxItems"),
    *("maxLength", "minItems", "minLength", "prefixItems", "properties", "required", "type"),
)


class OutlinesCore(StructuredOutput):
    """A grammar that compiles is its expression with the index of its states."""

    libraries = ("outlines_core",)
    coverage = Coverage(
        structures=frozenset(("json", "regex", "choice")),
        keywords=frozenset(_KEYWORDS),
        formats=frozenset(("date", "date-time", "ipv4", "time", "uuid")),
    )

    def check(self, grammar: Grammar) -> None:
        from framework_outlines_core.expressions import checked

        checked(grammar)

    def compile(self, grammar: Grammar, vocabulary: Vocabulary) -> bytes:
        from framework_outlines_core.expressions import checked
        from framework_outlines_core.matching import indexed

        return indexed(checked(grammar), vocabulary)

    def load(self, compiled: bytes, vocabulary: Vocabulary) -> CompiledGrammar:
        from framework_outlines_core.matching import LoadedIndex

        return LoadedIndex(compiled, vocabulary)
