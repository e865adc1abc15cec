"""Lines of a batch: requests that are read, and results that are written."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.errors import ConfigError, InputError

INVALID = "invalid_line"
FORMAT = '{"custom_id": TEXT, "method": "POST", "url": "/v1/...", "body": {...}}'


@dataclass(frozen=True, slots=True)
class Request:
    """number: of its line, from 0.  url: below the server, such as /v1/chat/completions."""

    number: int
    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wrong:
    """A line that is no request, and why.  custom_id: if it has one."""

    number: int
    custom_id: str | None
    reason: str


def read_requests(path: Path, done: Collection[str]) -> Iterator[Request | Wrong]:
    """One for each line that is not empty, but for those whose custom_id is in `done`.  Reads as
    it goes.  Raises ConfigError for a file that cannot be read."""
    seen: set[str] = set()
    number = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.strip():
                    continue
                found = _request(number, line, seen)
                if found.custom_id not in done:
                    yield found
                number += 1
    except OSError as error:
        raise ConfigError(f"the batch cannot be read: {error}", found=str(path)) from error


def _request(number: int, line: bytes, seen: set[str]) -> Request | Wrong:
    row: object = None
    custom_id = None
    try:
        row = _object(line)
        given = row.get("custom_id")
        custom_id = given if isinstance(given, str) and given else None
        request = Request(number, *_checked(row, custom_id))
        if request.custom_id in seen:
            raise InputError(f"another line has the custom_id {request.custom_id!r:.80}")
    except InputError as error:
        # A second line of one name must not count as the first's result.
        again = custom_id in seen
        return Wrong(number, None if again else custom_id, error.message)
    finally:
        if custom_id is not None:
            seen.add(custom_id)
    return request


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"the line is no JSON: {error}; expected {FORMAT}") from error
    if not isinstance(row, dict):
        raise InputError(f"the line is no object; expected {FORMAT}")
    return row


def _checked(row: Mapping[str, Any], custom_id: str | None) -> tuple[str, str, dict[str, Any]]:
    url, body = row.get("url"), row.get("body")
    if custom_id is None:
        raise InputError("custom_id is missing, or is no text")
    if row.get("method", "POST") != "POST":
        raise InputError(f"method is {row['method']!r:.40}; expected POST")
    if not isinstance(url, str) or not url.startswith("/"):
        raise InputError(f"url is {url!r:.80}; expected a path such as /v1/chat/completions")
    if not isinstance(body, dict):
        raise InputError("body is missing, or is no object")
    if body.get("stream"):
        raise InputError("stream is not for batches; expected no stream in body")
    return custom_id, url, body


def answered(request: Request, status: int, request_id: str | None, body: object) -> dict[str, Any]:
    """The line of a request that the server answered, well or not."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    error = None if status < 400 else {"code": str(status), "message": _message(body)}
    return _line(request.custom_id, response, error)


def failed(custom_id: str | None, code: str, message: str) -> dict[str, Any]:
    """The line of a request that got no answer, or was none."""
    return _line(custom_id, None, {"code": code, "message": message})


def _line(custom_id: str | None, response: object, error: object) -> dict[str, Any]:
    name = f"batch_req_{uuid.uuid4().hex}"
    return {"id": name, "custom_id": custom_id, "response": response, "error": error}


def _message(body: object) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    found = error.get("message") if isinstance(error, dict) else None
    return str(found if found is not None else body)[:1000]


def is_done(line: Mapping[str, Any]) -> bool:
    """Whether asking again could not change the result: an answer, or what is wrong with the
    request itself.  An overloaded or broken server may do better next time."""
    response = line.get("response")
    if isinstance(response, dict):
        status = response.get("status_code")
        return isinstance(status, int) and status < 500 and status not in (401, 403, 408, 429)
    return False


def keep_done(path: Path) -> set[str]:
    """Reduce a file of results to those that are done; their custom_ids.  A last line that was
    cut short goes, too.  Raises ConfigError for a file that is none of ours."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"the results cannot be read: {error}", found=str(path)) from error
    kept: list[bytes] = []
    done: set[str] = set()
    for number, line in enumerate(lines):
        row = _result(line)
        if row is None and number < len(lines) - 1:
            raise ConfigError(
                f"{path}, line {number + 1} is no result of a batch",
                expected="the file of an earlier run",
                found=f"{line[:80]!r}",
                mend="name another file with -o",
            )
        if row is not None and is_done(row) and isinstance(row.get("custom_id"), str):
            kept.append(line)
            done.add(row["custom_id"])
    part = path.with_name(path.name + ".part")
    part.write_bytes(b"".join(line + b"\n" for line in kept))
    part.replace(path)
    return done


def _result(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and {"custom_id", "response", "error"} <= set(row) else None
