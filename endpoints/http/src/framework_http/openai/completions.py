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
from framework_http.openai.echo import Echo, echo_of, nothing
from framework_http.openai.fields import Fields, Items, options_of, refuse, sampling_of
from framework_http.openai.models import check_model
from framework_http.openai.scores import Scores, said_of_prompt
from framework_http.openai.shapes import Envelope, Usage, ending, usage_of
from framework_http.openai.structures import structure_of_format, structured

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.service import Service
    from framework.engine.outputs import CompletionOutput, RequestOutput

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
                return await sse.stream(
                    _chunks(service, parts, fields, envelope, sampling.n), request
                )
            found = await ask.whole(service, prompts, sampling, options, request)
            return await _answer(service, found, fields, envelope)

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


async def _answer(
    service: Service,
    found: list[RequestOutput] | None,
    fields: CompletionFields,
    envelope: Envelope,
) -> Response:
    if found is None:
        return ask.answer(None)
    choices = []
    for index, output in enumerate(found):
        echo = await _echo(service, output, fields)
        for one in output.outputs:
            place = len(output.outputs) * index + one.index
            choices.append(_Writer(place, fields, output, echo).choice(one))
    return ask.answer(envelope(choices, usage=usage_of(found)))


async def _echo(service: Service, output: RequestOutput, fields: CompletionFields) -> Echo:
    """Of the prompt, if it is to be given back; else of nothing."""
    scored, shown = fields.logprobs is not None, fields.skip_special_tokens is False
    if fields.echo:
        cut = fields.truncate_prompt_tokens is not None
        return await echo_of(service, output, shown=shown, scored=scored, cut=cut)
    return await nothing(service, shown=shown) if scored else Echo()


class _Writer:
    """Writes the parts of one output; the first says what is known of the prompt."""

    def __init__(
        self, index: int, fields: CompletionFields, first: RequestOutput, echo: Echo
    ) -> None:
        """first: the first output of the request, which tells of the prompt."""
        self._index, self._fields, self._first = index, fields, first
        self._scores = Scores(fields.logprobs or 0, echo)
        self._echo: Echo | None = echo

    def choice(self, one: CompletionOutput) -> dict[str, Any]:
        """The next part."""
        fields, begins = self._fields, self._echo is not None
        echo, self._echo = self._echo or Echo(), None
        scored = fields.logprobs is not None
        found: dict[str, Any] = {
            "index": self._index,
            "text": echo.text + one.text,
            "logprobs": self._scores.part(one.logprobs or (), echo) if scored else None,
            **ending(one),
        }
        if fields.return_token_ids:
            found["token_ids"] = one.token_ids
        return found | (said_of_prompt(self._first, fields) if begins else {})


async def _chunks(
    service: Service,
    parts: AsyncGenerator[tuple[int, RequestOutput, Usage], None],
    fields: CompletionFields,
    envelope: Envelope,
    n: int,
) -> AsyncGenerator[dict[str, Any], None]:
    usage = Usage()
    writers: dict[int, _Writer] = {}
    firsts: dict[int, tuple[RequestOutput, Echo]] = {}
    async with aclosing(parts):
        async for prompt, output, usage in parts:
            more = fields.counted(usage)
            if prompt not in firsts:  # which alone tells of the prompt
                firsts[prompt] = output, await _echo(service, output, fields)
            for one in output.outputs:
                index = prompt * n + one.index
                if index not in writers:
                    writers[index] = _Writer(index, fields, *firsts[prompt])
                yield envelope([writers[index].choice(one)], **more)
    if fields.usage_at_end:
        yield envelope([], usage=usage.as_dict())
