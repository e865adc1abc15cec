"""`endpoint:models`: what models there are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from framework.contracts.endpoint import Endpoint

if TYPE_CHECKING:
    import fastapi

    from framework.contracts.service import Service


class Models(Endpoint):
    """GET /v1/models and /v1/models/NAME: the model, and adapters with it as their parent."""

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint."""
        import fastapi

        router = fastapi.APIRouter(prefix="/v1")
        created = int(time.time())

        def card(name: str) -> dict[str, Any]:
            own = name in service.model_names
            return {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "framework",
                "root": name if own else _roots(service)[name],
                "parent": None if own else service.model_names[0],
                "max_model_len": service.max_model_len,
            }

        @router.get("/models")
        async def models() -> dict[str, Any]:
            names = [*service.model_names, *_roots(service)]
            return {"object": "list", "data": [card(name) for name in names]}

        @router.get("/models/{name:path}")
        async def model(name: str) -> dict[str, Any]:
            check_model(service, name)
            return card(name)

        return router


def _roots(service: Service) -> dict[str, str]:
    """Adapters by name, and the folder of each as it is called there."""
    return {each.name: each.root.rpartition("/")[2] for each in service.adapters}


def check_model(service: Service, name: str | None) -> str:
    """The model or the adapter that a request means; one without a name means the model."""
    if name is None:
        return service.model_names[0]
    known = [*service.model_names, *(each.name for each in service.adapters)]
    if name not in known:
        from starlette.exceptions import HTTPException

        raise HTTPException(404, f"there is no model {name!r:.80}; known: {', '.join(known)}")
    return name
