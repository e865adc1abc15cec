"""An IO processor: texts, ranked by how much they are like a question.

With an embedding model: LLM(MODEL, io_processors=["rank"]).ask("rank", request), where a request is
{"query": "Who sleeps?", "texts": ["A cat sleeps.", "Taxes are due."]}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading, known_keys
from framework.contracts.pooling import PoolingParams
from framework.errors import InputError, RequestError

if TYPE_CHECKING:
    from framework.engine.outputs import RequestOutput


class Rank(IOProcessor):
    """Answers [{"index": of the text, "score": cosine of question and text}, ...], best first."""

    task = "embed"
    examples = (
        {"query": "cat", "texts": ["cats", "dogs"]},
        {"query": "x", "texts": ["only one"]},
    )

    def read(self, request: Any, place: Place) -> Reading:
        given = known_keys(request, {"query": None, "texts": None})
        query, texts = given["query"], given["texts"]
        if not isinstance(texts, list) or not texts:
            raise InputError("texts is invalid", parameter="texts", expected="a list of strings")
        prompts = [_prompt("query", query, place)]
        prompts += [_prompt(f"texts[{n}]", text, place) for n, text in enumerate(texts)]
        # Of length 1, so that a product is a cosine, whatever the model does by itself.
        return Reading(prompts=tuple(prompts), params=PoolingParams(normalize=True))

    def answer(self, request: Any, reading: Reading, outputs: Sequence[RequestOutput]) -> Any:
        vectors = []
        for output in outputs:
            if output.pooled is None:
                [ended] = output.outputs
                why = f"request {output.request_id} brought no vector"
                raise ended.error or RequestError(why, found=ended.finish_reason)
            vectors.append(output.pooled)
        scores = [float(vectors[0] @ vector) for vector in vectors[1:]]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return [{"index": index, "score": scores[index]} for index in order]


def _prompt(name: str, text: Any, place: Place) -> EnginePrompt:
    if not isinstance(text, str) or not text:
        raise InputError(f"{name} is invalid", parameter=name, expected="a string, not empty")
    if place.limit is not None:
        place.limit.check(text)
    return EnginePrompt(ids=place.tokenizer.encode(text), text=text)
