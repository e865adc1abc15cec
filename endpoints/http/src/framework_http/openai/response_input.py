"""The items of a Responses request as the messages of a conversation.

What one turn of the model brought is several items there (reasoning, a message, calls) and one
message here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.errors import InputError

Message = dict[str, Any]

_TEXT = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_THOUGHTS = "thoughts"
"""Reasoning of a turn in pieces, while it is put together."""
_ROLES = ("user", "assistant", "system", "developer")


def messages_of(
    given: str | Sequence[Mapping[str, Any]], instructions: str | None
) -> list[Message]:
    """The conversation, at least one message.  Raises InputError that names the item."""
    found: list[Message] = []
    if instructions is not None:
        found.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    if not given:
        raise _bad("input", "at least one item", "an empty list")
    for index, item in enumerate(given):
        _add(found, item, f"input[{index}]")
    for message in found:
        if _THOUGHTS in message:
            message["reasoning_content"] = "".join(message.pop(_THOUGHTS))
    return found


def _add(found: list[Message], item: Mapping[str, Any], where: str) -> None:
    match item.get("type", "message"):
        case "message":
            _message(found, item, where)
        case "function_call":
            _turn(found).setdefault("tool_calls", []).append(_call(item, where))
        case "function_call_output":
            output = {
                "role": "tool",
                "tool_call_id": _text_field(item, "call_id", where),
                "content": text_of(item.get("output"), f"{where}.output"),
            }
            found.append(output)
        case "reasoning":
            text = text_of(item.get("content") or [], f"{where}.content", kinds=("reasoning_text",))
            _turn(found).setdefault(_THOUGHTS, []).append(text)
        case kind:
            raise _bad(where, "a message, function_call, function_call_output or reasoning", kind)


def _turn(found: list[Message]) -> Message:
    """The turn of the model that the conversation is in; a new one if it is in none."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant", "content": ""})
    return found[-1]


def _message(found: list[Message], item: Mapping[str, Any], where: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise _bad(f"{where}.role", f"one of {', '.join(_ROLES)}", repr(role))
    content = text_of(item.get("content"), f"{where}.content")
    last = found[-1] if found else {}
    if role == "assistant" and last.get("role") == role and not last["content"]:
        last["content"] = content  # its reasoning came before
    else:
        found.append({"role": role, "content": content})


def _call(item: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = {
        "name": _text_field(item, "name", where),
        "arguments": _text_field(item, "arguments", where),
    }
    return {"id": _text_field(item, "call_id", where), "type": "function", "function": function}


def text_of(content: object, where: str, kinds: Sequence[str] = tuple(_TEXT)) -> str:
    """The text of a content: a string, or parts of these kinds.  Raises InputError."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _bad(where, f"text, or parts of type {' or '.join(kinds)}", type(content).__name__)
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind not in kinds:
            raise _bad(f"{where}[{index}]", f"a part of type {' or '.join(kinds)}", repr(kind))
        texts.append(_text_field(part, _TEXT.get(str(kind), "text"), f"{where}[{index}]"))
    return "\n".join(texts)


def _text_field(item: Mapping[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _bad(f"{where}.{name}", "text", type(value).__name__)
    return value


def _bad(where: str, expected: str, found: object) -> InputError:
    return InputError(
        f"{where} is not understood", parameter="input", expected=expected, found=f"{found!s:.80}"
    )
