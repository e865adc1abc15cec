"""A response of the Responses API: its items, its events, its whole."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framework_http.openai.blocks import Block, Blocks, Change
from framework_http.openai.shapes import Usage, best, check_written, finite, own

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.engine.outputs import CompletionOutput, LogprobsAt
    from framework_http.openai.reading import Reader
    from framework_http.openai.response_fields import ResponseFields

Event = dict[str, Any]


class Response:
    """One response while it is made.

    `begin`, `take` for each output of the engine and `end` give the events of a stream; `body`
    is the response as it stands, whole after `end`.
    """

    def __init__(
        self, fields: ResponseFields, sampling: SamplingParams, model: str, reader: Reader
    ) -> None:
        self._fields, self._reader = fields, reader
        self._blocks = Blocks()
        self._numbers = 0
        self._entries: list[LogprobsAt] = []
        self._logprobs: dict[int, list[dict[str, Any]]] = {}
        self._head = _head(fields, sampling, model)
        check_written(self._head)
        self._status: dict[str, Any] = {"status": "in_progress"}
        self._counts = Usage()
        self._usage: dict[str, Any] | None = None

    @property
    def reasoning(self) -> str:
        """All that was thought so far."""
        return "".join(block.text for block in self._blocks.done if block.kind == "reasoning")

    def body(self) -> dict[str, Any]:
        """The response."""
        whole = self._status["status"] == "completed"
        last = len(self._blocks.done) - 1
        output = [
            self._item(block, "completed" if whole or block.index < last else "incomplete")
            for block in self._blocks.done
        ]
        return {**self._head, **self._status, "output": output, "usage": self._usage}

    def begin(self) -> Iterator[Event]:
        """Before the first output."""
        yield self._event("response.created", response=self.body())
        yield self._event("response.in_progress", response=self.body())

    def take(self, output: CompletionOutput, usage: Usage) -> Iterator[Event]:
        """What an output of the engine brings; usage: with it."""
        self._counts = usage
        self._entries += output.logprobs or ()
        for change, block, text in self._blocks.take(self._reader.pieces(output)):
            yield from self._changed(change, block, text)
        if output.finished:
            self._status = _status(output)
            cut = self._status["status"] != "completed"
            for change, block, text in self._blocks.finish():
                yield from self._changed(change, block, text, "incomplete" if cut else "completed")

    def end(self, reasoning_tokens: int) -> Iterator[Event]:
        """After the last output."""
        counts = self._counts.as_dict()
        self._usage = {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": counts["prompt_tokens_details"],
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
            "total_tokens": counts["total_tokens"],
        }
        kind = "incomplete" if self._status["status"] == "incomplete" else "completed"
        yield self._event(f"response.{kind}", response=self.body())

    def fail(self, message: str) -> Iterator[Event]:
        """The engine failed."""
        error = {"code": "server_error", "message": message}
        self._status = {"status": "failed", "error": error}
        yield self._event("response.failed", response=self.body())

    def _event(self, kind: str, **more: Any) -> Event:
        self._numbers += 1
        return {"type": kind, "sequence_number": self._numbers - 1, **more}

    def _changed(
        self, change: Change, block: Block, text: str, end: str = "completed"
    ) -> Iterator[Event]:
        """end: the status of a block that is closed."""
        place = {"item_id": _id(block), "output_index": block.index}
        if change == "open":
            item = self._item(block, "in_progress")
            yield self._event("response.output_item.added", output_index=block.index, item=item)
        if block.kind == "call":
            self._entries.clear()
            yield from self._call_changed(change, block, text, place)
        else:
            yield from self._text_changed(change, block, text, {**place, "content_index": 0})
        if change == "close":
            item = self._item(block, end)
            yield self._event("response.output_item.done", output_index=block.index, item=item)

    def _call_changed(
        self, change: Change, block: Block, text: str, place: dict[str, Any]
    ) -> Iterator[Event]:
        if change == "more":
            yield self._event("response.function_call_arguments.delta", **place, delta=text)
        elif change == "close":
            end = {"name": block.name, "arguments": block.text}
            yield self._event("response.function_call_arguments.done", **place, **end)

    def _text_changed(
        self, change: Change, block: Block, text: str, place: dict[str, Any]
    ) -> Iterator[Event]:
        kind = "reasoning_text" if block.kind == "reasoning" else "output_text"
        if change == "open":
            part = self._part(block)
            yield self._event("response.content_part.added", **place, part=part)
        elif change == "more":
            more = self._entries_for(block)
            yield self._event(f"response.{kind}.delta", **place, delta=text, **more)
        else:
            known = self._logprobs.get(block.index, [])
            more = {"logprobs": known} if block.kind == "text" else {}
            yield self._event(f"response.{kind}.done", **place, text=block.text, **more)
            yield self._event("response.content_part.done", **place, part=self._part(block))

    def _entries_for(self, block: Block) -> dict[str, Any]:
        """Log-probabilities of the tokens that came with this text."""
        entries, self._entries = self._entries, []
        if block.kind != "text":
            return {}
        most = self._fields.top_logprobs or 0
        made = [_entry(entry, most) for entry in entries]
        self._logprobs.setdefault(block.index, []).extend(made)
        return {"logprobs": made}

    def _part(self, block: Block) -> dict[str, Any]:
        if block.kind == "reasoning":
            return {"type": "reasoning_text", "text": block.text}
        logprobs = list(self._logprobs.get(block.index, ()))
        return {
            "type": "output_text",
            "text": block.text,
            "annotations": [],
            "logprobs": logprobs,
        }

    def _item(self, block: Block, status: str) -> dict[str, Any]:
        head = {"id": _id(block), "status": status}
        content = [] if status == "in_progress" else [self._part(block)]
        match block.kind:
            case "call":
                call = {"call_id": f"call_{block.key}", "name": block.name, "arguments": block.text}
                return {**head, "type": "function_call", **call}
            case "reasoning":
                return {**head, "type": "reasoning", "summary": [], "content": content}
            case "text":
                return {**head, "type": "message", "role": "assistant", "content": content}


_PREFIX = {"text": "msg", "call": "fc", "reasoning": "rs"}


def _id(block: Block) -> str:
    return f"{_PREFIX[block.kind]}_{block.key}"


def _status(output: CompletionOutput) -> dict[str, Any]:
    match output.finish_reason:
        case "length":
            return {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        case "abort":
            return {"status": "cancelled"}
        case _:
            return {"status": "completed", "completed_at": int(time.time())}


def _head(fields: ResponseFields, sampling: SamplingParams, model: str) -> dict[str, Any]:
    thinks = fields.reasoning
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "model": model,
        "error": None,
        "incomplete_details": None,
        "instructions": fields.instructions,
        "max_output_tokens": fields.max_output_tokens,
        "metadata": fields.metadata or {},
        "parallel_tool_calls": fields.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": thinks.effort if thinks else None, "summary": None},
        "store": False,
        "background": False,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_logprobs": fields.top_logprobs or 0,
        "text": {"format": (fields.text and fields.text.format) or {"type": "text"}},
        "tool_choice": fields.tool_choice or "auto",
        "tools": fields.tools or [],
        "truncation": "disabled",
        "user": fields.user,
    }


def _entry(entry: LogprobsAt, most: int) -> dict[str, Any]:
    def one(found: Any) -> dict[str, Any]:
        return {
            "token": found.decoded_token,
            "logprob": finite(found.logprob),
            "bytes": list(found.bytes),
        }

    return {**one(own(entry)), "top_logprobs": [one(found) for found in best(entry, most)]}
