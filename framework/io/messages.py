"""Messages as a client may write them, in the one shape that chat templates can read.

Templates are written for content that is a string.  Clients send null, nothing, or a list of
parts (the OpenAI API allows all three); `tool_calls: []`; and arguments of calls as JSON text
where templates expect an object.  Each of these would end in an error of Jinja.  Arguments that
are no JSON object become one with the key `MALFORMED`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from framework.errors import InputError
from framework.shown import shown

MALFORMED = "malformed_arguments"
"""Key under which a template sees arguments of a call that are no JSON object."""

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def normalise_messages(messages: Any, template: str) -> list[dict[str, Any]]:
    """New messages; the caller's are left as they are.  InputError names the message.

    `template` decides whether the role "developer" is known or means "system".
    """
    if not _is_list(messages):
        raise _error("messages must be a list", found=type(messages).__name__)
    if not messages:
        raise _error("messages is empty", mend="send at least one message")
    return [_message(item, index, template) for index, item in enumerate(messages)]


def normalise_objects(values: Any, parameter: str) -> list[dict[str, Any]] | None:
    """A list of objects (tools, documents), or None when there are none."""
    if values is None:
        return None
    if not _is_list(values) or not all(isinstance(value, Mapping) for value in values):
        raise InputError(
            f"{parameter} must be a list of objects",
            parameter=parameter,
            found=type(values).__name__,
        )
    return [dict(value) for value in values] or None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _error(what: str, *, found: object = None, mend: str | None = None) -> InputError:
    return InputError(
        what,
        parameter="messages",
        expected='a list of objects such as {"role": "user", "content": "Hello"}',
        found=found,
        mend=mend,
    )


def _message(item: Any, index: int, template: str) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(item, Mapping):
        raise _error(f"{where} must be an object", found=type(item).__name__)
    role = item.get("role")
    if not isinstance(role, str) or not role:
        raise _error(f"{where} has no role", found=shown(role))
    _refuse_nul(role, f"{where}.role")
    message: dict[str, Any] = {str(key): value for key, value in item.items()}
    if role == "developer" and "developer" not in template:
        message["role"] = "system"
    message["content"] = _content(item.get("content"), f"{where}.content")
    calls = item.get("tool_calls")
    if calls:
        message["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls")
    else:
        message.pop("tool_calls", None)
    return message


def _content(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        _refuse_nul(content, where)
        return content
    if not _is_list(content):
        raise _error(f"{where} must be text, parts or null", found=type(content).__name__)
    return "\n".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    text: Any = part
    if isinstance(part, Mapping):
        kind = part.get("type")
        key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
        if key is None:
            raise _error(
                f"{where} is of the type {shown(kind)}, which this model does not take",
                found=shown(kind),
                mend='send parts of the type "text"',
            )
        text = part.get(key)
    if not isinstance(text, str):
        raise _error(f"{where} has no text", found=type(text).__name__)
    _refuse_nul(text, where)
    return text


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not _is_list(calls) or not all(isinstance(call, Mapping) for call in calls):
        raise _error(f"{where} must be a list of objects", found=type(calls).__name__)
    return [_tool_call(call, f"{where}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise _error(f"{where}.function must be an object", found=type(function).__name__)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        _refuse_nul(arguments, f"{where}.function.arguments")
        arguments = _parsed(arguments)
    if arguments is not None and not isinstance(arguments, Mapping):
        raise _error(
            f"{where}.function.arguments must be an object or text", found=type(arguments).__name__
        )
    return {**call, "function": {**function, "arguments": dict(arguments or {})}}


def _parsed(text: str) -> Mapping[str, Any]:
    """An object for what a model wrote as the arguments of a call.

    A client sends back what it was given, in every request to come: were a bad text refused, one
    slip of the model would end the conversation.  So the model is shown what it wrote.
    """
    try:
        found = json.loads(text) if text.strip() else {}
        # An escape may stand for half a character, which no template could write out.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {MALFORMED: text}


def _refuse_nul(text: str, where: str) -> None:
    if "\0" in text:
        raise _error(f"{where} contains a NUL character", mend="remove it")
