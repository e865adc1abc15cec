"""JSON values in a text that comes in pieces: where one ends, and where a member of it lies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


class ValueEnd:
    """Finds the end of one JSON object or array, character by character.

    Works on brackets and strings alone: whether the rest is JSON is for who reads it.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._string = self._escaped = False
        self.begun = self.ended = False

    def take(self, character: str) -> None:
        """The next character; after the end none is to be given."""
        if self._escaped:
            self._escaped = False
        elif self._string:
            if character == "\\":
                self._escaped = True
            elif character == '"':
                self._string = False
        elif character == '"':
            self._string = True
        elif character in "{[":
            self._depth += 1
            self.begun = True
        elif character in "}]":
            self._depth -= 1
            self.ended = self._depth <= 0 and self.begun


def end_of_value(text: str, start: int = 0) -> int | None:
    """Behind the JSON object or array that begins at `start`; None if it does not end."""
    end = ValueEnd()
    for place in range(start, len(text)):
        end.take(text[place])
        if end.ended:
            return place + 1
    return None


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is whole.  arguments: JSON text, as the model wrote it where it can be."""

    name: str
    arguments: str


def read_call(text: str, names: frozenset[str], keys: tuple[str, ...]) -> Call | None:
    """The call that a JSON object writes: its `name`, and the first of `keys` that it has.

    None for what is no JSON, no such object, or a tool that is not among `names`.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return call_of(value, names, keys)


def call_of(value: Any, names: frozenset[str], keys: tuple[str, ...]) -> Call | None:
    """The same of a value that was read."""
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    key = next((key for key in keys if key in value), None)
    arguments = {} if key is None else value[key]
    if isinstance(arguments, str):
        # Some models write the arguments as a text that holds JSON.
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if not isinstance(arguments, dict):
        return None
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False))
