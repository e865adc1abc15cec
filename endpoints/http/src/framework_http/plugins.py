"""`endpoint:plugins`: what is installed and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framework.contracts.endpoint import Endpoint

if TYPE_CHECKING:
    import fastapi

    from framework.contracts.service import Service

# Neither options, which may hold secrets, nor places on the server's disk.
_SHOWN = (
    "kind",
    "name",
    "distribution",
    "version",
    "origin",
    "first_party",
    "scopes",
    "state",
    "reason",
    "load_seconds",
    "calls",
    "errors",
)


class Plugins(Endpoint):
    """GET /plugins: as this process, the front end, knows them."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi

        router = fastapi.APIRouter()

        @router.get("/plugins")
        async def plugins() -> dict[str, Any]:
            records = (record.as_dict() for record in service.registry.records())
            return {"data": [{name: one[name] for name in _SHOWN} for one in records]}

        return router
