"""`endpoint:embeddings`: texts as vectors."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import fastapi
import numpy as np
from fastapi import Request
from starlette.responses import Response

from framework.contracts.endpoint import Endpoint
from framework.contracts.pooling import PoolingParams
from framework.errors import InputError
from framework_http.leaving import unless_gone
from framework_http.openai.ask import answer
from framework_http.openai.fields import Items, RequestFields, options_of
from framework_http.openai.models import check_model

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.engine.outputs import EmbeddingOutput

MOST_INPUTS = 2048
PROCESSOR = "embedding"
"""The IO processor that reads the inputs."""


class InputFields(RequestFields):
    """Of whatever is made of whole texts."""

    input: str | Items[str] | Items[int] | Items[Items[int]]
    truncate_prompt_tokens: int | None = None

    def inputs(self) -> list[object]:
        """One input or several.  Raises InputError for none and for too many."""
        given = self.input
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            return [given]
        if not 0 < len(given) <= MOST_INPUTS:
            raise InputError(
                "the number of inputs is wrong",
                parameter="input",
                expected=f"1 to {MOST_INPUTS} inputs",
                found=len(given),
            )
        return list(given)


class EmbeddingFields(InputFields):
    """The body of POST /v1/embeddings.  normalize: as in `PoolingParams`."""

    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    normalize: bool | None = None

    def pooling(self) -> PoolingParams:
        """Raises InputError that names the field."""
        return PoolingParams(
            dimensions=self.dimensions,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            normalize=self.normalize,
        )


class Embeddings(Endpoint):
    """POST /v1/embeddings, and POST /pooling with vLLM's form of the same answer."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter()

        @router.post("/v1/embeddings")
        async def embeddings(fields: EmbeddingFields, request: Request) -> Response:
            return await respond("embedding", "embedding", fields, request)

        @router.post("/pooling")
        async def pooling(fields: EmbeddingFields, request: Request) -> Response:
            return await respond("pooling", "data", fields, request)

        async def respond(
            kind: str, name: str, fields: EmbeddingFields, request: Request
        ) -> Response:
            model = check_model(service, fields.model)
            found = await pooled(service, fields, fields.pooling(), request)
            if found is None:
                return answer(None)
            # Thousands of vectors take a while to be written.
            return await asyncio.to_thread(
                _answer, found, model, fields.encoding_format, kind, name
            )

        return router


async def pooled(
    service: Service, fields: InputFields, params: PoolingParams, request: Request
) -> list[EmbeddingOutput] | None:
    """What is made of each input; None when the client went away."""
    work = service.ask(PROCESSOR, fields.inputs(), params, options_of(fields, request, service))
    try:
        return await unless_gone(request, work)
    except InputError as error:
        # What the engine calls a prompt is called an input here.
        if error.parameter is not None and error.parameter.startswith("prompt"):
            error.parameter = "input"
        raise


def _answer(
    found: Sequence[EmbeddingOutput], model: str, encoding: str | None, kind: str, name: str
) -> Response:
    """kind: what each vector is called; name: of the field that holds it."""
    tokens = sum(len(one.prompt_token_ids) for one in found)
    return answer(
        {
            "object": "list",
            "data": [
                {"object": kind, "index": index, name: _written(one, encoding)}
                for index, one in enumerate(found)
            ],
            "model": model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def _written(one: EmbeddingOutput, encoding: str | None) -> Any:
    """A list of numbers; or float32, little-endian, in base64."""
    if encoding == "base64":
        return base64.b64encode(one.embedding.astype(np.dtype("<f4")).tobytes()).decode()
    return one.embedding.tolist()
