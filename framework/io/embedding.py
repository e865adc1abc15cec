"""`io_processor:embedding`: one prompt or several, each to become a vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading
from framework.engine.outputs import EmbeddingOutput
from framework.engine.prompts import of_each, parse_prompt, split_prompts
from framework.errors import InputError, RequestError

if TYPE_CHECKING:
    from framework.contracts.io_processor import Task
    from framework.engine.outputs import RequestOutput


class EmbeddingProcessor(IOProcessor):
    """A request is a `framework.Prompt` or a list of prompts; the answer is a list with an
    EmbeddingOutput for each."""

    task: ClassVar[Task] = "embed"
    examples: ClassVar[Sequence[Any]] = ("hi", ["hi", "ho"], [[1, 2], [3]])

    def read(self, request: Any, place: Place) -> Reading:
        prompts = split_prompts(request)
        if not prompts:
            raise InputError("there is nothing to embed", parameter="prompt", expected="a prompt")
        return Reading(prompts=tuple(of_each(prompts, lambda prompt: _read(prompt, place))))

    def answer(
        self, request: Any, reading: Reading, outputs: Sequence[RequestOutput]
    ) -> list[EmbeddingOutput]:
        return [_vector(output) for output in outputs]


def _read(prompt: object, place: Place) -> EnginePrompt:
    parsed = parse_prompt(prompt)
    keep = place.params.truncate_prompt_tokens
    most = place.max_tokens if keep == -1 else keep
    if parsed.ids is not None:
        embeds = None if parsed.embeds is None else parsed.embeds[:most]
        return EnginePrompt(ids=parsed.ids[:most], text=parsed.text, embeds=embeds)
    text = parsed.text or ""
    if not text:
        raise InputError("the prompt is empty", parameter="prompt", expected="a text or ids")
    if place.limit is not None:
        place.limit.check(text)
    ids = place.tokenizer.encode(text)
    if most is not None and len(ids) > most:
        ids = _cut(ids, place.tokenizer.encode(text, add_special_tokens=False), most)
    return EnginePrompt(ids=ids, text=text)


def _cut(ids: list[int], bare: list[int], most: int) -> list[int]:
    """The first `most` of ids, with what the tokenizer puts around the text itself, `bare`:

    [CLS] a b c d [SEP]  ->  [CLS] a b [SEP]
    """
    around = len(ids) - len(bare)
    for before in range(around + 1):
        after = around - before
        if ids[before : before + len(bare)] == bare and around < most:
            return [*ids[: most - after], *ids[len(ids) - after :]]
    return ids[:most]


def _vector(output: RequestOutput) -> EmbeddingOutput:
    if output.pooled is None:
        [ended] = output.outputs
        raise ended.error or RequestError(
            f"request {output.request_id} brought no embedding",
            expected="a vector",
            found=f"its end by {ended.finish_reason}",
        )
    return EmbeddingOutput(
        request_id=output.request_id,
        prompt=output.prompt,
        prompt_token_ids=output.prompt_token_ids,
        embedding=output.pooled,
        metrics=output.metrics,
    )
