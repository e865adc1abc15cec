"""One value for all prompts or one for each; one conversation or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.errors import InputError
from framework.shown import shown


def per_prompt(value: object, count: int, parameter: str) -> Sequence[Any]:
    """`value` once per prompt, unless it is a list, which must have one entry each."""
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise InputError(
            f"{parameter} does not fit the prompts",
            parameter=parameter,
            expected=f"one value, or a list of {count}, one per prompt",
            found=f"a list of {len(value)}",
        )
    return value


def conversations(messages: object) -> list[list[Mapping[str, Any]]]:
    """One conversation (a list of messages) or several, as a list of conversations."""
    outer = _listed(messages)
    if not outer or not isinstance(outer[0], list | tuple):
        outer = [outer]
    found = []
    for inner in outer:
        conversation = _listed(inner)
        if not conversation:
            raise _bad(inner)
        for place, message in enumerate(conversation):
            if not isinstance(message, Mapping):
                raise _no_message(place, message)
        found.append(conversation)
    return found


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _bad(value)
    return list(value)


def _no_message(place: int, found: object) -> InputError:
    return InputError(
        f"messages[{place}] is no message",
        parameter="messages",
        expected="a mapping such as {'role': 'user', 'content': 'Hello'}",
        found=f"{type(found).__name__} {shown(found, 80)}",
    )


def _bad(found: object) -> InputError:
    return InputError(
        "messages are not understood",
        parameter="messages",
        expected="a list of messages such as {'role': 'user', 'content': 'Hello'}, at least one; "
        "or a list of such lists",
        found=f"{type(found).__name__} {shown(found):.80}",
    )
