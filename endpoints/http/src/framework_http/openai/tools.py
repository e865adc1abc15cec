"""What can be done of what a request says of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framework.errors import InputError, UnsupportedError
from framework.shown import is_whole, shown
from framework_http.openai.forced import (
    CallList,
    NamedCall,
    schema_of_arguments,
    schema_of_calls,
)

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.contracts.tool_parser import ToolStream


def check_functions(tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises InputError unless each tool is a function as chat completions write it."""
    for index, tool in enumerate(tools):
        found = _fault(tool)
        if found is not None:
            raise InputError(
                f"tools[{index}] is not understood",
                parameter="tools",
                expected='{"type": "function", "function": {"name": "...", '
                '"parameters": {"type": "object", ...}}}',
                found=found,
            )


def _fault(tool: Mapping[str, Any]) -> str | None:
    if tool.get("type") != "function":
        return f"the type {tool.get('type')!r:.60}"
    function = tool.get("function")
    if not isinstance(function, dict):
        return f"the function {function!r:.60}"
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name or not is_whole(name):
        return f"the name {name!r:.60}"
    if parameters is not None and not isinstance(parameters, dict):
        return f"the parameters {parameters!r:.60}"
    if parameters and parameters.get("type", "object") != "object":
        return f"parameters of type {parameters['type']!r:.60}; arguments are an object"
    return None


@dataclass(frozen=True, slots=True)
class Calls:
    """tools: those that the model may call.  structure: what makes it call one, None where it need
    not; stream: reads what it writes then, in place of the tool parser."""

    tools: Sequence[Mapping[str, Any]] = ()
    structure: dict[str, Any] | None = None
    stream: Callable[[], ToolStream] | None = None

    @property
    def marked(self) -> bool:
        """Calls may stand between special tokens."""
        return bool(self.tools) and self.stream is None


def calls_of(
    service: Service,
    tools: Sequence[Mapping[str, Any]],
    choice: str,
    *,
    name: str | None = None,
    one_call: bool = False,
) -> Calls:
    """Which calls the model may make.

    tools: all of the request, checked.  choice: "auto", "none", "required", or "named" with the
    `name` of a tool.  Raises InputError for a choice that cannot be, UnsupportedError for what
    cannot be served.
    """
    if choice == "none":
        return Calls()
    if choice == "auto":
        if tools and service.tool_parser is None:
            raise UnsupportedError(
                "tools are not supported: the server was started without a tool parser",
                expected='no tools, or tool_choice="none"',
                found=f"{len(tools)} tools",
                mend="start it with --tool-parser NAME; see `framework plugins list`",
            )
        return Calls(tools)
    if not tools and choice in ("required", "named"):
        raise InputError(
            "tool_choice demands a call, and there are no tools",
            parameter="tool_choice",
            expected="tools beside it, or auto or none",
            found=shown(name if choice == "named" else choice),
        )
    named = [tool for tool in tools if choice == "required" or tool["function"]["name"] == name]
    if choice not in ("required", "named") or not named:
        known = ", ".join(str(tool["function"]["name"]) for tool in tools) or "none"
        raise InputError(
            "tool_choice is invalid",
            parameter="tool_choice",
            expected=f"auto, none, required or one of the tools: {known}"[:400],
            found=shown(name if choice == "named" else choice),
        )
    if choice == "named":
        wanted = str(name)
        return Calls(named[:1], {"json": schema_of_arguments(named[0])}, lambda: NamedCall(wanted))
    try:
        schema = schema_of_calls(named, one_call=one_call)
    except RecursionError:
        raise InputError(
            "tools cannot be demanded: their parameters are nested too deeply",
            parameter="tools",
            expected="a few hundred levels at most",
        ) from None
    return Calls(named, {"json": schema}, CallList)


def choice_of(given: str | Mapping[str, Any] | None) -> tuple[str, str | None]:
    """OpenAI's `tool_choice` as `calls_of` takes it: (choice, name)."""
    if given is None:
        return "auto", None
    if isinstance(given, str):
        return given, None
    inner = given.get("function", given)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if given.get("type", "function") != "function" or not isinstance(name, str):
        return str(given)[:80], None
    return "named", name
