"""`endpoint:messages`: Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import fastapi
from fastapi import Request

from framework.contracts.endpoint import Endpoint
from framework.contracts.sampling import OutputKind
from framework.errors import UnsupportedError
from framework_http import sse
from framework_http.anthropic.answer import Answer, Item
from framework_http.anthropic.conversation import messages_of
from framework_http.anthropic.faults import AnthropicRoute, fault_item
from framework_http.anthropic.fields import CountFields, MessageFields
from framework_http.leaving import unless_gone
from framework_http.openai import ask
from framework_http.openai.fields import options_of, sampling_of
from framework_http.openai.models import check_model
from framework_http.openai.reading import ends_of, reader_for
from framework_http.openai.structures import structured
from framework_http.openai.tools import Calls, calls_of, check_functions

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.service import Service
    from framework.engine.outputs import RequestOutput
    from framework_http.openai.shapes import Usage

Parts = AsyncGenerator[tuple[int, "RequestOutput", "Usage"], None]
FORM = sse.Form(encode=sse.named, fault=fault_item, idle=sse.named({"type": "ping"}))


class Messages(Endpoint):
    """POST /v1/messages and /v1/messages/count_tokens."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter(prefix="/v1/messages", route_class=AnthropicRoute)

        @router.post("")
        async def create(fields: MessageFields, request: Request) -> fastapi.Response:
            parts, answer = await _ask(service, fields, request)
            events = _events(parts, answer)
            if fields.streams:
                return await sse.stream(events, request, FORM)
            return ask.answer(await unless_gone(request, _whole(events, answer)))

        @router.post("/count_tokens")
        async def count(fields: CountFields) -> dict[str, int]:
            check_model(service, fields.model)
            prompt = await _render(service, fields, limited=False)
            return {"input_tokens": len(prompt["prompt_token_ids"])}

        return router


async def _ask(service: Service, fields: MessageFields, request: Request) -> tuple[Parts, Answer]:
    model = check_model(service, fields.model)
    functions = fields.functions()
    check_functions(functions)
    choice, name = fields.chooses
    calls = calls_of(service, functions, choice, name=name, one_call=fields.one_call)
    if fields.thinking is not None and fields.thinking.type == "enabled":
        _check_thinking(service)
    sampling = _sampling(fields, service, calls)
    options = options_of(fields, request, service)
    prompt = await _render(service, fields)
    if fields.cache_salt is not None:
        prompt["cache_salt"] = fields.cache_salt
    ends = await ends_of(service, calls.marked and fields.skip_special_tokens is None)
    reader = reader_for(service, prompt["prompt"], calls, one_call=fields.one_call, ends=ends)
    return ask.parts(service, [prompt], sampling, options), Answer(model, reader)


def _sampling(fields: MessageFields, service: Service, calls: Calls) -> SamplingParams:
    sampling = sampling_of(fields, service, max_tokens=fields.max_tokens, logprobs=None)
    changes: dict[str, Any] = {"output_kind": OutputKind.DELTA}
    if fields.stop_sequences:
        changes["stop"] = fields.stop_sequences
    if fields.budget is not None:
        changes["thinking_token_budget"] = fields.budget
    if calls.marked and fields.skip_special_tokens is None:
        changes["skip_special_tokens"] = False
    return structured(sampling.replace(**changes), None, "", calls)


def _check_thinking(service: Service) -> None:
    if service.reasoning_parser is None:
        raise UnsupportedError(
            "thinking is not supported: the server was started without a reasoning parser",
            expected='no thinking, or thinking={"type": "disabled"}',
            mend="start it with --reasoning-parser NAME; see `framework plugins list`",
        )


async def _render(service: Service, fields: CountFields, *, limited: bool = True) -> dict[str, Any]:
    """The prompt.  A conversation that ends with the model's own words is continued there."""
    messages = messages_of(fields.messages, fields.system)
    goes_on = messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls")
    return await service.render_chat(
        messages,
        tools=fields.functions() or None,
        chat_template_kwargs=fields.variables,
        add_generation_prompt=not goes_on,
        continue_final_message=goes_on,
        limited=limited,
    )


async def _events(parts: Parts, answer: Answer) -> AsyncGenerator[Item, None]:
    """The events of an answer; raises what its request raises."""
    begun = False
    async with aclosing(parts):
        async for _, output, usage in parts:
            if not begun:
                begun = True
                for item in answer.begin(usage):
                    yield item
            for item in answer.take(output.outputs[0], usage):
                yield item
    for item in answer.end():
        yield item


async def _whole(events: AsyncGenerator[Item, None], answer: Answer) -> Item:
    """The answer that the events tell of."""
    async with aclosing(events):
        async for _ in events:
            pass
    return answer.body()
