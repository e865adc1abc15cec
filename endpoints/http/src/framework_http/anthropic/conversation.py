"""Anthropic's messages as those of a chat template: results of tools are messages of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from framework.errors import InputError

Message = dict[str, Any]


def messages_of(
    given: Sequence[Mapping[str, Any]], system: str | Sequence[Mapping[str, Any]] | None
) -> list[Message]:
    """The conversation.  Raises InputError that names the message and the block."""
    found: list[Message] = []
    if system is not None:
        found.append({"role": "system", "content": _text(system, "system", "system")})
    for index, message in enumerate(given):
        where = f"messages[{index}]"
        match message.get("role"):
            case "user":
                found += _of_user(message.get("content"), f"{where}.content")
            case "assistant":
                found.append(_of_assistant(message.get("content"), f"{where}.content"))
            case role:
                raise _bad(f"{where}.role", "user or assistant", repr(role))
    return found


def _of_user(content: object, where: str) -> list[Message]:
    """Texts that stand together are one message, each result is one; there is one, at least."""
    found: list[Message] = []
    texts: list[str] = []  # of the message that is at its end
    for place, block in _blocks(content, where):
        match block.get("type"):
            case "text":
                texts.append(_string(block, "text", place))
            case "tool_result":
                text = _text(block.get("content") or "", f"{place}.content", "messages")
                key = _string(block, "tool_use_id", place)
                found += _said(texts)
                found.append({"role": "tool", "tool_call_id": key, "content": text})
            case kind:
                raise _bad(place, "a block of type text or tool_result", repr(kind))
    found += _said(texts)
    if not found:
        raise _bad(where, "text, or a block at least", "an empty list")
    return found


def _said(texts: list[str]) -> list[Message]:
    """A message of these texts, which are forgotten; none without any."""
    said = [{"role": "user", "content": "\n".join(texts)}] if texts else []
    texts.clear()
    return said


def _of_assistant(content: object, where: str) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for place, block in _blocks(content, where):
        match block.get("type"):
            case "text":
                texts.append(_string(block, "text", place))
            case "thinking":
                thoughts.append(_string(block, "thinking", place))
            case "tool_use":
                calls.append(_call(block, place))
            case kind:
                raise _bad(place, "a block of type text, thinking or tool_use", repr(kind))
    message: Message = {"role": "assistant", "content": "\n".join(texts)}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(block.get("input"), Mapping):
        raise _bad(f"{place}.input", "an object", type(block.get("input")).__name__)
    arguments = json.dumps(block["input"], ensure_ascii=False)
    function = {"name": _string(block, "name", place), "arguments": arguments}
    return {"id": _string(block, "id", place), "type": "function", "function": function}


def _blocks(content: object, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place, block); a plain text is one block."""
    if isinstance(content, str):
        yield where, {"type": "text", "text": content}
        return
    if not isinstance(content, list) or not all(isinstance(b, Mapping) for b in content):
        raise _bad(where, "text, or a list of blocks", type(content).__name__)
    yield from ((f"{where}[{index}]", block) for index, block in enumerate(content))


def _text(content: object, where: str, parameter: str) -> str:
    texts = []
    for place, block in _blocks(content, where):
        if block.get("type") != "text":
            raise _bad(place, "a block of type text", repr(block.get("type")), parameter)
        texts.append(_string(block, "text", place))
    return "\n".join(texts)


def _string(block: Mapping[str, Any], name: str, place: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise _bad(f"{place}.{name}", "text", type(value).__name__)
    return value


def _bad(where: str, expected: str, found: str, parameter: str = "messages") -> InputError:
    return InputError(
        f"{where} is not understood", parameter=parameter, expected=expected, found=f"{found:.80}"
    )
