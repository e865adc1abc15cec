"""Where the server lies, at the root or where a proxy mounts it, and which paths of it are what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import compile_path

if TYPE_CHECKING:
    import re

    from starlette.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """Tells all behind it where a proxy mounts the server.  root_path: "" is the root."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if self._root_path:
            scope["root_path"] = self._root_path
        await self._app(scope, receive, send)


def route_path(scope: Scope) -> str:
    """The path as routes are called.  Some proxies cut off where they mount the server, and some do
    not; the router takes both, and so must all that asks for the path."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


class Paths:
    """Paths of routes, of which some have places for anything, as `/items/{id}`."""

    def __init__(self) -> None:
        self._plain: set[str] = set()
        self._patterns: list[re.Pattern[str]] = []

    def add(self, path: str) -> None:
        """That of a route."""
        if "{" in path:
            self._patterns.append(compile_path(path)[0])
        else:
            self._plain.add(path)

    def __contains__(self, path: str) -> bool:
        return path in self._plain or any(pattern.match(path) for pattern in self._patterns)
