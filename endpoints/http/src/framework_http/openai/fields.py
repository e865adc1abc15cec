"""Fields that the endpoints share, and the sampling parameters that follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from framework.contracts.sampling import OutputKind, SamplingParams
from framework.engine.request_options import RequestOptions
from framework.errors import InputError, UnsupportedError
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework_http.openai.shapes import Usage

IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
"""Fields of OpenAI's service that change no answer here."""

_SAMPLING = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "include_stop_str_in_output",
    "min_tokens",
    "prompt_logprobs",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "bad_words",
    "allowed_token_ids",
    "truncate_prompt_tokens",
    "structured_outputs",
    "stream_interval",
    "thinking_token_budget",
)

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""As OpenAI's API knows them; what a model makes of one is its template's business."""

T = TypeVar("T")
Items = Annotated[list[T], Field(fail_fast=True)]
"""Looked at up to the first that is wrong: each error takes a kilobyte, and a body has room for
millions."""
MOST_TOOLS = 4096
Tools = Annotated[list[dict[str, Any]], Field(fail_fast=True, max_length=MOST_TOOLS)]
"""Each is looked at on the event loop, where hundreds of thousands would keep others waiting."""
Biases = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}}),
]
"""Values are looked at by `SamplingParams`, which stops at the first, too."""


class Known(BaseModel):
    """A part of a body that knows all its fields, but for those that are `ignored`.  pydantic's
    extra="forbid" makes an error of each that is unknown; here the first is told."""

    model_config = ConfigDict(extra="allow", strict=True)
    ignored: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _know_every_field(self) -> Self:
        known = type(self).model_fields
        for name in self.model_extra or {}:
            if name not in self.ignored:
                raise ValueError(f"unknown field {name!r:.80}{did_you_mean(name, known)}")
        return self


class StreamOptions(Known):
    """include_usage: a last chunk with the counts.  continuous_usage_stats: in every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class RequestFields(Known):
    """Of every request to the model, in whatever API; null means that a field was not given."""

    ignored: ClassVar[tuple[str, ...]] = IGNORED

    model: str | None = None
    priority: int | None = None
    request_id: str | None = None
    deadline: float | None = None


class CommonFields(RequestFields):
    """Of every request for text."""

    stream: bool | None = None
    stream_interval: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop_token_ids: Items[int] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    logit_bias: Biases | None = None
    bad_words: Items[str] | None = None
    allowed_token_ids: Items[int] | None = None
    structured_outputs: dict[str, Any] | None = None
    thinking_token_budget: int | None = None
    cache_salt: str | None = None
    extra_args: dict[str, Any] | None = None

    @property
    def streams(self) -> bool:
        return bool(self.stream)


class Fields(CommonFields):
    """Of completions and chat completions."""

    stream_options: StreamOptions | None = None
    n: int | None = None
    stop: str | Items[str] | None = None
    include_stop_str_in_output: bool | None = None
    max_tokens: int | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None
    return_token_ids: bool | None = None

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream=true")
        return self

    @property
    def usage_at_end(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def counted(self, usage: Usage) -> dict[str, Any]:
        """What a chunk before the last says of the counts: null, where only the last has them."""
        if not self.usage_at_end:
            return {}
        always = self.stream_options is not None and self.stream_options.continuous_usage_stats
        return {"usage": usage.as_dict() if always else None}


def sampling_of(
    fields: CommonFields, service: Service, *, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    """What the model recommends, changed by what was given.

    max_tokens: None is the rest of the context.  Raises InputError.
    """
    given = {name: getattr(fields, name, None) for name in _SAMPLING}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if fields.logit_bias:
        changes["logit_bias"] = _bias(fields.logit_bias)
    if fields.extra_args:
        changes["extra_args"] = fields.extra_args
    kind = OutputKind.DELTA if fields.streams else OutputKind.FINAL_ONLY
    return service.default_sampling().replace(
        **changes, max_tokens=max_tokens, logprobs=logprobs, output_kind=kind
    )


def _bias(given: dict[str, Any]) -> dict[int, Any]:
    try:
        return {int(token): value for token, value in given.items()}
    except ValueError as error:
        raise InputError(
            "logit_bias is invalid",
            parameter="logit_bias",
            expected='token ids as keys, as in {"42": -100}',
            found=f"{list(given)[:3]!r:.80}",
        ) from error


def options_of(fields: RequestFields, request: Request, service: Service) -> RequestOptions:
    """Who asks, of which adapter, how urgently, until when.  Raises InputError."""
    state = request.scope.get("state", {})
    return RequestOptions(
        request_id=fields.request_id or state.get("request_id"),
        priority=fields.priority or 0,
        adapter=None if fields.model in service.model_names else fields.model,
        tenant=state.get("tenant", ""),
        deadline=fields.deadline if fields.deadline is not None else _deadline(request),
        trace_headers={
            name: request.headers[name]
            for name in ("traceparent", "tracestate")
            if name in request.headers
        },
    )


def _deadline(request: Request) -> float | None:
    text = request.headers.get("x-request-deadline")
    if text is None:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise InputError(
            "the header X-Request-Deadline is invalid",
            parameter="deadline",
            expected="seconds from now",
            found=f"{text!r:.40}",
        ) from error


def refuse(name: str, reason: str) -> UnsupportedError:
    """The error for a field that this engine cannot serve."""
    return UnsupportedError(f"{name} is not supported: {reason}", expected=f"no {name}")
