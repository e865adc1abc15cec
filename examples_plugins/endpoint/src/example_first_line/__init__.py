"""`endpoint:first_line`: the first line that the model writes."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.endpoint import Endpoint
from framework.contracts.sampling import SamplingParams

if TYPE_CHECKING:
    from framework.contracts.service import Service

GONE = 499
"""What proxies log for a client that went away."""


class Asked(BaseModel):
    """The body.  Whatever does not fit is a 400 that says so; the host sees to that."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str = Field(min_length=1, examples=["Once upon a time"])
    max_tokens: int = Field(default=64, ge=1)


class FirstLine(Endpoint):
    """POST /first_line."""

    def routes(self, service: Service) -> APIRouter:
        """See Endpoint."""
        router = APIRouter()

        @router.post("/first_line")
        async def first_line(asked: Asked, request: Request) -> Response:
            # The server does not cancel a handler whose client goes away.
            writing = asyncio.create_task(_write(service, asked))
            leaving = asyncio.create_task(_leaves(request))
            try:
                await asyncio.wait((writing, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not writing.done():
                    return Response(status_code=GONE)
                return JSONResponse({"line": writing.result()})
            finally:
                for task in (writing, leaving):
                    task.cancel()
                await asyncio.gather(writing, leaving, return_exceptions=True)

        return router


async def _write(service: Service, asked: Asked) -> str:
    """Errors of the engine pass through to the host.  Closing the iterator ends the request."""
    sampling = SamplingParams(max_tokens=asked.max_tokens, stop="\n")
    text = ""
    async with aclosing(service.generate(asked.prompt, sampling)) as outputs:
        async for output in outputs:
            text = output.outputs[0].text
    return text


async def _leaves(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
