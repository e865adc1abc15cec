"""`front_end:http`: uvicorn around the application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, cast

from framework.contracts.front_end import FrontEnd, Mounted
from framework_http.listening import cannot_listen, check_address
from framework_http.options import HostOptions

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from framework.contracts.service import Service

log = logging.getLogger("framework")


class HttpHost(FrontEnd):
    """An HTTP server of one process."""

    Options: ClassVar[type[HostOptions]] = HostOptions

    async def serve(
        self, service: Service, endpoints: Sequence[Mounted], stop: asyncio.Event
    ) -> None:
        """See FrontEnd.  Requests that run when `stop` is set are served to their end."""
        from framework_http.application import build_app
        from framework_http.quiet import QuietServer

        options = cast("HostOptions", self.options)
        app = build_app(service, endpoints, options)
        server = QuietServer(self._config(app, options))
        await check_address(server.config, options)
        waiter = asyncio.create_task(stop.wait())
        serving = asyncio.create_task(_run(server, options))
        serving.add_done_callback(lambda _: stop.set())
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        if server.started:
            log.warning("listening on %s", address(server, options))
        try:
            await waiter
            server.should_exit = True
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            if stop.is_set():  # the engine ends next, and with it all that runs
                server.force_exit = True
            else:
                _drop(server)
            raise
        finally:
            server.should_exit = True
            while not serving.done():  # at once, by now: to be told again changes nothing
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([serving])
            if server.started and options.uds is not None:
                options.uds.unlink(missing_ok=True)

    @staticmethod
    def _config(app: FastAPI, options: HostOptions) -> uvicorn.Config:
        import uvicorn

        from framework_http.patience import patient

        return uvicorn.Config(
            app,
            host=options.host,
            port=options.port,
            uds=str(options.uds) if options.uds else None,
            ssl_certfile=options.ssl_certfile,
            ssl_keyfile=options.ssl_keyfile,
            access_log=options.access_log,
            log_config=None,
            # The only parser that bounds the size of headers.
            http=patient(options.read_seconds, options.write_seconds),
            # No guard stands before another protocol, which no endpoint is promised either.
            ws="none",
            h11_max_incomplete_event_size=options.max_header_bytes,
            server_header=False,
        )


async def _run(server: uvicorn.Server, options: HostOptions) -> None:
    try:
        await server.serve()
    except SystemExit as error:  # uvicorn's way of saying that it cannot; it has logged why
        raise cannot_listen(options) from error
    except OSError as error:  # of a unix socket, of which it says nothing
        if server.started:
            raise
        raise cannot_listen(options, error) from error


def _drop(server: uvicorn.Server) -> None:
    """End whatever runs; `serve` was cancelled."""
    server.force_exit = True
    for task in server.server_state.tasks:
        task.cancel()


def address(server: uvicorn.Server, options: HostOptions) -> str:
    """Where it can be reached."""
    if options.uds is not None:
        return f"unix:{options.uds}"
    scheme = "https" if options.ssl_certfile else "http"
    port = next((s.getsockname()[1] for one in server.servers for s in one.sockets), options.port)
    return f"{scheme}://{options.host}:{port}"
