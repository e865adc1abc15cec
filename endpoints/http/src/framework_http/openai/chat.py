"""`endpoint:chat`: answer a conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, cast

import fastapi
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from framework.contracts.endpoint import Endpoint
from framework.errors import InputError
from framework_http import sse
from framework_http.openai import ask
from framework_http.openai.fields import (
    Fields,
    Items,
    ReasoningEffort,
    Tools,
    options_of,
    sampling_of,
)
from framework_http.openai.models import check_model
from framework_http.openai.reading import Reader, ends_of, folded, reader_for
from framework_http.openai.scores import said_of_prompt
from framework_http.openai.shapes import Envelope, Usage, best, finite, own, usage_of
from framework_http.openai.structures import structure_of_format, structured
from framework_http.openai.tools import Calls, calls_of, check_functions, choice_of

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.service import Service
    from framework.engine.outputs import CompletionOutput, Logprob, LogprobsAt, RequestOutput


class ChatFields(Fields):
    """The body of POST /v1/chat/completions."""

    messages: Items[dict[str, Any]] = Field(
        min_length=1, examples=[[{"role": "user", "content": "Hello"}]]
    )
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: Items[dict[str, Any]] | None = None
    reasoning_effort: ReasoningEffort | None = None
    include_reasoning: bool | None = None

    @property
    def most_tokens(self) -> int | None:
        """Both names mean the same; the newer one wins."""
        newer = self.max_completion_tokens
        return self.max_tokens if newer is None else newer

    @property
    def num_logprobs(self) -> int | None:
        """Raises InputError for top_logprobs without logprobs."""
        if not self.logprobs:
            if self.top_logprobs:
                raise InputError(
                    "top_logprobs needs logprobs=true",
                    parameter="top_logprobs",
                    found="no logprobs",
                )
            return None
        return self.top_logprobs or 0

    def rendering(self) -> dict[str, Any]:
        """Options of `Service.render_chat`."""
        extra = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort:
            extra["reasoning_effort"] = self.reasoning_effort
        goes_on = bool(self.continue_final_message)
        generation = self.add_generation_prompt
        return {
            "tools": self.tools or None,
            "documents": self.documents or None,
            "chat_template": self.chat_template,
            "chat_template_kwargs": extra or None,
            "add_generation_prompt": not goes_on if generation is None else generation,
            "continue_final_message": goes_on,
            "limited": self.truncate_prompt_tokens is None,
        }


class ChatOptions(BaseModel):
    """Options of `endpoint:chat`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    client_templates: bool = Field(
        default=False,
        description="Whether a request may bring a chat_template of its own: a program, which is "
        "run with limits, and takes processor time from others.",
    )


class Chat(Endpoint):
    """POST /v1/chat/completions."""

    Options: ClassVar[type[BaseModel] | None] = ChatOptions

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        allowed = (cast("ChatOptions | None", self.options) or ChatOptions()).client_templates
        router = fastapi.APIRouter(prefix="/v1/chat")

        @router.post("/completions")
        async def chat(fields: ChatFields, request: Request) -> Response:
            model = check_model(service, fields.model)
            one = fields.parallel_tool_calls is False
            calls = _calls(fields, service, one)
            if fields.chat_template is not None and not allowed:
                raise InputError(
                    "this server takes no chat_template from its clients",
                    parameter="chat_template",
                    expected="none",
                    found=f"{len(fields.chat_template)} characters",
                    mend="leave it out; an operator allows it with "
                    "`framework --plugin-option endpoint.chat.client_templates=true serve`",
                )
            sampling = _sampling(fields, service, calls)
            options = options_of(fields, request, service)
            prompt = await service.render_chat(fields.messages, **fields.rendering())
            if fields.cache_salt is not None:
                prompt["cache_salt"] = fields.cache_salt
            ends = await ends_of(service, calls.marked and fields.skip_special_tokens is None)

            def reader() -> Reader:
                return reader_for(service, prompt["prompt"], calls, one_call=one, ends=ends)

            if fields.streams:
                parts = ask.parts(service, [prompt], sampling, options)
                envelope = Envelope("chatcmpl", "chat.completion.chunk", model)
                return await sse.stream(_chunks(parts, fields, envelope, reader), request)
            envelope = Envelope("chatcmpl", "chat.completion", model)
            found = await ask.whole(service, [prompt], sampling, options, request)
            return _answer(found, fields, envelope, reader)

        return router


