"""The application: endpoints at their places, guards around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.routing import APIRoute

from framework.errors import PluginError
from framework_http import faults
from framework_http.guards import BodyGuard, KeyGuard, Keys, RequestIds

if TYPE_CHECKING:
    from fastapi import APIRouter

    from framework.contracts.front_end import Mounted
    from framework.contracts.service import Service
    from framework_http.options import HostOptions


def build_app(service: Service, endpoints: Sequence[Mounted], options: HostOptions) -> FastAPI:
    """Raises PluginError for two endpoints with one route."""
    app = FastAPI(
        title="framework",
        docs_url=None,
        redoc_url=None,
        root_path=options.root_path,
    )
    faults.install(app)
    public: set[str] = set()
    owners: dict[tuple[str, str], str] = {}
    for mounted in endpoints:
        router = mounted.endpoint.routes(service)
        paths = _claim(mounted, router, owners)
        if mounted.endpoint.public:
            public |= paths
        app.include_router(router, prefix=mounted.prefix)
    # The last one added is the first to see a request.
    app.add_middleware(BodyGuard, most=options.max_body_bytes)
    app.add_middleware(KeyGuard, keys=Keys(options.api_keys), is_public=public.__contains__)
    if options.cors_origins:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )
    app.add_middleware(RequestIds)
    return app


def _claim(mounted: Mounted, router: APIRouter, owners: dict[tuple[str, str], str]) -> set[str]:
    """The paths of an endpoint; nobody else may have one of them with the same method."""
    paths = set()
    for route in router.routes:
        path = mounted.prefix + getattr(route, "path", "")
        methods = route.methods if isinstance(route, APIRoute) else {"*"}
        for method in methods:
            owner = owners.setdefault((method, path), mounted.key)
            if owner != mounted.key:
                raise PluginError(
                    f"{mounted.key} and {owner} both claim {method} {path}",
                    plugin=mounted.key,
                    expected="one endpoint for each route",
                    found=f"{owner} and {mounted.key}",
                    mend="leave one of them out of `endpoints`, or deny it",
                )
        paths.add(path)
    return paths
