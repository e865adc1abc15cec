"""`endpoint:classification`: which class a text is of, by a model with a head for classes."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import fastapi
from fastapi import Request
from starlette.responses import Response

from framework.contracts.endpoint import Endpoint
from framework.contracts.pooling import PoolingParams
from framework_http.openai.ask import answer
from framework_http.openai.embeddings import InputFields, pooled
from framework_http.openai.models import check_model

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.engine.outputs import EmbeddingOutput


class ClassifyFields(InputFields):
    """The body of POST /classify.  use_activation: as in `PoolingParams`."""

    use_activation: bool | None = None


class Classification(Endpoint):
    """POST /classify, also under /v1: for each input the likeliest class, and the probabilities of
    all."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter()

        @router.post("/classify")
        @router.post("/v1/classify")
        async def classify(fields: ClassifyFields, request: Request) -> Response:
            model = check_model(service, fields.model)
            params = PoolingParams(
                task="classify",
                truncate_prompt_tokens=fields.truncate_prompt_tokens,
                use_activation=fields.use_activation,
            )
            found = await pooled(service, fields, params, request)
            if found is None:
                return answer(None)
            return await asyncio.to_thread(_answer, found, service.class_labels, model)

        return router


def _answer(found: Sequence[EmbeddingOutput], labels: Sequence[str], model: str) -> Response:
    tokens = sum(len(one.prompt_token_ids) for one in found)
    return answer(
        {
            "id": f"classify-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": model,
            "data": [
                {
                    "index": index,
                    "label": labels[int(one.embedding.argmax())],
                    "probs": one.embedding.tolist(),
                    "num_classes": len(labels),
                }
                for index, one in enumerate(found)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )
