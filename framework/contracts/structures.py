"""From what a request asks as structured output to a grammar, and to what that makes use of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from framework.contracts.json_schema import Used, used_by
from framework.contracts.structured_output import STRUCTURES, Grammar, StructureQuery
from framework.errors import InputError
from framework.shown import shown

MAX_CHARACTERS = 1 << 18
"""Of a grammar: schemas of real use are far below."""
MAX_DEPTH = 64
"""Of the brackets of a schema."""
_NOTHING = Used(frozenset(), frozenset())


def grammar_of(asked: Mapping[str, Any]) -> Grammar:
    """`SamplingParams.structured_outputs` as a grammar.

    Raises InputError for what is none at all; whether a backend takes it, that has to say.
    """
    [name] = [name for name in STRUCTURES if asked.get(name) is not None]
    grammar = Grammar(name, _READ[name](asked[name]))
    if len(grammar.text) > MAX_CHARACTERS:
        found = f"{len(grammar.text)} characters"
        raise _bad(name, f"at most {MAX_CHARACTERS} characters", found)
    return grammar


def query_of(grammar: Grammar) -> StructureQuery:
    """What the grammar makes use of.  It must be one that `grammar_of` gives."""
    if grammar.structure == "json":
        return _query(grammar, None, _used(grammar))
    if grammar.structure == "grammar":
        return _query(grammar, "ebnf" if "::=" in grammar.text else "lark", _NOTHING)
    if grammar.structure == "structural_tag":
        dialect = "format" if "format" in json.loads(grammar.text) else "tags"
        return _query(grammar, dialect, _used(grammar))
    return _query(grammar, None, _NOTHING)


def _query(grammar: Grammar, dialect: str | None, used: Used) -> StructureQuery:
    return StructureQuery(
        structure=grammar.structure,
        dialect=dialect,
        keywords=used.keywords,
        formats=used.formats,
    )


def _used(grammar: Grammar) -> Used:
    keywords: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    for used in map(used_by, schemas_of(grammar)):
        keywords, formats = keywords | used.keywords, formats | used.formats
    return Used(keywords, formats)


def schemas_of(grammar: Grammar) -> Iterator[Any]:
    """The JSON schemas in a grammar; each is a document of its own."""
    if grammar.structure == "json":
        yield json.loads(grammar.text)
    elif grammar.structure == "structural_tag":
        yield from schemas_in_tag(json.loads(grammar.text))


def schemas_in_tag(tag: object) -> Iterator[Any]:
    """Those in a structural tag, wherever they stand: the very objects."""
    inside = [tag]
    while inside:
        one = inside.pop()
        if isinstance(one, Mapping):
            for name, value in one.items():
                if name in ("schema", "json_schema"):
                    yield value
                else:
                    inside.append(value)
        elif isinstance(one, list):
            inside += one


def _json(asked: object) -> str:
    """A schema, as an object or as JSON text."""
    value = _parsed("json", asked) if isinstance(asked, str) else asked
    if not isinstance(value, Mapping | bool):
        raise _bad("json", "a JSON Schema: an object, or its JSON text", asked)
    return _dumped("json", value)


def _json_object(asked: object) -> str:
    if asked is not True:
        raise _bad("json_object", "true", asked)
    return ""


def _regex(asked: object) -> str:
    return _text("regex", asked, "a regular expression")


def _grammar(asked: object) -> str:
    return _text("grammar", asked, "the source of a grammar")


def _choice(asked: object) -> str:
    texts = list(asked) if isinstance(asked, list | tuple) else []
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise _bad("choice", "a list of texts, at least one, none of them empty", asked)
    return _dumped("choice", texts)


def _structural_tag(asked: object) -> str:
    value = _parsed("structural_tag", asked) if isinstance(asked, str) else asked
    if not isinstance(value, Mapping) or not ("format" in value or "structures" in value):
        expected = 'an object with "structures" and "triggers", or with "format"'
        raise _bad("structural_tag", expected, asked)
    if "format" not in value and not _are_tags(value["structures"], value.get("triggers")):
        expected = (
            '"triggers", a list of texts, and "structures", a list of {"begin": text, "schema": '
            'JSON Schema, "end": text}; each begin starts with a trigger'
        )
        raise _bad("structural_tag", expected, asked)
    return _dumped("structural_tag", value)


def _are_tags(structures: object, triggers: object) -> bool:
    if not isinstance(structures, list | tuple) or not isinstance(triggers, list | tuple):
        return False
    fit = all(_is_plain(trigger) and trigger for trigger in triggers)
    return fit and bool(structures) and all(_is_tag(one, tuple(triggers)) for one in structures)


def _is_tag(one: object, triggers: tuple[str, ...]) -> bool:
    return (
        isinstance(one, Mapping)
        and isinstance(one.get("schema"), Mapping | bool)
        and _is_plain(one.get("end"))
        and _is_plain(begin := one.get("begin"))
        and begin.startswith(triggers)
    )


def _is_plain(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and "\0" not in text


_READ: dict[str, Callable[[object], str]] = {
    "json": _json,
    "json_object": _json_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _structural_tag,
}


def _text(name: str, asked: object, what: str) -> str:
    if not isinstance(asked, str) or not asked.strip():
        raise _bad(name, f"{what}, as a text that is not empty", asked)
    if "\0" in asked or not _sound(asked):
        raise _bad(name, "text without NUL and without halves of surrogate pairs", asked)
    return asked


def _sound(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(name, f"JSON text ({error})", text) from None


def _dumped(name: str, value: object) -> str:
    """As one text for all that are equal but for the white space.  The order of keys stays: it is
    that in which properties are written."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad(name, f"plain JSON ({error})", value) from None
    if not _sound(text):
        raise _bad(name, "text without halves of surrogate pairs", value)
    if _depth(text) > MAX_DEPTH:
        raise _bad(name, f"at most {MAX_DEPTH} brackets within each other", value)
    return text


def _depth(text: str) -> int:
    """Most brackets that are open at one time; those in strings count too, which few have."""
    depth = most = 0
    for char in text:
        if char in "[{":
            depth += 1
            most = max(most, depth)
        elif char in "]}":
            depth -= 1
    return most


def _bad(name: str, expected: str, found: object) -> InputError:
    return InputError(
        f"structured_outputs.{name} is invalid",
        parameter="structured_outputs",
        expected=expected,
        found=shown(found),
    )
