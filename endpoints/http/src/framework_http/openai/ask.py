"""Ask the engine for one response, whole or in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from framework.errors import EngineDeadError, FrameworkError
from framework_http.leaving import gone, unless_gone
from framework_http.openai.shapes import Usage
from framework_http.sse import JSON

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.service import Service
    from framework.engine.outputs import RequestOutput
    from framework.engine.request_options import RequestOptions

MOST_WAITING = 256
"""Outputs of several prompts that wait for a slow client; what comes then waits in the engine's
shorter form, that of each prompt in its own."""

T = TypeVar("T")


async def whole(
    service: Service,
    prompts: Sequence[object],
    sampling: SamplingParams,
    options: RequestOptions,
    request: Request,
) -> list[RequestOutput] | None:
    """The final output of each prompt, all run together; None when the client went away.

    Raises what any of them raises or ended with, and then ends the others.
    """

    async def last(prompt: object) -> RequestOutput:
        found = None
        async with aclosing(service.generate(prompt, sampling, options)) as outputs:
            async for output in outputs:
                found = check(output)
        if found is None:
            raise EngineDeadError("the engine gave no output")
        return found

    async def everything() -> list[RequestOutput]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(last(prompt)) for prompt in prompts]
        return [task.result() for task in tasks]

    try:
        return await unless_gone(request, everything())
    except* FrameworkError as errors:
        raise _first(errors) from None


async def parts(
    service: Service,
    prompts: Sequence[object],
    sampling: SamplingParams,
    options: RequestOptions,
) -> AsyncGenerator[tuple[int, RequestOutput, Usage], None]:
    """(index of the prompt, output, tokens counted so far) of all prompts as they come.

    Raises as `whole`, and ends all when it is closed.
    """
    if len(prompts) == 1:  # nothing to merge
        usage = Usage()
        async with aclosing(service.generate(prompts[0], sampling, options)) as outputs:
            async for output in outputs:
                usage.take(0, check(output))
                yield 0, output, usage
        return
    queue: asyncio.Queue[tuple[int, RequestOutput] | BaseException | None]
    queue = asyncio.Queue(MOST_WAITING)

    async def run(index: int, prompt: object) -> None:
        try:
            async with aclosing(service.generate(prompt, sampling, options)) as outputs:
                async for output in outputs:
                    await queue.put((index, check(output)))
            await queue.put(None)
        except Exception as error:
            await queue.put(error)

    usage, left = Usage(), len(prompts)
    tasks = [asyncio.create_task(run(k, prompt)) for k, prompt in enumerate(prompts)]
    try:
        while left:
            item = await queue.get()
            if item is None:
                left -= 1
                continue
            if isinstance(item, BaseException):
                raise item
            index, output = item
            usage.take(index, output)
            yield index, output, usage
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(body: Mapping[str, Any] | None) -> Response:
    """A whole response; None: nobody waits for it any more."""
    if body is None:
        return gone()
    return Response(JSON.encode(body), media_type="application/json")


def check(output: RequestOutput) -> RequestOutput:
    """The output.  Raises the error with which the request ended, if it did."""
    for one in output.outputs:
        if one.error is not None:
            raise one.error
    return output


def _first(errors: BaseExceptionGroup[FrameworkError]) -> FrameworkError:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, FrameworkError)
    return found
