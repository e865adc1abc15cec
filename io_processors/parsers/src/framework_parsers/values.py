"""JSON that comes in pieces: its punctuation, and the calls that objects write."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_OUTSIDE = re.compile(r'["{}\[\],:<]')
_INSIDE = re.compile(r'["\\]')


class Punctuation:
    """Follows one JSON value by its punctuation; whether the rest is JSON is for who reads it.

    depth: brackets that are open.  string: inside a string.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.string = False
        self._escaped = False

    def marks(self, text: str) -> Iterator[tuple[int, str]]:
        """(place, character) of brackets, commas and colons of the next piece, and of the quotes
        around strings; `depth` and `string` are those behind it.

        A "<" outside of strings is a mark, too: no JSON has one, what ends a call begins with it.
        """
        place = 0
        while place < len(text):
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            found = (_INSIDE if self.string else _OUTSIDE).search(text, place)
            if found is None:
                return
            place, mark = found.end(), found[0]
            if mark == "\\":
                self._escaped = True
                continue
            if mark == '"':
                self.string = not self.string
            elif mark in "{[":
                self.depth += 1
            elif mark in "}]":
                self.depth -= 1
            yield place - 1, mark


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is whole.  arguments: JSON text."""

    name: str
    arguments: str


def read_string(text: str) -> str | None:
    """What a JSON string says; None if it is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def read_call(text: str, names: frozenset[str], keys: tuple[str, ...]) -> Call | None:
    """The call that a JSON object writes: its `name`, and the first of `keys` that it has.

    None for what is no JSON, no such object, or a tool that is not among `names`.
    """
    try:
        value = json.loads(text)
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in names:
            return None
        arguments = next((value[key] for key in keys if key in value), None)
        if isinstance(arguments, str) and arguments.strip():
            # Some models write the arguments as a text that holds JSON.
            arguments = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not arguments and not isinstance(arguments, list):
        return Call(name, "{}")
    return Call(name, _dumped(arguments)) if isinstance(arguments, dict) else None


def _dumped(arguments: dict[str, Any]) -> str:
    """JSON text that can be sent: half of a surrogate pair stays an escape."""
    text = json.dumps(arguments, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(arguments)
    return text
