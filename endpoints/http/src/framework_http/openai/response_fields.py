"""The body of POST /v1/responses, and what of it cannot be served."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, WithJsonSchema

from framework.errors import InputError
from framework_http.openai.fields import (
    IGNORED,
    CommonFields,
    Items,
    Known,
    ReasoningEffort,
    Tools,
    refuse,
)

LOGPROBS = "message.output_text.logprobs"
# Reasoning is given back as plain text, so that there is nothing to encrypt.
_INCLUDE = (LOGPROBS, "reasoning.encrypted_content")
_STATE = "the server keeps nothing from one request to the next; send the whole conversation"


def _texts(given: dict[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if not isinstance(value, str):
            raise ValueError(f"the value of {name!r:.80} is no text")
    return given


Texts = Annotated[
    dict[str, Any],
    AfterValidator(_texts),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]
"""Looked at up to the first that is wrong, see `Items`."""


class TextOptions(Known):
    """How the text is to look."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningOptions(Known):
    """How much to think, and what to tell of it."""

    effort: ReasoningEffort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponseFields(CommonFields):
    """See OpenAI's Responses API; beside its fields those of sampling may be given."""

    ignored: ClassVar[tuple[str, ...]] = (*IGNORED, "max_tool_calls", "stream_options")

    input: str | Items[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    tools: Tools | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: Items[str] | None = None
    metadata: Texts | None = None
    user: str | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def refuse_unserved(self) -> None:
        """Raises UnsupportedError or InputError for a field that asks for what is not there."""
        for name in ("previous_response_id", "conversation", "prompt", "store", "background"):
            if getattr(self, name):
                raise refuse(name, _STATE)
        if self.truncation == "auto":
            raise refuse("truncation", "a conversation is never shortened; leave out old items")
        text = self.text or TextOptions()
        if text.verbosity not in (None, "medium"):
            raise refuse("text.verbosity", "no model here knows it")
        thinks = self.reasoning or ReasoningOptions()
        if {thinks.summary, thinks.generate_summary} - {None, "auto"}:
            raise refuse("a summary of the reasoning", "the reasoning itself is given")
        for name in self.include or ():
            if name not in _INCLUDE:
                raise refuse(f"include {name!r:.60}", f"known: {', '.join(_INCLUDE)}")

    @property
    def num_logprobs(self) -> int | None:
        """Raises InputError for top_logprobs without logprobs."""
        if LOGPROBS in (self.include or ()):
            return self.top_logprobs or 0
        if self.top_logprobs:
            raise InputError(
                f'top_logprobs needs include=["{LOGPROBS}"]',
                parameter="top_logprobs",
                found="no logprobs",
            )
        return None

    def functions(self) -> list[dict[str, Any]]:
        """The tools as chat completions write them.  Raises UnsupportedError for one that the
        server would have to run, InputError for one that cannot be understood."""
        return [_function(tool, index) for index, tool in enumerate(self.tools or ())]


def _function(tool: dict[str, Any], index: int) -> dict[str, Any]:
    if tool.get("type") != "function":
        kind = repr(tool.get("type"))
        raise refuse(f"a tool of type {kind:.40}", "the server runs no tools; declare functions")
    if not isinstance(tool.get("name"), str):
        raise InputError(
            f"tools[{index}] has no name",
            parameter="tools",
            expected='{"type": "function", "name": "...", "parameters": {...}}',
        )
    keys = ("name", "description", "parameters", "strict")
    function = {key: tool[key] for key in keys if tool.get(key) is not None}
    return {"type": "function", "function": function}
