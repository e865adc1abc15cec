"""A model hub on this machine: the few endpoints that huggingface_hub asks for."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

TOKEN = "hf_secretsecretsecret"


def commit(repo: str, revision: str) -> str:
    return hashlib.sha1(f"{repo}@{revision}".encode()).hexdigest()


@dataclass
class Repo:
    """revisions: name -> files.  private: needs the token.  gated: refuses with a code."""

    revisions: dict[str, dict[str, bytes]]
    private: bool = False
    gated: bool = False
    cut: str | None = None  # the file of which only half is sent
    admit_cut: bool = False  # with the length that it should have had
    cut_at: int | None = None  # after so many bytes instead of half of them
    down: bool = False


@dataclass
class Hub:
    """url: of the endpoint.  requests: (method, path) of every request."""

    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    def reply(self, path: str, authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of a path."""
        api = path.startswith("/api/models/")
        words = path.removeprefix("/api/models/").strip("/").split("/")
        name, rest = "/".join(words[:2]), words[2:]
        repo = self.repos.get(name)
        if repo is not None and repo.down:
            return 503, {}, b""
        if repo is None or (repo.private and authorization != f"Bearer {TOKEN}"):
            code = 401 if authorization is None else 404
            return code, {"X-Error-Code": "RepoNotFound"}, b'{"error": "Repository not found"}'
        if repo.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b'{"error": "gated"}'
        by_commit = {commit(name, revision): revision for revision in repo.revisions}
        asked = unquote(rest[1]) if len(rest) > 1 else "main"
        revision = by_commit.get(asked, asked)
        if revision not in repo.revisions:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b'{"error": "Invalid rev id"}'
        files, sha = repo.revisions[revision], commit(name, revision)
        if api:
            return 200, {}, json.dumps(self._api(name, sha, files, rest)).encode()
        file = unquote("/".join(rest[2:]))
        if rest[0] != "resolve" or file not in files:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        etag = hashlib.sha1(files[file]).hexdigest()
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": sha}, files[file]

    def _api(self, name: str, sha: str, files: dict[str, bytes], rest: list[str]) -> Any:
        if rest[:1] == ["tree"]:
            return [
                {
                    "type": "file",
                    "path": file,
                    "size": len(data),
                    "oid": hashlib.sha1(data).hexdigest(),
                }
                for file, data in files.items()
            ]
        siblings = [{"rfilename": file} for file in files]
        return {"id": name, "modelId": name, "sha": sha, "siblings": siblings, "private": False}


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            hub.requests.append((self.command, path))
            status, headers, body = hub.reply(path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            cutting = [r for r in hub.repos.values() if r.cut and path.endswith("/" + r.cut)]
            cut = bool(cutting)
            if self.command == "HEAD" or not cut or cutting[0].admit_cut:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                stop = cutting[0].cut_at or len(body) // 2 if cut else len(body)
                self.wfile.write(body[:stop])

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Always stops: the thread is a daemon, and the server is closed in any case."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(hub))
    server.daemon_threads = True
    # It looks every hundredth of a second whether it is to end.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


# huggingface_hub reads its environment when it is imported, so each test is a process.
CHILD = """
import json, os, sys
from framework.contracts.model_source import ModelQuery
from framework.errors import ModelError
from framework_model_sources.{module} import {cls}
results = []
import time
time.sleep = lambda seconds: None  # between the library's attempts
for query in json.loads(sys.stdin.read()):
    env = query.pop("env", {{}})
    os.environ.update(env)
    try:
        root, files = {cls}().fetch(ModelQuery(**query))
        found = {{p.name: p.read_bytes().decode("latin-1") for p in root.iterdir() if p.is_file()}}
        weights = [str(p.relative_to(root)) for p in files]
        results.append({{"root": str(root), "weights": weights, "files": found}})
    except ModelError as error:
        results.append({{"error": str(error)}})
print("RESULT" + json.dumps(results))
"""


@pytest.fixture
def fetch(hub: Hub, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """fetch(query, ...) -> for each, root and weights or the error's text."""

    def run(
        *queries: dict[str, Any], source: str = "hub.HubSource", **env: str
    ) -> list[dict[str, Any]]:
        module, cls = source.split(".")
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        home = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", CHILD.format(module=module, cls=cls)],
            input=json.dumps(queries),
            env=kept | home | {"HF_ENDPOINT": hub.url} | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert TOKEN not in done.stdout + done.stderr
        line = next((ln for ln in done.stdout.splitlines() if ln.startswith("RESULT")), None)
        assert line is not None, done.stderr
        results: list[dict[str, Any]] = json.loads(line.removeprefix("RESULT"))
        with contextlib.suppress(KeyError):
            results[-1]["stderr"] = done.stderr
        return results

    return run


@pytest.fixture
def repo() -> type[Repo]:
    return Repo


@pytest.fixture
def token() -> str:
    return TOKEN
