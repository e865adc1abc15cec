"""What a command that shall print JSON prints when it fails."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

from framework.cli.misplaced import tell_place
from framework.cli.printing import print_json
from framework.errors import FrameworkError

_ASKED = f"{__name__}.asked"
_WRITE_FILES = frozenset({"conform", "bench"})
"""Commands whose `--json` has the name of a file; "-" is stdout."""


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether stdout shall hold JSON alone."""
    if _WRITE_FILES.isdisjoint(arguments):
        return "--json" in arguments
    return "--json=-" in arguments or ("--json", "-") in itertools.pairwise(arguments)


class JsonFailures(TyperGroup):
    """A group of commands, the outermost of which prints {"error": {...}} to stdout where one of
    them raises a FrameworkError and was asked for JSON.  The error goes on, so that people read
    it on stderr as ever."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remembers what was asked, for `invoke`."""
        if ctx.parent is None:
            ctx.meta[_ASKED] = list(args)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command.  Raises what that raises."""
        try:
            return super().invoke(ctx)
        except FrameworkError as error:
            if ctx.parent is None and asks_for_json(ctx.meta[_ASKED]):
                print_json({"error": error.as_dict()})
            raise
        except Exception as error:
            if ctx.parent is None:
                tell_place(error)
            raise
