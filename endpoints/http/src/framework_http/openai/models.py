"""`endpoint:models`: what models there are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from framework.contracts.endpoint import Endpoint

if TYPE_CHECKING:
    import fastapi

    from framework.contracts.service import Service


class Models(Endpoint):
    """GET /v1/models and /v1/models/NAME."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi

        router = fastapi.APIRouter(prefix="/v1")
        created = int(time.time())

        def card(name: str) -> dict[str, Any]:
            return {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "framework",
                "max_model_len": service.max_model_len,
            }

        @router.get("/models")
        async def models() -> dict[str, Any]:
            return {"object": "list", "data": [card(name) for name in service.model_names]}

        @router.get("/models/{name:path}")
        async def model(name: str) -> dict[str, Any]:
            check_model(service, name)
            return card(name)

        return router


def check_model(service: Service, name: str | None) -> str:
    """The model that a request means; one without a name means the only one."""
    if name is None:
        return service.model_names[0]
    if name not in service.model_names:
        from starlette.exceptions import HTTPException

        known = ", ".join(service.model_names)
        raise HTTPException(404, f"there is no model {name!r:.80}; known: {known}")
    return name
