"""From a grammar to XGrammar's own.  What it would ignore it says on standard error only: that is
read, and the grammar refused."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xgrammar import Grammar as Automaton
from xgrammar import StructuralTag, StructuralTagItem

from framework.contracts.json_formats import PATTERNS, with_patterns
from framework.contracts.structured_output import WHITE_SPACE, Grammar
from framework.contracts.structures import query_of, schemas_in_tag, schemas_of
from framework.errors import InputError, UnsupportedError
from framework_xgrammar.ignored import check_read
from framework_xgrammar.patterns import rewritten


def checked(grammar: Grammar) -> Automaton:
    """The library's grammar.  Raises InputError or UnsupportedError."""
    try:
        _check_ignored(grammar)
        with _no_warnings():
            return _automaton(grammar)
    except (InputError, UnsupportedError):
        raise
    except Exception as error:  # RuntimeError, ValidationError, KeyError ...
        text = _plain(str(error)) or type(error).__name__
        kind = UnsupportedError if "not support" in text.lower() else InputError
        raise kind(text) from None


def _check_ignored(grammar: Grammar) -> None:
    """What the library leaves out without a word."""
    if (
        grammar.structure == "structural_tag"
        and {"maxLength", "minLength"} & query_of(grammar).keywords
    ):
        raise UnsupportedError("the length of a text in a structural tag is not supported")
    for schema in schemas_of(grammar):
        check_read(schema)


def _automaton(grammar: Grammar) -> Automaton:
    match grammar.structure:
        case "json":
            return _json(_strict(json.loads(grammar.text)))
        case "json_object":
            return _json({"type": "object"})
        case "regex":
            return Automaton.from_regex(grammar.text)
        case "choice":
            texts = map(_dumped, json.loads(grammar.text))
            return Automaton.from_ebnf(f"root ::= {' | '.join(texts)}")
        case "grammar":
            return Automaton.from_ebnf(grammar.text)
        case "structural_tag":
            tag = json.loads(grammar.text)
            for schema in schemas_in_tag(tag):
                _strict(schema)
            return _tags(tag)
    raise UnsupportedError(f"no structure {grammar.structure!r} is served")


def _strict(schema: Any) -> Any:
    """Changed in place, without what it would take too loosely."""
    return rewritten(with_patterns(schema, PATTERNS))


def _json(schema: Any) -> Automaton:
    return Automaton.from_json_schema(
        _dumped(schema), any_whitespace=True, max_whitespace_cnt=WHITE_SPACE, strict_mode=True
    )


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tags(asked: dict[str, object]) -> Automaton:
    if "format" in asked:
        return Automaton.from_structural_tag(StructuralTag.model_validate(asked))
    structures, triggers = asked["structures"], asked["triggers"]
    if not isinstance(structures, list) or not isinstance(triggers, list):
        raise InputError("structures and triggers of a structural tag are lists")
    items = [
        StructuralTagItem(begin=one["begin"], schema=json.dumps(one["schema"]), end=one["end"])
        for one in structures
    ]
    return Automaton.from_structural_tag(items, triggers)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """UnsupportedError for what the library warns of.  Runs in a worker, which does nothing else
    meanwhile."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    if "Warning:" in text:
        raise UnsupportedError(_plain(text.partition("Warning:")[2]))


def _plain(text: str) -> str:
    """Without places in its source."""
    lines = [line.rpartition(": ")[2] if ".cc:" in line else line for line in text.splitlines()]
    return " ".join(" ".join(lines).split())[:400]
