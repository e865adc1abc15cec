"""From the text of an output to the parts of a message: reasoning, content, calls of tools.

A stream sends the deltas as they come, a whole answer is all of them folded into one message.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from framework.contracts.tool_parser import CallArguments, CallBegins, Text, ToolEvent

if TYPE_CHECKING:
    from framework.contracts.reasoning_parser import ReasoningStream
    from framework.contracts.service import Service
    from framework.contracts.tool_parser import ToolStream
    from framework.engine.outputs import CompletionOutput

Delta = dict[str, Any]


class Reader:
    """Reads one output.  reasoning, tools: states of parsers, None where there is none."""

    def __init__(self, reasoning: ReasoningStream | None, tools: ToolStream | None) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._called = False

    def read(self, output: CompletionOutput) -> list[Delta]:
        """Deltas of what is new of the output."""
        return list(self._split(output.text, output.finished))

    def ending(self, output: CompletionOutput) -> Delta:
        """finish_reason and stop_reason; an answer that called tools ended for that."""
        reason: str | None = output.finish_reason
        if self._called and reason == "stop":
            reason = "tool_calls"
        return {"finish_reason": reason, "stop_reason": output.stop_reason}

    def _split(self, text: str, finished: bool) -> Iterator[Delta]:
        if self._reasoning is None:
            yield from self._answer(text, finished)
            return
        split = self._reasoning.push(text)
        if split.reasoning:
            yield {"reasoning_content": split.reasoning}
        yield from self._answer(split.content, False)
        if finished:
            rest = self._reasoning.finish()
            if rest.reasoning:
                yield {"reasoning_content": rest.reasoning}
            yield from self._answer(rest.content, True)

    def _answer(self, text: str, finished: bool) -> Iterator[Delta]:
        if self._tools is None:
            if text:
                yield {"content": text}
            return
        yield from map(self._delta, self._tools.push(text))
        if finished:
            yield from map(self._delta, self._tools.finish())

    def _delta(self, event: ToolEvent) -> Delta:
        match event:
            case Text():
                return {"content": event.text}
            case CallBegins():
                self._called = True
                function = {"name": event.name, "arguments": ""}
                head = {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
                return {"tool_calls": [{"index": event.index, **head, "function": function}]}
            case CallArguments():
                part = {"index": event.index, "function": {"arguments": event.text}}
                return {"tool_calls": [part]}


def reader_for(service: Service, prompt: str, tools: list[Mapping[str, Any]]) -> Reader:
    """A reader for one output.  prompt: what the model was shown.  tools: those that it may
    call; none: what looks like a call is text."""
    reasoning, parser = service.reasoning_parser, service.tool_parser
    return Reader(
        None if reasoning is None else reasoning.stream(prompt),
        None if parser is None or not tools else parser.stream(tools),
    )


def folded(deltas: Iterable[Delta]) -> Delta:
    """The message that the deltas make up."""
    texts: dict[str, str] = {}
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        for name in ("content", "reasoning_content"):
            if name in delta:
                texts[name] = texts.get(name, "") + delta[name]
        for part in delta.get("tool_calls", ()):
            call = calls.setdefault(part["index"], {"function": {"arguments": ""}})
            function = call["function"]
            arguments = function["arguments"] + part["function"]["arguments"]
            call.update({k: v for k, v in part.items() if k not in ("index", "function")})
            function.update(part["function"])
            function["arguments"] = arguments
    message: Delta = {"role": "assistant", "content": texts.get("content")}
    if not calls and message["content"] is None:
        message["content"] = ""
    if "reasoning_content" in texts:
        message["reasoning_content"] = texts["reasoning_content"]
    if calls:
        message["tool_calls"] = list(calls.values())
    return message
