"""A server in this process, without a port: an engine behind a socket that nobody else sees."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from framework.config.plugin_options import nested_options
from framework.contracts.front_end import FrontEnd
from framework.engine.async_engine import AsyncEngine
from framework.engine.serve import mount
from framework.errors import FrameworkError

if TYPE_CHECKING:
    from framework.config.resolve import Resolved

PRIVATE = {"api_keys": (), "ssl_certfile": None, "ssl_keyfile": None}
"""Nobody else can reach the socket."""


@asynccontextmanager
async def local_server(
    resolved: Resolved, front_end: str
) -> AsyncGenerator[tuple[str, AsyncEngine], None]:
    """(path of a unix socket, the engine): all endpoints, as `framework serve` has them.

    front_end: name of the plugin, which needs options `uds`, `api_keys`, `ssl_certfile` and
    `ssl_keyfile`.  Raises what `framework serve` raises.
    """
    async with AsyncEngine.from_config(resolved) as engine:
        registry = engine.registry
        given = nested_options(engine.config.plugin.plugin_options)
        options = given.get("front_end", {}).get(front_end, {})
        record = registry.find("front_end", front_end, named=True)
        with tempfile.TemporaryDirectory() as folder:  # which only this user can enter
            path = Path(folder) / "server.sock"
            made = registry.create_record(record, {**options, **PRIVATE, "uds": path})
            stop = asyncio.Event()
            endpoints = mount(registry, engine.config.plugin.endpoint_prefixes)
            serving = asyncio.create_task(cast("FrontEnd", made).serve(engine, endpoints, stop))
            try:
                await _listening(path, serving)
                yield str(path), engine
            finally:
                stop.set()
                await serving


async def _listening(path: Path, serving: asyncio.Task[None]) -> None:
    """Until the socket answers.  Raises what the server raises."""
    while True:
        if serving.done():
            serving.result()
            raise FrameworkError("the front end ended before it listened")
        try:
            _, writer = await asyncio.open_unix_connection(str(path))
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
