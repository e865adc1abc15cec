"""Where the server listens, under which path, and how many it serves at one time."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest
from fastapi import APIRouter

from framework.contracts.endpoint import Endpoint
from framework.contracts.front_end import Mounted
from framework.errors import ConfigError
from framework_http.application import build_app
from framework_http.health import Health
from framework_http.host import HttpHost
from framework_http.options import HostOptions


def rubbish(folder):
    (folder / "rubbish").write_text("x")
    return folder / "rubbish"


def long_path(folder):
    return folder / ("a" * 120)


WRONG = {
    "no certificate": (lambda folder: {"ssl_certfile": folder / "none"}, "certificate"),
    "rubbish for a certificate": (lambda folder: {"ssl_certfile": rubbish(folder)}, "certificate"),
    "no folder": (lambda folder: {"uds": folder / "none" / "x"}, "--uds"),
    "too long a path": (lambda folder: {"uds": long_path(folder)}, "--uds"),
    "a file in the place": (lambda folder: {"uds": rubbish(folder)}, "--uds"),
    "an address of others": (lambda folder: {"host": "192.0.2.1"}, "--host"),
}


def serve(options):
    """Until it ends, by itself."""

    async def limited():
        async with asyncio.timeout(30):
            await HttpHost(options).serve(None, [], asyncio.Event())

    asyncio.run(limited())


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_listened_on_is_told_without_a_traceback(name, tmp_path, caplog):
    made, mend = WRONG[name]
    with pytest.raises(ConfigError, match=mend):
        serve(HostOptions(port=0, **made(tmp_path)))
    assert not [record for record in caplog.records if record.exc_info]
    assert "Traceback" not in caplog.text


def test_a_unix_socket_is_not_taken_from_who_listens_there(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(ConfigError, match="that nobody uses"):
            serve(HostOptions(uds=path))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


@pytest.mark.parametrize("wrong", ["llm", "/llm/", "/", "llm/"])
def test_a_root_path_is_a_path(wrong):
    with pytest.raises(ValueError, match="root_path"):
        HostOptions(root_path=wrong)


def test_a_key_of_tls_needs_its_certificate():
    with pytest.raises(ValueError, match="ssl_keyfile needs ssl_certfile"):
        HostOptions(ssl_keyfile="key.pem")


class Slow(Endpoint):
    """GET /slow: until it may end."""

    def routes(self, service):
        """See Endpoint."""
        router = APIRouter()
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

        @router.get("/slow")
        async def slow() -> str:
            self.begun.set()
            await self.may_end.wait()
            return "done"

        return router


def client_of(options, *endpoints):
    """Of a server of these endpoints."""
    mounted = [Mounted(endpoint=one, key=type(one).__name__, prefix="") for one in endpoints]

    class Well:
        def check_health(self):
            """It is well."""

    transport = httpx.ASGITransport(build_app(Well(), mounted, options))
    return httpx.AsyncClient(transport=transport, base_url="http://server")


def test_who_is_too_much_comes_again_and_health_is_told_all_the_same():
    async def ask():
        slow = Slow()
        async with client_of(HostOptions(max_concurrent=1), slow, Health()) as client:
            first = asyncio.create_task(client.get("/slow"))
            await slow.begun.wait()
            second = await client.get("/slow")
            assert (await client.get("/health")).status_code == 200
            slow.may_end.set()
            return second, (await first).status_code, (await client.get("/slow")).status_code

    second, *others = asyncio.run(ask())
    assert others == [200, 200]
    assert second.status_code == 503
    assert second.headers["retry-after"] == "1"
    assert "1 requests at one time" in second.json()["error"]["message"]


@pytest.mark.parametrize("cut_off", [True, False])
def test_keys_are_asked_for_behind_a_proxy_as_before_it(cut_off, recwarn):
    """Whether the proxy cuts off the path where it mounts the server or not."""
    place = "" if cut_off else "/llm"

    async def ask():
        options = HostOptions(api_keys=["k"], root_path="/llm")
        async with client_of(options, Slow(), Health()) as client:
            paths = ("/health", "/slow", "/llmhealth")
            return [(await client.get(place + path)).status_code for path in paths]

    assert asyncio.run(ask()) == [200, 401, 401]
    assert not recwarn.list


def endpoint_of(public, method, path):
    """One with a route."""

    class Made(Endpoint):
        """Says where it is."""

        def routes(self, service):
            """See Endpoint."""
            router = APIRouter()
            router.add_api_route(path, lambda: path, methods=[method])
            return router

    Made.public = public
    return Made()


def test_what_is_public_needs_no_key_and_nothing_else_does_without():
    endpoints = (
        endpoint_of(True, "GET", "/items/{name}"),
        endpoint_of(True, "GET", "/shared"),
        endpoint_of(False, "POST", "/shared"),
        endpoint_of(False, "GET", "/items/{name}/secret"),
        endpoint_of(False, "GET", "/own/{name}"),
    )

    async def ask():
        async with client_of(HostOptions(api_keys=["k"]), *endpoints) as client:
            asked = [
                *(("GET", "/items/a"), ("GET", "/items/a/secret"), ("GET", "/own/a")),
                *(("POST", "/shared"), ("GET", "/shared")),
            ]
            return [(await client.request(*one)).status_code for one in asked]

    assert asyncio.run(ask()) == [200, 401, 401, 401, 401]


def test_there_are_no_websockets_which_no_key_would_guard():
    assert HttpHost._config(None, HostOptions()).ws == "none"
