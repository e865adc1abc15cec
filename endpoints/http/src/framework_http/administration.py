"""`endpoint:administration`: what only an operator may do, behind a switch and a key of its own."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import fastapi
from fastapi import Depends, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from framework.contracts.endpoint import Endpoint
from framework.errors import ConfigError, UnsupportedError
from framework_http.guards import check_sendable

if TYPE_CHECKING:
    from framework.contracts.service import Service

LORA = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")


class AdministrationOptions(BaseModel):
    """Options of `endpoint:administration`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=False, description="Whether the routes answer; else they are a 404."
    )
    key: SecretStr | None = Field(
        default=None,
        description="The key that they ask for, as `Authorization: Bearer KEY`; needed with "
        "enabled. Keys of clients do not open them.",
    )


class SleepQuery(BaseModel):
    """Of POST /sleep.  A slip in a name must not put the engine to another kind of sleep."""

    model_config = ConfigDict(extra="forbid")

    level: int = Field(default=1, ge=1, le=2)


class Administration(Endpoint):
    """POST /sleep, /wake_up, /pause, /resume, /reset_prefix_cache, /start_profile, /stop_profile,
    and of adapters; GET /is_sleeping and /server_info.  All of that only if it was enabled; GET
    /administration tells whether it was, without a key."""

    Options: ClassVar[type[BaseModel] | None] = AdministrationOptions
    # The host does not let in here; the routes do, with their own key.
    public: ClassVar[bool] = True

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint.  Raises ConfigError if it is enabled without a key."""
        options = cast("AdministrationOptions | None", self.options) or AdministrationOptions()
        router = fastapi.APIRouter()

        @router.get("/administration")
        async def administration() -> dict[str, bool]:
            return {"enabled": options.enabled}

        if options.enabled:
            # One level of routes: the host looks at each.
            router.routes.extend(_guarded(options, service).routes)
        return router


def _guarded(options: AdministrationOptions, service: Service) -> fastapi.APIRouter:
    """The routes that ask for the key."""
    router = fastapi.APIRouter(dependencies=[Depends(_guard(options))])
    _add_sleep(router, service)
    _add_cache(router, service)
    _add_info(router, service)
    _add_profile(router, service)
    _add_adapters(router)
    return router


def _guard(options: AdministrationOptions) -> _Guard:
    """What every route asks first.  Raises ConfigError without a key that can be sent."""
    if options.key is None or not options.key.get_secret_value():
        raise ConfigError(
            "the administration endpoint is enabled without a key",
            expected="endpoint.administration.key",
            found="none",
            mend="set a key that no client has, in a file or in the environment",
        )
    check_sendable(options.key.get_secret_value(), "the key of the administration endpoint")
    return _Guard(options.key)


class _Guard:
    """Lets in who has the key."""

    def __init__(self, key: SecretStr) -> None:
        self._key = key.get_secret_value().encode()

    def __call__(self, request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        given = key.strip().encode("utf-8", "surrogatepass")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given, self._key):
            headers = {"www-authenticate": "Bearer"}
            raise HTTPException(401, "the key of the administration is needed", headers)


def _add_sleep(router: fastapi.APIRouter, service: Service) -> None:
    @router.post("/sleep")
    async def sleep(asked: Annotated[SleepQuery, Query()]) -> dict[str, bool]:
        await service.administration.sleep(asked.level)
        return {"is_sleeping": True}

    @router.post("/wake_up")
    async def wake_up() -> dict[str, bool]:
        await service.administration.wake_up()
        return {"is_sleeping": False}

    @router.get("/is_sleeping")
    async def is_sleeping() -> dict[str, bool]:
        return {"is_sleeping": await service.administration.is_sleeping()}


def _add_cache(router: fastapi.APIRouter, service: Service) -> None:
    @router.post("/pause")
    async def pause() -> dict[str, bool]:
        await service.administration.pause()
        return {"paused": True}

    @router.post("/resume")
    async def resume() -> dict[str, bool]:
        await service.administration.resume()
        return {"paused": False}

    @router.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> dict[str, bool]:
        return {"reset": await service.administration.reset_prefix_cache()}


def _add_info(router: fastapi.APIRouter, service: Service) -> None:
    import framework

    @router.get("/server_info")
    async def server_info() -> dict[str, Any]:
        return {
            "version": framework.__version__,
            "models": service.model_names,
            "max_model_len": service.max_model_len,
            "settings": service.administration.settings(),
        }


def _add_profile(router: fastapi.APIRouter, service: Service) -> None:
    @router.post("/start_profile")
    async def start_profile() -> dict[str, bool]:
        await service.administration.start_profile()
        return {"profiling": True}

    @router.post("/stop_profile")
    async def stop_profile() -> dict[str, Any]:
        return {"profiling": False, **await service.administration.stop_profile()}


def _add_adapters(router: fastapi.APIRouter) -> None:
    """They are there so that who asks is told, and not left with a 404."""

    async def adapter() -> None:
        raise UnsupportedError(
            "adapters are not supported: no LoRA plugin is installed",
            expected="a plugin that serves adapters",
            found="none",
        )

    for path in LORA:
        router.add_api_route(path, adapter, methods=["POST"])
