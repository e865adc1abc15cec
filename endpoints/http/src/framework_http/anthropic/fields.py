"""The bodies of POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from framework.errors import InputError
from framework_http.openai.fields import CommonFields, Items, Known, Tools, refuse

# What changes no answer here: the prefix cache needs no marks, and whoever serves is one place.
_IGNORED = ("metadata", "service_tier", "cache_control", "inference_geo", "user_profile_id")


class Thinking(Known):
    """Whether to think.  budget_tokens: after so many the model is made to answer."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=0, lt=2**31)
    display: str | None = None


class ToolChoice(Known):
    """How freely tools are chosen."""

    type: Literal["auto", "none", "any", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class CountFields(CommonFields):
    """A conversation as Anthropic's API writes it; beside its fields those of sampling may be
    given."""

    ignored: ClassVar[tuple[str, ...]] = _IGNORED

    messages: Items[dict[str, Any]] = Field(
        min_length=1, examples=[[{"role": "user", "content": "Hello"}]]
    )
    system: str | Items[dict[str, Any]] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def budget(self) -> int | None:
        """Most tokens of reasoning, None for any number."""
        if self.thinking is None or self.thinking.type != "enabled":
            return None
        return self.thinking.budget_tokens

    @property
    def variables(self) -> dict[str, Any] | None:
        """For the chat template.  Models that can leave out thinking know `enable_thinking`."""
        found = dict(self.chat_template_kwargs or {})
        if self.thinking is not None:
            found.setdefault("enable_thinking", self.thinking.type != "disabled")
        return found or None

    def functions(self) -> list[dict[str, Any]]:
        """The tools as chat completions write them.  Raises UnsupportedError for one that the
        server would have to run, InputError for one that cannot be understood."""
        return [_function(tool, index) for index, tool in enumerate(self.tools or ())]

    @property
    def chooses(self) -> tuple[str, str | None]:
        """The choice of tools, and the name of one, as `calls_of` takes them."""
        choice = self.tool_choice
        if choice is None:
            return "auto", None
        return {"any": "required", "tool": "named"}.get(choice.type, choice.type), choice.name


class MessageFields(CountFields):
    """Asks for an answer."""

    max_tokens: int
    stop_sequences: Items[str] | None = None

    @property
    def one_call(self) -> bool:
        """Whether tools are to be called one at a time."""
        choice = self.tool_choice
        return choice is not None and bool(choice.disable_parallel_tool_use)


def _function(tool: dict[str, Any], index: int) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        kind = repr(tool["type"])
        raise refuse(f"a tool of type {kind:.40}", "the server runs no tools; give an input_schema")
    name, schema = tool.get("name"), tool.get("input_schema")
    whole = isinstance(name, str) and isinstance(schema, dict)
    if not whole or tool["input_schema"].get("type", "object") != "object":
        raise InputError(
            f"tools[{index}] is not understood",
            parameter="tools",
            expected='{"name": "...", "input_schema": {"type": "object", ...}}',
            found=f"the name {name!r:.60} and the input_schema {schema!r:.80}",
        )
    function = {"name": name, "parameters": schema}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    return {"type": "function", "function": function}
