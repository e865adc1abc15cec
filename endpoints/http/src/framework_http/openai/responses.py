"""`endpoint:responses`: OpenAI's Responses API, without state between requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import fastapi
from fastapi import HTTPException, Request

from framework.contracts.endpoint import Endpoint
from framework.contracts.sampling import OutputKind
from framework.errors import FrameworkError
from framework_http import sse
from framework_http.faults import told
from framework_http.leaving import unless_gone
from framework_http.openai import ask
from framework_http.openai.fields import options_of, sampling_of
from framework_http.openai.models import check_model
from framework_http.openai.reading import ends_of, reader_for
from framework_http.openai.response_fields import ResponseFields
from framework_http.openai.response_input import messages_of
from framework_http.openai.response_items import Event, Response
from framework_http.openai.structures import structure_of_format, structured
from framework_http.openai.tools import calls_of, check_functions, choice_of

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.engine.outputs import RequestOutput
    from framework_http.openai.shapes import Usage

FORM = sse.Form(encode=sse.named)
Parts = AsyncGenerator[tuple[int, "RequestOutput", "Usage"], None]


class Responses(Endpoint):
    """POST /v1/responses.  Nothing is kept: what would look a response up is a 404."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter(prefix="/v1/responses")

        @router.post("")
        async def create(fields: ResponseFields, request: Request) -> fastapi.Response:
            parts, response = await _ask(service, fields, request)
            events = _events(service, parts, response)
            if fields.streams:
                return await sse.stream(_told(events, response), request, FORM)
            return ask.answer(await unless_gone(request, _whole(events, response)))

        @router.get("/{response_id}")
        @router.delete("/{response_id}")
        @router.post("/{response_id}/cancel")
        async def look_up(response_id: str) -> None:
            raise HTTPException(404, "responses are not kept, and so none can be looked up")

        return router


async def _ask(
    service: Service, fields: ResponseFields, request: Request
) -> tuple[Parts, Response]:
    model = check_model(service, fields.model)
    fields.refuse_unserved()
    tools = fields.functions()
    check_functions(tools)
    one_call = fields.parallel_tool_calls is False
    choice, name = choice_of(fields.tool_choice)
    calls = calls_of(service, tools, choice, name=name, one_call=one_call)
    sampling = sampling_of(
        fields, service, max_tokens=fields.max_output_tokens, logprobs=fields.num_logprobs
    ).replace(output_kind=OutputKind.DELTA)
    if calls.marked and fields.skip_special_tokens is None:
        sampling = sampling.replace(skip_special_tokens=False)
    form = structure_of_format(fields.text and fields.text.format, "text.format")
    sampling = structured(sampling, form, "text.format", calls)
    options = options_of(fields, request, service)
    variables = dict(fields.chat_template_kwargs or {})
    if fields.reasoning is not None and fields.reasoning.effort:
        variables["reasoning_effort"] = fields.reasoning.effort
    prompt = await service.render_chat(
        messages_of(fields.input, fields.instructions),
        tools=tools or None,
        chat_template_kwargs=variables or None,
    )
    if fields.cache_salt is not None:
        prompt["cache_salt"] = fields.cache_salt
    ends = await ends_of(service, calls.marked and fields.skip_special_tokens is None)
    reader = reader_for(service, prompt["prompt"], calls, one_call=one_call, ends=ends)
    response = Response(fields, sampling, model, reader)
    return ask.parts(service, [prompt], sampling, options), response


async def _events(
    service: Service, parts: Parts, response: Response
) -> AsyncGenerator[Event, None]:
    """The events of a response; raises what its request raises."""
    begun = False
    async with aclosing(parts):
        async for _, output, usage in parts:
            if not begun:
                begun = True
                for event in response.begin():
                    yield event
            for event in response.take(output.outputs[0], usage):
                yield event
    thought = response.reasoning
    count = await service.with_tokenizer(
        lambda tokenizer: len(tokenizer.encode(thought, add_special_tokens=False)) if thought else 0
    )
    for event in response.end(count):
        yield event


async def _told(
    events: AsyncGenerator[Event, None], response: Response
) -> AsyncGenerator[Event, None]:
    """The same, but what goes wrong after the first event is an event too."""
    begun = False
    try:
        async with aclosing(events):
            async for event in events:
                begun = True
                yield event
    except FrameworkError as error:
        if not begun:
            raise
        for event in response.fail(told(error)):
            yield event


async def _whole(events: AsyncGenerator[Event, None], response: Response) -> dict[str, Any]:
    """The response that the events tell of."""
    async with aclosing(events):
        async for _ in events:
            pass
    return response.body()
