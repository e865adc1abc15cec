"""What can be done of what a request says of tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from framework.errors import UnsupportedError
from framework_http.openai.fields import refuse

if TYPE_CHECKING:
    from framework.contracts.service import Service


def check_tools(service: Service, tools: Sequence[Mapping[str, Any]], *, free: bool) -> None:
    """Raises UnsupportedError for what cannot be served.

    tools: those that the model may call.  free: it may call any of them, or none.
    """
    if tools and not free:
        raise refuse("tool_choice", "no structured-output backend is installed; use auto or none")
    if tools and service.tool_parser is None:
        raise UnsupportedError(
            "tools are not supported: the server was started without a tool parser",
            expected='no tools, or tool_choice="none"',
            found=f"{len(tools)} tools",
            mend="start it with --tool-parser NAME; see `framework plugins list`",
        )
