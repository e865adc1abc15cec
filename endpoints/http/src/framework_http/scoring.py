"""`endpoint:scoring`: how near texts are to each other, by the vectors of an embedding model."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import fastapi
import numpy as np
from fastapi import Request
from pydantic import Field
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

MOST_TEXTS = 2048
PROCESSOR = "embedding"
"""The IO processor that reads the texts."""


class ScoreFields(RequestFields):
    """The body of POST /score: one text against each of several, or pairs of two equal lists."""

    text_1: str | Items[str]
    text_2: str | Items[str]
    truncate_prompt_tokens: int | None = None

    def pairs(self) -> tuple[list[str], list[str]]:
        """Equally many of each.  Raises InputError for numbers that do not fit."""
        left = [self.text_1] if isinstance(self.text_1, str) else self.text_1
        right = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        _check_texts("text_1", left)
        _check_texts("text_2", right)
        if len(left) == 1:
            left = left * len(right)
        if len(left) != len(right):
            raise InputError(
                "the texts do not pair",
                parameter="text_2",
                expected=f"one text_1, or as many as text_2 ({len(right)})",
                found=len(left),
            )
        return left, right


class RerankFields(RequestFields):
    """The body of POST /rerank.  top_n: of the nearest documents; 0 or none: all."""

    query: str
    documents: Items[str]
    top_n: int | None = Field(default=None, ge=0)
    return_documents: bool | None = None
    truncate_prompt_tokens: int | None = None


class Scoring(Endpoint):
    """POST /score and /rerank, also under /v1 (and /v2/rerank): cosines of embeddings."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter()

        @router.post("/score")
        @router.post("/v1/score")
        async def score(fields: ScoreFields, request: Request) -> Response:
            model = check_model(service, fields.model)
            left, right = fields.pairs()
            texts = [*_named("text_1", left), *_named("text_2", right)]
            found = await _vectors(service, texts, fields, request)
            if found is None:
                return answer(None)
            cosines = await asyncio.to_thread(_cosines, found[: len(left)], found[len(left) :])
            data = [
                {"index": index, "object": "score", "score": cosine}
                for index, cosine in enumerate(cosines)
            ]
            return answer({**_head("score", model, found), "object": "list", "data": data})

        @router.post("/rerank")
        @router.post("/v1/rerank")
        @router.post("/v2/rerank")
        async def rerank(fields: RerankFields, request: Request) -> Response:
            model = check_model(service, fields.model)
            _check_texts("query", [fields.query])
            _check_texts("documents", fields.documents)
            texts = [("query", fields.query), *_named("documents", fields.documents)]
            found = await _vectors(service, texts, fields, request)
            if found is None:
                return answer(None)
            cosines = await asyncio.to_thread(_cosines, found[:1], found[1:])
            return answer({**_head("rerank", model, found), "results": _ranked(cosines, fields)})

        return router


async def _vectors(
    service: Service,
    texts: Sequence[tuple[str, str]],
    fields: ScoreFields | RerankFields,
    request: Request,
) -> list[EmbeddingOutput] | None:
    """Of length 1, one per text; None when the client went away.  Each text is computed once.
    texts: (where it stands in the request, the text)."""
    places: dict[str, str] = {}
    for place, text in texts:
        places.setdefault(text, place)
    distinct = list(places)
    params = PoolingParams(normalize=True, truncate_prompt_tokens=fields.truncate_prompt_tokens)
    work = service.ask(PROCESSOR, distinct, params, options_of(fields, request, service))
    try:
        outputs = await unless_gone(request, work)
    except InputError as error:
        if error.parameter is None or not error.parameter.startswith("prompt"):
            raise
        raise _placed(error, list(places.values())) from None
    if outputs is None:
        return None
    by_text = dict(zip(distinct, outputs, strict=True))
    return [by_text[text] for _, text in texts]


_NUMBER = re.compile(r"prompt (\d+): ")
"""How an error names one of several prompts."""


def _placed(error: InputError, places: Sequence[str]) -> InputError:
    """The error of a prompt, as one of the text that it was.  places: of all prompts."""
    found = _NUMBER.match(error.message)
    place = places[int(found[1]) if found else 0]
    return type(error)(
        f"{place}: {error.message[found.end() if found else 0 :]}",
        parameter=place.partition("[")[0],
        expected=error.expected,
        found=error.found,
        mend=error.mend,
    )


def _named(parameter: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{parameter}[{index}]", text) for index, text in enumerate(texts)]


def _cosines(left: Sequence[EmbeddingOutput], right: Sequence[EmbeddingOutput]) -> list[float]:
    """left: as many as right, or one for all."""
    one, two = (np.stack([output.embedding for output in side]) for side in (left, right))
    found: list[float] = (one * two).sum(axis=-1).tolist()
    return found


def _ranked(cosines: Sequence[float], fields: RerankFields) -> list[dict[str, Any]]:
    """The nearest first, and among equals the earlier."""
    order = sorted(range(len(cosines)), key=lambda index: -cosines[index])
    results = []
    for index in order[: fields.top_n or None]:
        result: dict[str, Any] = {"index": index, "relevance_score": cosines[index]}
        if fields.return_documents is not False:
            result["document"] = {"text": fields.documents[index]}
        results.append(result)
    return results


def _head(kind: str, model: str, found: Sequence[EmbeddingOutput]) -> dict[str, Any]:
    tokens = sum({id(one): len(one.prompt_token_ids) for one in found}.values())
    return {
        "id": f"{kind}-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _check_texts(parameter: str, texts: Sequence[str]) -> None:
    if not 0 < len(texts) <= MOST_TEXTS:
        raise InputError(
            f"the number of {parameter} is wrong",
            parameter=parameter,
            expected=f"1 to {MOST_TEXTS} texts",
            found=len(texts),
        )
    if "" in texts:
        raise InputError(
            f"a text of {parameter} is empty",
            parameter=parameter,
            expected="texts that are not empty",
            found=f"an empty one at {texts.index('')}",
        )
