"""An answer of the Messages API: its blocks, its events, its whole."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from framework.errors import FrameworkError
from framework_http.openai.blocks import Block, Blocks, Change
from framework_http.openai.shapes import Usage

if TYPE_CHECKING:
    from framework.engine.outputs import CompletionOutput
    from framework_http.openai.reading import Reader

Item = dict[str, Any]


class Answer:
    """One answer while it is made: `begin`, `take` for each output of the engine and `end` give
    the events of a stream; `body` is the whole after `end`."""

    def __init__(self, model: str, reader: Reader) -> None:
        self._model, self._reader = model, reader
        self._blocks = Blocks()
        self._id = f"msg_{uuid.uuid4().hex[:24]}"
        self._ending: Item = {"stop_reason": None, "stop_sequence": None}
        self._usage = Usage()

    def body(self) -> Item:
        """The answer."""
        content = [_block(block, whole=True) for block in self._blocks.done]
        return self._message(content, _counts(self._usage))

    def begin(self, usage: Usage) -> Iterator[Item]:
        """Before the first output is taken."""
        counts = {**_counts(usage), "output_tokens": 0}
        yield {"type": "message_start", "message": self._message([], counts)}
        yield {"type": "ping"}

    def take(self, output: CompletionOutput, usage: Usage) -> Iterator[Item]:
        """What an output of the engine brings.  Raises FrameworkError for one that was ended from
        outside, for which Anthropic's API has no reason."""
        self._usage = usage
        for change in self._blocks.take(self._reader.pieces(output)):
            yield _event(*change)
        if not output.finished:
            return
        for change in self._blocks.finish():
            yield _event(*change)
        self._ending = self._end_of(output)

    def end(self) -> Iterator[Item]:
        """After the last output."""
        yield {"type": "message_delta", "delta": self._ending, "usage": _counts(self._usage)}
        yield {"type": "message_stop"}

    def _message(self, content: list[Item], usage: Item) -> Item:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            **self._ending,
            "usage": usage,
        }

    def _end_of(self, output: CompletionOutput) -> Item:
        match output.finish_reason:
            case "length":
                reason = "max_tokens"
            case "abort":
                raise FrameworkError("the request was ended by the operator")
            case _ if self._reader.called:
                reason = "tool_use"
            case _ if isinstance(output.stop_reason, str):
                return {"stop_reason": "stop_sequence", "stop_sequence": output.stop_reason}
            case _:
                reason = "end_turn"
        return {"stop_reason": reason, "stop_sequence": None}


def _counts(usage: Usage) -> Item:
    """input_tokens: without those that came from the cache."""
    counts = usage.as_dict()
    cached = counts["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": counts["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": counts["completion_tokens"],
    }


def _event(change: Change, block: Block, text: str) -> Item:
    index = {"index": block.index}
    match change:
        case "open":
            content = _block(block, whole=False)
            return {"type": "content_block_start", **index, "content_block": content}
        case "more":
            return {"type": "content_block_delta", **index, "delta": _delta(block, text)}
        case "close":
            return {"type": "content_block_stop", **index}


def _delta(block: Block, text: str) -> Item:
    match block.kind:
        case "text":
            return {"type": "text_delta", "text": text}
        case "reasoning":
            return {"type": "thinking_delta", "thinking": text}
        case "call":
            return {"type": "input_json_delta", "partial_json": text}


def _block(block: Block, *, whole: bool) -> Item:
    match block.kind:
        case "text":
            return {"type": "text", "text": block.text}
        case "reasoning":
            return {"type": "thinking", "thinking": block.text, "signature": ""}
        case "call":
            given = _input(block.text) if whole else {}
            return {
                "type": "tool_use",
                "id": f"toolu_{block.key}",
                "name": block.name,
                "input": given,
            }


def _input(text: str) -> Item | msgspec.Raw:
    """An object, to the letter as the model wrote it: read and written anew, half of a surrogate
    pair could not be sent, and a number beyond float64 would be another.  What the model was not
    let finish, or wrote wrongly, stands as a text in the place that Anthropic's documentation
    proposes for that."""
    text = text or "{}"
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        found = None
    return msgspec.Raw(text.encode()) if isinstance(found, dict) else {"INVALID_JSON": text}


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
