"""What keeps a server closed to those whom it does not concern, and logs free of secrets."""

from __future__ import annotations

import asyncio
import hmac
import os
import shutil
import socket
import ssl
import stat
import subprocess
import time

import httpx
import pytest
from pydantic import SecretStr

from framework.errors import ConfigError
from framework_http.application import build_app
from framework_http.guards import Keys
from framework_http.options import HostOptions


def option(name, value):
    return f"--plugin-option=front_end.http.{name}={value}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_tls_with_a_certificate_of_our_own(serve, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-keyout", key, "-out", certificate, "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    server = serve(root=(option("ssl_certfile", certificate), option("ssl_keyfile", key)))
    assert server.url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(certificate))
    with httpx.Client(base_url=server.url, verify=trusting, timeout=60) as http:
        answer = http.post("/v1/completions", json={"prompt": "hidden"}).json()
    assert answer["choices"][0]["text"] == "hidden"
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{server.url}/health", timeout=60)
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(server.url.replace("https", "http") + "/health", timeout=60)
    assert server.stop() == 0


def test_a_unix_socket_instead_of_a_port(serve, tmp_path):
    path = tmp_path / "socket"
    server = serve(root=(option("uds", path),))
    assert server.url == f"unix:{path}"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as http:
        answer = http.post("http://x/v1/completions", json={"prompt": "near"}).json()
    assert answer["choices"][0]["text"] == "near"
    assert server.stop() == 0
    assert not path.exists()


