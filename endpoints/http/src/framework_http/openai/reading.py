"""From the text of an output to the parts of a message: reasoning, content, calls of tools.

A stream sends the deltas as they come, a whole answer is all of them folded into one message.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framework.contracts.tool_parser import CallArguments, CallBegins, Text, ToolEvent

if TYPE_CHECKING:
    from framework.contracts.reasoning_parser import ReasoningStream
    from framework.contracts.service import Service
    from framework.contracts.tokenizer import Tokenizer
    from framework.contracts.tool_parser import ToolStream
    from framework.engine.outputs import CompletionOutput
    from framework_http.openai.tools import Calls

Delta = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of what the model thinks."""

    text: str


Piece = Reasoning | ToolEvent


class Reader:
    """Reads one output.  reasoning, tools: states of parsers, None where there is none.
    one_call: calls behind the first are left out, as the client asked for one at a time.  ends:
    see `ends_of`."""

    def __init__(
        self,
        reasoning: ReasoningStream | None,
        tools: ToolStream | None,
        *,
        one_call: bool = False,
        ends: Mapping[int, str] | None = None,
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._one_call = one_call
        self._ends = ends or {}
        self.called = False

    def pieces(self, output: CompletionOutput) -> Iterator[Piece]:
        """What is new of the output, in parts."""
        text, finished = self._without_end(output), output.finished
        if self._reasoning is None:
            yield from self._answer(text, finished)
            return
        split = self._reasoning.push(text)
        if split.reasoning:
            yield Reasoning(split.reasoning)
        yield from self._answer(split.content, False)
        if finished:
            rest = self._reasoning.finish()
            if rest.reasoning:
                yield Reasoning(rest.reasoning)
            yield from self._answer(rest.content, True)

    def read(self, output: CompletionOutput) -> list[Delta]:
        """The same as deltas of a message."""
        return [_delta(piece) for piece in self.pieces(output)]

    def ending(self, output: CompletionOutput) -> Delta:
        """finish_reason and stop_reason; an answer that called tools ended for that."""
        reason: str | None = output.finish_reason
        if self.called and reason == "stop":
            reason = "tool_calls"
        return {"finish_reason": reason, "stop_reason": output.stop_reason}

    def _without_end(self, output: CompletionOutput) -> str:
        """The text but for the token that ended it, if that is one of `ends`."""
        by_model = output.finish_reason == "stop" and output.stop_reason is None
        last = output.token_ids[-1] if by_model and output.token_ids else None
        return (
            output.text.removesuffix(self._ends.get(last, "")) if last is not None else output.text
        )

    def _answer(self, text: str, finished: bool) -> Iterator[ToolEvent]:
        if self._tools is None:
            if text:
                yield Text(text)
            return
        yield from self._wanted(self._tools.push(text))
        if finished:
            yield from self._wanted(self._tools.finish())

    def _wanted(self, events: Iterable[ToolEvent]) -> Iterator[ToolEvent]:
        for event in events:
            if not isinstance(event, Text):
                if self._one_call and event.index > 0:
                    continue
                self.called = True
            yield event


def _delta(piece: Piece) -> Delta:
    match piece:
        case Reasoning():
            return {"reasoning_content": piece.text}
        case Text():
            return {"content": piece.text}
        case CallBegins():
            function = {"name": piece.name, "arguments": ""}
            head = {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
            return {"tool_calls": [{"index": piece.index, **head, "function": function}]}
        case CallArguments():
            part = {"index": piece.index, "function": {"arguments": piece.text}}
            return {"tool_calls": [part]}


def reader_for(
    service: Service,
    prompt: str,
    calls: Calls,
    *,
    one_call: bool = False,
    ends: Mapping[int, str] | None = None,
) -> Reader:
    """A reader for one output.  prompt: what the model was shown.  calls: those that it may
    make; without tools, what looks like a call is text.  one_call: at most one of them at a time.
    ends: see `ends_of`."""
    reasoning, parser, tools = service.reasoning_parser, service.tool_parser, None
    if calls.stream is not None:
        tools = calls.stream()
    elif calls.tools and parser is not None:
        tools = parser.stream(calls.tools)
    return Reader(
        None if reasoning is None else reasoning.stream(prompt),
        tools,
        one_call=one_call,
        ends=ends,
    )


async def ends_of(service: Service, shown: bool) -> Mapping[int, str]:
    """Texts of the special tokens with which a model may end, by id.

    shown: special tokens are part of the text, for no other reason than that the marks of calls
    may be among them; the one that ends an output is nothing that a client wants to see.
    """
    if not shown:
        return {}

    def read(tokenizer: Tokenizer) -> dict[int, str]:
        ids = {*tokenizer.special_ids, *tokenizer.eos_ids}
        return {token: tokenizer.token_bytes(token).decode("utf-8", "replace") for token in ids}

    return await service.with_tokenizer(read)


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
