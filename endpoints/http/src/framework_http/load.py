"""`endpoint:load`: how much there is to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.contracts.endpoint import Endpoint

if TYPE_CHECKING:
    import fastapi

    from framework.contracts.service import Service


class Load(Endpoint):
    """GET /load: server_load, the number of requests, and how many of them run and wait."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi

        router = fastapi.APIRouter()

        @router.get("/load")
        async def load() -> dict[str, int]:
            stats = service.last_stats
            running, waiting = stats.running + stats.loading, stats.waiting
            return {"server_load": running + waiting, "running": running, "waiting": waiting}

        return router
