"""`endpoint:administration`: what only an operator may do, behind a switch and a key of its own."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import fastapi
from fastapi import Depends, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from framework.contracts.endpoint import Endpoint
from framework.errors import ConfigError
from framework_http.guards import check_sendable

if TYPE_CHECKING:
    from framework.contracts.service import Service


class AdministrationOptions(BaseModel):
    """Options of `endpoint:administration`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(
        default=False, description="Whether the routes answer; else they are a 404."
    )
    key: SecretStr | None = Field(
        default=None,
        description="The key that they ask for, as `Authorization: Bearer KEY`; needed with "
        "enabled. Keys of clients do not open them, and it may be none of theirs.",
    )


class SleepQuery(BaseModel):
    """Of POST /sleep.  A slip in a name must not put the engine to another kind of sleep."""

    model_config = ConfigDict(extra="forbid")

    level: int = Field(default=1, ge=1, le=2)


class LoadFields(BaseModel):
    """Of POST /v1/load_lora_adapter."""

    model_config = ConfigDict(extra="forbid")

    lora_name: str
    lora_path: str
    load_inplace: bool = False
    pinned: bool = False


class UnloadFields(BaseModel):
    """Of POST /v1/unload_lora_adapter."""

    model_config = ConfigDict(extra="forbid")

    lora_name: str


class PinFields(BaseModel):
    """Of POST /v1/pin_lora_adapter."""

    model_config = ConfigDict(extra="forbid")

    lora_name: str
    pinned: bool = True


class Administration(Endpoint):
    """POST /sleep, /wake_up, /pause, /resume, /reset_prefix_cache, /start_profile, /stop_profile,
    /v1/load_lora_adapter, /v1/unload_lora_adapter and /v1/pin_lora_adapter; GET /is_sleeping and
    /server_info.  All of that only if it was enabled; GET
    /administration tells whether it was, without a key."""

    Options: ClassVar[type[BaseModel] | None] = AdministrationOptions
    # The host does not let in here; the routes do, with their own key.
    public: ClassVar[bool] = True

    @property
    def own_keys(self) -> Sequence[SecretStr]:
        """See Endpoint."""
        options = self._settings
        return (options.key,) if options.enabled and options.key is not None else ()

    @property
    def _settings(self) -> AdministrationOptions:
        return cast("AdministrationOptions | None", self.options) or AdministrationOptions()

    def routes(self, service: Service) -> fastapi.APIRouter:
        """See Endpoint.  Raises ConfigError if it is enabled without a key."""
        options = self._settings
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
    _add_adapters(router, service)
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


def _add_adapters(router: fastapi.APIRouter, service: Service) -> None:
    @router.post("/v1/load_lora_adapter")
    async def load(asked: LoadFields) -> dict[str, Any]:
        await service.administration.load_adapter(
            asked.lora_name,
            asked.lora_path,
            pinned=asked.pinned,
            load_inplace=asked.load_inplace,
        )
        return {"loaded": asked.lora_name}

    @router.post("/v1/unload_lora_adapter")
    async def unload(asked: UnloadFields) -> dict[str, Any]:
        await service.administration.unload_adapter(asked.lora_name)
        return {"unloaded": asked.lora_name}

    @router.post("/v1/pin_lora_adapter")
    async def pin(asked: PinFields) -> dict[str, Any]:
        await service.administration.pin_adapter(asked.lora_name, asked.pinned)
        return {"pinned": asked.pinned}
