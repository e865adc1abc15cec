"""The application: endpoints at their places, guards around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.routing import APIRoute

from framework.errors import ConfigError
from framework.plugins.routes import ANY, Route, check_routes
from framework_http import faults
from framework_http.counting import Counting, HttpCounts
from framework_http.crowd import Crowd
from framework_http.guards import BodyGuard, KeyGuard, Keys, Most, RequestIds
from framework_http.places import Paths, RootPath

if TYPE_CHECKING:
    from fastapi import APIRouter

    from framework.contracts.front_end import Mounted
    from framework.contracts.service import Service
    from framework_http.options import HostOptions


def build_app(service: Service, endpoints: Sequence[Mounted], options: HostOptions) -> FastAPI:
    """Raises PluginError for two endpoints with one route, ConfigError for a client's key that is
    an endpoint's own."""
    app = FastAPI(
        title="framework",
        docs_url=None,
        redoc_url=None,
        responses=faults.DOCUMENTED,
    )
    faults.install(app)
    public, guarded = Paths(), Paths()
    claimed: list[Route] = []
    keys = Keys(options.api_keys)
    for mounted in endpoints:
        _check_keys(mounted, keys)
        router = mounted.endpoint.routes(service)
        routes = _routes(mounted, router)
        claimed += routes
        paths = public if mounted.endpoint.public else guarded
        for route in routes:
            paths.add(route.path)
        app.include_router(router, prefix=mounted.prefix)
    check_routes(claimed)

    def is_public(path: str) -> bool:
        # A path that two share, each with a method of its own, is no more open than either.
        return path in public and path not in guarded

    # The last one added is the first to see a request.
    if options.max_concurrent is not None:
        app.add_middleware(Crowd, most=options.max_concurrent, is_public=is_public)
    app.add_middleware(KeyGuard, keys=keys, is_public=is_public)
    app.add_middleware(BodyGuard, most=Most(options.max_body_bytes, options.max_body_values))
    if options.cors_origins:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["retry-after", "x-request-id"],
        )
    app.add_middleware(RequestIds)
    app.state.http_counts = HttpCounts()
    app.add_middleware(Counting, counts=app.state.http_counts)
    app.add_middleware(RootPath, root_path=options.root_path)
    return app


def _check_keys(mounted: Mounted, keys: Keys) -> None:
    """What a key of an endpoint's own keeps from clients must not be open to one of them."""
    for own in mounted.endpoint.own_keys:
        if keys.holds(own.get_secret_value()):
            raise ConfigError(
                f"the key of {mounted.key} is a client's, too, who could do all that it opens",
                expected="a key that no client has",
                found="one of the API keys of front_end:http",
                mend="give one of the two another key",
            )


def _routes(mounted: Mounted, router: APIRouter) -> list[Route]:
    """The routes of an endpoint; what is no plain route answers every method."""
    found = []
    for route in router.routes:
        methods = sorted(route.methods or ()) if isinstance(route, APIRoute) else [ANY]
        path = mounted.prefix + getattr(route, "path", "")
        found += [Route(mounted.key, method, path) for method in methods]
    return found
