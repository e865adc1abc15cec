"""What can be done of what a request says of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from framework.errors import InputError, UnsupportedError
from framework_http.openai.fields import refuse

if TYPE_CHECKING:
    from framework.contracts.service import Service


def check_functions(tools: Sequence[Mapping[str, Any]]) -> None:
    """Raises InputError unless each tool is a function as chat completions write it."""
    for index, tool in enumerate(tools):
        found = _fault(tool)
        if found is not None:
            raise InputError(
                f"tools[{index}] is not understood",
                parameter="tools",
                expected='{"type": "function", "function": {"name": "...", "parameters": {...}}}',
                found=found,
            )


def _fault(tool: Mapping[str, Any]) -> str | None:
    if tool.get("type") != "function":
        return f"the type {tool.get('type')!r:.60}"
    function = tool.get("function")
    if not isinstance(function, dict):
        return f"the function {function!r:.60}"
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        return f"the name {name!r:.60}"
    if parameters is not None and not isinstance(parameters, dict):
        return f"the parameters {parameters!r:.60}"
    return None


def check_tools(service: Service, tools: Sequence[Mapping[str, Any]], *, free: bool) -> None:
    """Raises UnsupportedError for what cannot be served.

    tools: those that the model may call.  free: it may call any of them, or none.
    """
    if not free:
        raise refuse("tool_choice", "no structured-output backend is installed; use auto or none")
    if tools and service.tool_parser is None:
        raise UnsupportedError(
            "tools are not supported: the server was started without a tool parser",
            expected='no tools, or tool_choice="none"',
            found=f"{len(tools)} tools",
            mend="start it with --tool-parser NAME; see `framework plugins list`",
        )
