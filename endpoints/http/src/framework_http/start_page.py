"""`endpoint:start_page`: the state of the server and a small chat, for a browser."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.endpoint import Endpoint

if TYPE_CHECKING:
    import fastapi

    from framework.contracts.service import Service

_FILES = {
    "/": ("index.html", "text/html"),
    "/start_page.js": ("start_page.js", "text/javascript"),
    "/start_page.css": ("start_page.css", "text/css"),
}
# The page may load its own two files and ask this server; nothing else, whatever a model writes.
# Its icon is the "data:".
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class StartPage(Endpoint):
    """GET / and the two files of the page.  They hold nothing of this server: the page asks for
    that with the key that its user types in."""

    public: ClassVar[bool] = True

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi

        router = fastapi.APIRouter()
        folder = files("framework_http") / "page"

        def add(path: str, name: str, media_type: str) -> None:
            content = (folder / name).read_bytes()

            @router.get(path, include_in_schema=False)
            async def page() -> fastapi.Response:
                return fastapi.Response(content, media_type=media_type, headers=_HEADERS)

        for path, (name, media_type) in _FILES.items():
            add(path, name, media_type)
        return router
