"""`endpoint:completions`: continue a text."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import fastapi
from fastapi import Request
from pydantic import ConfigDict
from starlette.responses import Response

from framework.contracts.endpoint import Endpoint
from framework.errors import InputError
from framework_http import sse
from framework_http.openai import ask
from framework_http.openai.fields import Fields, Items, options_of, refuse, sampling_of
from framework_http.openai.models import check_model
from framework_http.openai.shapes import Envelope, Usage, best, ending, finite, own, usage_of
from framework_http.openai.structures import structure_of_format, structured

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.service import Service
    from framework.engine.outputs import CompletionOutput, LogprobsAt, RequestOutput

MOST_PROMPTS = 2048
MOST_OUTPUTS = 16384
"""Of one request, over all its prompts."""


class CompletionFields(Fields):
    """The body of POST /v1/completions."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"prompt": "Hello"}]})

    prompt: str | Items[str] | Items[int] | Items[Items[int]] | None = None
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None
    best_of: int | None = None
    add_special_tokens: bool | None = None
    response_format: dict[str, Any] | None = None
    prompt_embeds: str | Items[str] | None = None

    def prompts(self) -> list[object]:
        """One prompt or several.  Raises InputError for none and for too many."""
        name, given = "prompt_embeds", self.prompt_embeds
        if given is None:
            name, given = "prompt", self.prompt
        if given is None:
            raise InputError(
                "prompt is missing",
                parameter="prompt",
                expected="a text, token ids, or a list of either; or prompt_embeds",
                found="none of them",
            )
        if isinstance(given, str) or (given and isinstance(given[0], int)):
            several: list[object] = [given]
        else:
            several = list(given)
        if not 0 < len(several) <= MOST_PROMPTS:
            raise InputError(
                "the number of prompts is wrong",
                parameter=name,
                expected=f"1 to {MOST_PROMPTS} prompts",
                found=len(several),
            )
        if len(several) * (self.n or 1) > MOST_OUTPUTS:
            raise InputError(
                "the number of outputs is wrong",
                parameter="n",
                expected=f"at most {MOST_OUTPUTS} outputs, prompts times n",
                found=f"{len(several)} prompts with n={self.n}",
            )
        return [self._whole(prompt) for prompt in several]

    def _whole(self, prompt: object) -> object:
        """With what the request says of all its prompts."""
        name = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
        if self.prompt_embeds is not None:
            name = "prompt_embeds"
        more = {"cache_salt": self.cache_salt, "add_special_tokens": self.add_special_tokens}
        return {name: prompt, **more}


