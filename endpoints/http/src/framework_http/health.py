"""`endpoint:health`: whether the server can serve, without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from framework.contracts.endpoint import Endpoint

if TYPE_CHECKING:
    import fastapi

    from framework.contracts.service import Service


class Health(Endpoint):
    """GET /health: 200 while the engine can serve, else 503.  GET /ping: the same.  GET
    /version."""

    public: ClassVar[bool] = True

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi

        import framework

        router = fastapi.APIRouter()

        @router.get("/health")
        @router.get("/ping")
        async def health() -> dict[str, str]:
            service.check_health()
            return {"status": "ok"}

        @router.get("/version")
        async def version() -> dict[str, str]:
            return {"version": framework.__version__}

        return router