def _sampling(fields: ChatFields, service: Service, calls: Calls) -> SamplingParams:
    sampling = sampling_of(
        fields, service, max_tokens=fields.most_tokens, logprobs=fields.num_logprobs
    )
    if calls.marked and fields.skip_special_tokens is None:
        # The marks of a call are special tokens of some models.
        sampling = sampling.replace(skip_special_tokens=False)
    form = structure_of_format(fields.response_format, "response_format")
    return structured(sampling, form, "response_format", calls)


def _calls(fields: ChatFields, service: Service, one_call: bool) -> Calls:
    tools = fields.tools or ()
    check_functions(tools)
    choice, name = choice_of(fields.tool_choice)
    return calls_of(service, tools, choice, name=name, one_call=one_call)


def _answer(
    found: list[RequestOutput] | None,
    fields: ChatFields,
    envelope: Envelope,
    reader: Callable[[], Reader],
) -> Response:
    if found is None:
        return ask.answer(None)
    choices = []
    for one in found[0].outputs:
        reading = reader()
        message = folded(_wanted(reading.read(one), fields))
        choices.append(
            {
                "index": one.index,
                "message": message,
                "logprobs": _logprobs(one, fields),
                **reading.ending(one),
                **_ids(one, fields),
            }
        )
    more = said_of_prompt(found[0], fields)
    return ask.answer(envelope(choices, usage=usage_of(found), **more))


async def _chunks(
    parts: AsyncGenerator[tuple[int, RequestOutput, Usage], None],
    fields: ChatFields,
    envelope: Envelope,
    reader: Callable[[], Reader],
) -> AsyncGenerator[dict[str, Any], None]:
    usage = Usage()
    readers: dict[int, Reader] = {}
    begun = False
    async with aclosing(parts):
        async for _, output, usage in parts:
            more = fields.counted(usage)
            said = {} if begun else said_of_prompt(output, fields)
            begun = True
            for one in output.outputs:
                if one.index not in readers:
                    readers[one.index] = reader()
                    begins = _delta(one.index, {"role": "assistant", "content": ""})
                    yield envelope([begins], **said, **more)
                    said = {}
                for choice in _deltas(one, readers[one.index], fields):
                    yield envelope([choice], **more)
    if fields.usage_at_end:
        yield envelope([], usage=usage.as_dict())


def _deltas(one: CompletionOutput, reading: Reader, fields: ChatFields) -> Iterator[dict[str, Any]]:
    """The last delta of an output carries its log-probabilities, its ids and, at its end, the
    reason."""
    found = _wanted(reading.read(one), fields)
    logprobs, ids = _logprobs(one, fields), _ids(one, fields)
    if not found and (one.finished or (logprobs and logprobs["content"]) or ids.get("token_ids")):
        found = [{}]
    for number, delta in enumerate(found, 1):
        if number < len(found):
            yield _delta(one.index, delta)
        else:
            yield _delta(one.index, delta, logprobs, **reading.ending(one), **ids)


def _wanted(deltas: list[dict[str, Any]], fields: ChatFields) -> list[dict[str, Any]]:
    """Without the reasoning, where that was not wanted."""
    if fields.include_reasoning is not False:
        return deltas
    return [delta for delta in deltas if "reasoning_content" not in delta]


def _delta(
    index: int, delta: dict[str, Any], logprobs: dict[str, Any] | None = None, **end: Any
) -> dict[str, Any]:
    end.setdefault("finish_reason", None)
    return {"index": index, "delta": delta, "logprobs": logprobs, **end}


def _ids(one: CompletionOutput, fields: ChatFields) -> dict[str, Any]:
    return {"token_ids": one.token_ids} if fields.return_token_ids else {}


def _logprobs(one: CompletionOutput, fields: ChatFields) -> dict[str, Any] | None:
    if not fields.logprobs:
        return None
    return {"content": [_entry(entry, fields.top_logprobs or 0) for entry in one.logprobs or ()]}


def _entry(entry: LogprobsAt, most: int) -> dict[str, Any]:
    return {**_token(own(entry)), "top_logprobs": [_token(one) for one in best(entry, most)]}


def _token(one: Logprob) -> dict[str, Any]:
    return {
        "token": one.decoded_token,
        "logprob": finite(one.logprob),
        "bytes": list(one.bytes),
    }
