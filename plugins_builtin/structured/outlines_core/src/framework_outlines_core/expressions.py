"""From a grammar to one regular expression."""

from __future__ import annotations

import json
import re

from outlines_core import Index, Vocabulary
from outlines_core.json_schema import build_regex_from_schema

from framework.contracts.json_formats import PATTERNS, with_patterns
from framework.contracts.structured_output import Grammar
from framework.errors import InputError, UnsupportedError
from framework_outlines_core.beside import check_read

END = b"\0"
"""What follows each output in its expression.  The library does not go on from where an output
could end in the middle of a loop, "(ab)+" and "1.5" among them; with this nothing ends but here.
No token holds it: JSON has none, and other text should not."""
_ANCHOR = re.compile(r"[\^$]")
_NO_ANCHORS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""Escapes and classes of characters."""
_MARKS = frozenset("\\.+*?()|[]{}^$#&-~")
_BYTES = 256


def checked(grammar: Grammar) -> str:
    """The expression, its end included.  Raises InputError or UnsupportedError."""
    try:
        expression = f"(?:{_expression(grammar)})\\x00"
        # Over single bytes an index is quickly made; with all tokens it has the same states.
        Index(expression, Vocabulary(_BYTES, {bytes([value]): [value] for value in range(_BYTES)}))
    except (InputError, UnsupportedError):
        raise
    except Exception as error:  # ValueError and others, by the place where it is found
        text = " ".join(str(error).split())[:400]
        kind = UnsupportedError if "support" in text.lower() else InputError
        raise kind(text) from None
    return expression


def _expression(grammar: Grammar) -> str:
    match grammar.structure:
        case "json":
            schema = json.loads(grammar.text)
            _check_names(schema)
            check_read(schema)
            strict = with_patterns(schema, PATTERNS)
            return str(build_regex_from_schema(json.dumps(strict, ensure_ascii=False)))
        case "regex":
            if _ANCHOR.search(_NO_ANCHORS.sub("", grammar.text)):
                raise UnsupportedError(
                    "^ and $ are not supported; the whole output matches without them, too"
                )
            return grammar.text
        case "choice":
            return "|".join(map(_literal, json.loads(grammar.text)))
    raise UnsupportedError(f"no structure {grammar.structure!r} is served")


def _check_names(schema: object) -> None:
    """The library writes names of properties as they are."""
    inside = [schema]
    while inside:
        one = inside.pop()
        if isinstance(one, dict):
            inside += one.values()
            names = one.get("properties")
            for name in names if isinstance(names, dict) else ():
                if json.dumps(name, ensure_ascii=False) != f'"{name}"':
                    raise UnsupportedError(f"the name {name!r:.80} needs an escape in JSON")
        elif isinstance(one, list):
            inside += one


def _literal(text: str) -> str:
    if "\0" in text:  # the mark of the end, which no token holds
        raise UnsupportedError("a text with NUL is not supported")
    return "".join(f"\\{char}" if char in _MARKS else char for char in text)