def test_headers_over_the_limit_are_refused_and_not_kept(server):
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port), 60) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\na: ")
        try:
            for _ in range(1000):
                client.sendall(b"b" * 10_000)
            answer = client.recv(1000)
        except ConnectionError:
            answer = b""  # it had closed before we were done
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "a" * 2**20}, "prompt"),
        ({"prompt": ["a"] * 3000}, "prompt"),
        ({"prompt": "a", "n": 10**6}, "n"),
        ({"prompt": ["a"] * 2000, "n": 9}, "n"),
        ({"prompt": "a", "logprobs": 10**6}, "logprobs"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": "a", "prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt": "a", "prompt_logprobs": -1, "stream": True}, "prompt_logprobs"),
        ({"prompt": "a", "stop": ["x"] * 10**5}, "stop"),
    ],
)
def test_what_is_too_much_is_a_400_that_names_the_field(http, body, param):
    response = http.post("/v1/completions", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_every_key_is_compared_in_constant_time_whichever_is_given(monkeypatch):
    compared, same = [], hmac.compare_digest

    def noting(known, given):
        compared.append((known, given))
        return same(known, given)

    monkeypatch.setattr(hmac, "compare_digest", noting)
    keys = Keys([SecretStr("a:first"), SecretStr("b:second"), SecretStr("c:third")])
    for given, tenant in (("first", "a"), ("third", "c"), ("", None), ("x" * 9999, None)):
        compared.clear()
        assert keys.tenant(f"Bearer {given}") == tenant
        assert len(compared) == 3
        # Hashes of one length: nor does the time say how long a key is.
        assert {len(part) for pair in compared for part in pair} == {32}


def test_a_key_is_of_one_tenant():
    """Else the requests of one would count, and wait, as another's."""
    with pytest.raises(ConfigError, match="'a' and 'b'") as caught:
        Keys([SecretStr("a:same"), SecretStr("c:other"), SecretStr("b:same")])
    assert "same" not in str(caught.value)
    assert Keys([SecretStr("a:same"), SecretStr("a:same")]).tenant("Bearer same") == "a"


OWN = "https://own.example"


@pytest.mark.parametrize("origins", [(), (OWN,)])
@pytest.mark.parametrize("origin", [OWN, "https://other.example", "null"])
def test_pages_of_an_origin_may_call_only_if_the_operator_named_it(origins, origin):
    options = HostOptions(api_keys=[KEY], cors_origins=origins)
    app = build_app(None, [], options)

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            wish = {
                "origin": origin,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization, content-type",
            }
            asked = await client.options("/v1/completions", headers=wish)
            return asked, await client.post("/v1/completions", headers={"origin": origin})

    asked, answer = asyncio.run(ask())
    named = origin in origins
    assert (asked.status_code == 200) is named
    assert answer.status_code == 401
    for response in (asked, answer):
        allowed = response.headers.get("access-control-allow-origin")
        assert allowed == (origin if named else None)
        assert "access-control-allow-credentials" not in response.headers
    if named:
        assert "authorization" in asked.headers["access-control-allow-headers"]
        assert "retry-after" in answer.headers["access-control-expose-headers"]


KEY, PROMPT = "k3y-of-acme", "a-word-that-nobody-may-read"


@pytest.fixture(scope="module")
def talkative(serve):
    """One that logs all it can."""
    return serve(
        *("--api-key", f"acme:{KEY}"),
        root=("-vv", option("access_log", "true")),
    )


def logged(server, what):
    """The lines so far, once one holds `what`."""
    end = time.monotonic() + 60
    while not any(what in line for line in server.lines):
        assert time.monotonic() < end, "".join(server.lines)
        time.sleep(0.05)
    return [line for line in server.lines if what in line]


def test_neither_keys_nor_prompts_are_logged(talkative):
    chat = [{"role": "user", "content": PROMPT}]
    bodies = [
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/completions", {"prompt": PROMPT, "stream": True}),
        ("/v1/completions", {"prompt": PROMPT, "temperature": "hot"}),
        ("/v1/completions", {"prompt": PROMPT * 40}),
        ("/v1/chat/completions", {"messages": chat}),
        ("/v1/chat/completions", {"messages": [{"role": PROMPT, "content": [PROMPT]}]}),
        ("/v1/completions", {"prompt_embeds": PROMPT}),
        ("/v1/completions", {"prompt_embeds": [PROMPT.replace("-", "+")]}),
        ("/v1/responses", {"input": PROMPT, "instructions": PROMPT}),
        ("/v1/messages", {"messages": chat, "system": PROMPT, "max_tokens": 3}),
        ("/v1/embeddings", {"input": [PROMPT]}),
        ("/tokenize", {"prompt": PROMPT}),
    ]
    with httpx.Client(base_url=talkative.url, timeout=60) as http:
        for key in (KEY, f"{KEY}-wrong"):
            headers = {"authorization": f"Bearer {key}", "x-request-id": "the-last"}
            for path, body in bodies:
                http.post(path, json=body, headers=headers)
            http.post("/v1/completions", content=f"{{{PROMPT}", headers=headers)
    logged(talkative, "the-last ended")
    text = "".join(talkative.lines)
    assert "access" in text or "POST /v1/completions" in text, "it logs requests"
    assert KEY not in text
    assert PROMPT not in text
    assert PROMPT.replace("-", "+") not in text


def test_the_clients_id_is_in_every_line_about_a_request(talkative):
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "mine-42"}
    body = {"prompt": "ab", "n": 2, "temperature": 1}
    httpx.post(f"{talkative.url}/v1/completions", json=body, headers=headers, timeout=60)
    logged(talkative, "core: request")
    end = time.monotonic() + 60
    while len([line for line in talkative.lines if "mine-42" in line]) < 7:
        assert time.monotonic() < end, "".join(talkative.lines)
        time.sleep(0.05)
    lines = [line for line in talkative.lines if "mine-42" in line]
    core = [line for line in lines if line.startswith("core: ")]
    assert sum("ended: stop" in line for line in core) == 2, "each output, in the core"
    assert sum("ended: stop" in line for line in lines) == 4, "and in the front end"
    assert any("2 tokens" in line for line in set(lines) - set(core))


def test_the_files_of_a_server_are_its_users_alone(talkative):
    """The sockets between front end and core."""
    core = talkative.children()[0]
    with open("/proc/net/unix") as file:
        paths = [line.split()[-1] for line in file if "framework-" in line and "/requests" in line]
    ours = [path for path in paths if os.path.exists(path)]
    assert ours, core
    for path in ours:
        folder = os.stat(os.path.dirname(path))
        assert stat.S_IMODE(folder.st_mode) == 0o700
        assert folder.st_uid == os.getuid() or os.getuid() == 0