class Completions(Endpoint):
    """POST /v1/completions."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        router = fastapi.APIRouter(prefix="/v1")

        @router.post("/completions")
        async def completions(fields: CompletionFields, request: Request) -> Response:
            model = check_model(service, fields.model)
            _refuse(fields)
            sampling = _sampling(fields, service)
            prompts, options = fields.prompts(), options_of(fields, request, service)
            envelope = Envelope("cmpl", "text_completion", model)
            if fields.streams:
                parts = ask.parts(service, prompts, sampling, options)
                return await sse.stream(_chunks(parts, fields, envelope, sampling.n), request)
            found = await ask.whole(service, prompts, sampling, options, request)
            return _answer(found, fields, envelope)

        return router


def _refuse(fields: CompletionFields) -> None:
    if fields.suffix:
        raise refuse("suffix", "no model here fills in the middle")
    if fields.prompt_embeds is not None:
        for name in ("prompt", "echo", "return_token_ids"):
            if getattr(fields, name):
                raise refuse(name, "prompt_embeds have neither text nor ids")
    if fields.best_of not in (None, fields.n or 1):
        raise refuse("best_of", "all n outputs are given back")


def _sampling(fields: CompletionFields, service: Service) -> SamplingParams:
    given = fields
    if fields.echo and fields.prompt_logprobs is None:
        if fields.logprobs is not None:
            given = fields.model_copy(update={"prompt_logprobs": fields.logprobs})
        elif fields.max_tokens == 0:  # the prompt alone; nothing is to be computed of it
            given = fields.model_copy(update={"prompt_logprobs": 0})
    sampling = sampling_of(given, service, max_tokens=fields.max_tokens, logprobs=fields.logprobs)
    form = structure_of_format(fields.response_format, "response_format")
    return structured(sampling, form, "response_format")


def _answer(
    found: list[RequestOutput] | None, fields: CompletionFields, envelope: Envelope
) -> Response:
    if found is None:
        return ask.answer(None)
    choices = [
        _whole(len(output.outputs) * index + one.index, one, output, fields)
        for index, output in enumerate(found)
        for one in output.outputs
    ]
    return ask.answer(envelope(choices, usage=usage_of(found)))


def _whole(
    index: int, one: CompletionOutput, output: RequestOutput, fields: CompletionFields
) -> dict[str, Any]:
    scored = output.prompt_logprobs if fields.echo else None
    choice = _choice(index, one, output, fields, scored=scored)
    if fields.prompt_logprobs is not None:
        choice["prompt_logprobs"] = _prompt_logprobs(output.prompt_logprobs)
    if fields.return_token_ids:
        choice["prompt_token_ids"] = output.prompt_token_ids
    return choice


def _choice(
    index: int,
    one: CompletionOutput,
    output: RequestOutput,
    fields: CompletionFields,
    start: int = 0,
    scored: list[LogprobsAt | None] | None = None,
) -> dict[str, Any]:
    """start: characters of it that were sent before.  scored: log-probabilities of the prompt,
    where it is given back with this part."""
    echoed = (output.prompt or "") if fields.echo and not start else ""
    entries = [*(scored or ()), *(one.logprobs or ())]
    choice: dict[str, Any] = {
        "index": index,
        "text": echoed + one.text,
        "logprobs": None if fields.logprobs is None else _logprobs(entries, fields.logprobs, start),
        **ending(one),
    }
    if fields.return_token_ids:
        choice["token_ids"] = one.token_ids
    return choice


def _logprobs(entries: list[LogprobsAt | None], most: int | None, offset: int) -> dict[str, Any]:
    """OpenAI's old shape: four lists over the tokens; None where nothing is known."""
    tokens: list[str | None] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for entry in entries:
        offsets.append(offset)
        if entry is None:
            tokens.append(None)
            values.append(None)
            tops.append(None)
            continue
        one = own(entry)
        tokens.append(one.decoded_token)
        values.append(finite(one.logprob))
        tops.append({c.decoded_token: finite(c.logprob) for c in best(entry, most or 0)})
        offset += len(one.decoded_token)
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": tops,
        "text_offset": offsets,
    }


def _prompt_logprobs(entries: list[LogprobsAt | None] | None) -> list[Any]:
    return [
        None
        if entry is None
        else {
            str(token): {
                "logprob": finite(one.logprob),
                "rank": one.rank,
                "decoded_token": one.decoded_token,
            }
            for token, one in entry.items()
        }
        for entry in entries or ()
    ]


async def _chunks(
    parts: AsyncGenerator[tuple[int, RequestOutput, Usage], None],
    fields: CompletionFields,
    envelope: Envelope,
    n: int,
) -> AsyncGenerator[dict[str, Any], None]:
    usage = Usage()
    offsets: dict[int, int] = {}
    scored: dict[int, list[LogprobsAt | None]] = {}
    async with aclosing(parts):
        async for prompt, output, usage in parts:
            more = {"usage": usage.as_dict()} if fields.usage_always else {}
            if output.prompt_logprobs is not None:
                scored[prompt] = output.prompt_logprobs
            for one in output.outputs:
                index = prompt * n + one.index
                begins = fields.echo and index not in offsets
                start = offsets.get(index, 0)
                known = scored.get(prompt) if begins else None
                choice = _choice(index, one, output, fields, start, known)
                offsets[index] = start + len(choice["text"])
                yield envelope([choice], **more)
    if fields.usage_at_end:
        yield envelope([], usage=usage.as_dict())
