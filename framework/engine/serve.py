"""`framework serve`: an engine, its front end, and what signals mean to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from framework.contracts.front_end import FrontEnd, Mounted
from framework.engine.async_engine import AsyncEngine
from framework.errors import ConfigError, EngineDeadError, EngineRestartingError, FrameworkError
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework.contracts.endpoint import Endpoint
    from framework.plugins.registry import PluginRegistry

log = logging.getLogger("framework")
THIRD_PARTY_PREFIX = "/plugins"
HEALTH_SECONDS = 0.5
"""How often the engine's health is looked at."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def serve(resolved: Resolved, front_end: str, *, in_process: bool = False) -> int:
    """Load the model and serve until a signal comes or the engine dies.  Returns the exit code.

    The first SIGTERM or SIGINT lets requests that were accepted end and refuses new ones; the
    second ends all at once.  front_end: name of the plugin.  Raises what `LLM` raises, and
    ConfigError or PluginError for what is wrong with front end or endpoints.
    """
    engine = AsyncEngine.from_config(resolved, in_process=in_process)
    await engine.start()
    try:
        host = cast("FrontEnd", engine.registry.create("front_end", front_end, named=True))
        prefixes = engine.config.plugin.endpoint_prefixes
        endpoints = mount(engine.registry, prefixes) if host.serves_endpoints else []
        return await _until_stopped(engine, host, endpoints)
    finally:
        await engine.shutdown()


def mount(registry: PluginRegistry, prefixes: dict[str, str]) -> list[Mounted]:
    """The endpoints in use, each at its place.

    prefixes: name -> where the operator wants its routes, "" is the root.  Raises ConfigError
    for a name that is not in use, and for a prefix that is no path.
    """
    made = registry.create_activated("endpoint")
    names = [record.name for record, _ in made]
    for name, prefix in prefixes.items():
        if name not in names:
            raise ConfigError(
                f"endpoint_prefixes names {name!r}, which is not in use{did_you_mean(name, names)}",
                expected=f"one of {', '.join(names)}",
                found=name,
            )
        if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
            raise ConfigError(
                f"the prefix of endpoint {name!r} is no path",
                expected='"" or a path such as "/mine", without a slash at its end',
                found=prefix,
            )
    return [
        Mounted(
            endpoint=cast("Endpoint", instance),
            key=record.key,
            prefix=prefixes.get(
                record.name,
                "" if record.first_party else f"{THIRD_PARTY_PREFIX}/{record.name}",
            ),
        )
        for record, instance in made
    ]


async def _until_stopped(engine: AsyncEngine, host: FrontEnd, endpoints: list[Mounted]) -> int:
    stop, dead = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(host.serve(engine, endpoints, stop))
    watching = asyncio.create_task(_watch(engine, stop, dead))
    waking = asyncio.create_task(_wake(engine, stop))
    try:
        with _signals(stop, serving):
            await serving
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        log.warning("stopped at once")
    finally:
        watching.cancel()
        waking.cancel()
        await asyncio.gather(watching, waking, return_exceptions=True)
    return 1 if dead.is_set() else 0


async def _watch(engine: AsyncEngine, stop: asyncio.Event, dead: asyncio.Event) -> None:
    """A service without its engine looks up to nobody's use: unless the engine starts another
    core, end it, and let whoever runs it start it anew."""
    while not stop.is_set():
        try:
            engine.check_health()
        except EngineRestartingError:
            pass
        except EngineDeadError as error:
            log.error("the service ends: %s", error)
            dead.set()
            stop.set()
            return
        await asyncio.sleep(HEALTH_SECONDS)


async def _wake(engine: AsyncEngine, stop: asyncio.Event) -> None:
    """Once the service is to end: requests that wait for an engine that is paused or sleeps would
    wait for ever, as nobody is let in any more to change that."""
    await stop.wait()
    while True:
        try:
            stats = await engine.stats()
            if stats.running or stats.waiting:
                await engine.resume()
                await engine.wake_up()
        except EngineDeadError:  # of which its requests are told
            pass
        except FrameworkError as error:
            log.error("the engine does not wake up, and requests wait for it: %s", error)
        await asyncio.sleep(HEALTH_SECONDS)


@contextlib.contextmanager
def _signals(stop: asyncio.Event, serving: asyncio.Task[None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def heard() -> None:
        if stop.is_set():
            serving.cancel()
        else:
            log.warning("stopping: requests that run are served to their end")
            stop.set()

    for number in _SIGNALS:
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, heard)
    try:
        yield
    finally:
        for number in _SIGNALS:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
