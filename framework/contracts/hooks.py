"""Kind `hooks`: events of engine and requests, as pluggy hook specifications.

A hooks plugin is a class that derives from `HookSpecs`; methods that carry the name of a
specification and are marked with `hookimpl` are called, in the front end's thread, and must
return at once.  They may take fewer arguments than specified.  A hook must not change what it
is given.  Wrappers (`hookimpl(wrapper=True)`) are refused.  A marked method that is no
specification of this release stops the start, unless it is marked as optional
(`hookimpl(optionalhook=True)`): for a plugin that serves several releases.

One that raises is logged under its plugin's name and disturbs neither requests nor other hooks.
After `plugin_error_limit` errors in a row in one hook its plugin is off, with all its hooks.  A
hook that no plugin has costs a step nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pluggy

from framework.contracts.base import Contract

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput

PROJECT = "framework"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class HookSpecs(Contract):
    """The specifications; also the contract of the kind."""

    kind: ClassVar[str] = "hooks"

    @hookspec
    def engine_started(self, notes: tuple[str, ...]) -> None:
        """The engine is ready.  notes: the start-up lines."""

    @hookspec
    def request_added(self, request: EngineInput) -> None:
        """A request was accepted into the queue."""

    @hookspec
    def request_first_token(self, request_id: str, waited: float) -> None:
        """The first token of a request has come; not called for one that ends without.  waited:
        seconds until it first had a slot."""

    @hookspec
    def request_finished(self, request_id: str, reason: str, num_output_tokens: int) -> None:
        """A request ended: stop, length, abort or error."""

    @hookspec
    def engine_closed(self) -> None:
        """The engine was shut down."""
