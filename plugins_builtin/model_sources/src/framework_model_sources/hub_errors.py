"""Errors of huggingface_hub as ModelErrors: what happened, and the mend.  No token in them."""

from __future__ import annotations

import os

from framework.contracts.model_source import ModelQuery
from framework.errors import ModelError

_TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_MOMENT = "try again later; HF_ENDPOINT names another hub"


def is_unreachable(error: Exception) -> bool:
    """No answer, or one that says that the hub is down.  A cached copy may stand in then."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, HfHubHTTPError):
        return error.response is not None and error.response.status_code >= 500
    return isinstance(error, OfflineModeIsEnabled | ConnectionError) or _is_transport(error)


def is_broken_off(error: Exception) -> bool:
    """A file that began to arrive and did not end."""
    return is_unreachable(error) or _is_incomplete(error)


def model_error(
    error: Exception, repo: str, query: ModelQuery, *, fetching: bool = False
) -> ModelError:
    """One clear error for whatever a download raised.

    fetching: the hub had answered before, so a lost connection broke off a download.
    """
    if isinstance(error, ModelError):
        return error
    message, mend = _words(error, repo, query)
    if fetching and is_unreachable(error):
        message = f"the connection broke while {repo} was fetched"
        mend = "run again: the download is resumed"
    return ModelError(message, found=_first_line(error, query), mend=mend)


def _words(error: Exception, repo: str, query: ModelQuery) -> tuple[str, str]:
    """(what happened, mend)"""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    token = "check the token" if query.token else "give a token"
    local = f"a model on this machine is named by a path: ./{query.name}"
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{repo} is gated: access must be granted on the hub first",
            f"ask for access on the model's page, then {token}",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return (
            f"{repo} has no revision {query.revision!r}",
            "name a branch, a tag or a full commit hash of the repository",
        )
    if status in (401, 403):
        return f"the hub refused access to {repo} ({status})", f"{token}; {local}"
    if isinstance(error, errors.RepositoryNotFoundError) or status == 404:
        return (
            f"the hub has no model {repo!r}, or it is private",
            f"check the name; for a private model {token}; {local}",
        )
    if isinstance(error, errors.HFValidationError):
        return f"{repo!r} cannot be the name of a repository", "write ORG/NAME"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{repo} is not in the cache and the hub may not be asked (HF_HUB_OFFLINE)",
            f"unset HF_HUB_OFFLINE; {local}",
        )
    if is_unreachable(error):
        return (
            f"the hub cannot be reached and {repo} is not in the cache",
            f"check the connection; HF_ENDPOINT names another hub; {local}",
        )
    if isinstance(error, errors.EntryNotFoundError):
        return f"a file of {repo} is missing on the hub", _MOMENT
    if _is_incomplete(error):
        return f"a file of {repo} arrived incomplete", "run again: the download is resumed"
    return f"downloading {repo} failed", _MOMENT


def _is_incomplete(error: Exception) -> bool:
    return isinstance(error, OSError) and "Consistency check failed" in str(error)


def _first_line(error: Exception, query: ModelQuery) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    secrets = [query.token, *(os.environ.get(name) for name in _TOKEN_VARIABLES)]
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text


def _is_transport(error: Exception) -> bool:
    """An error of the HTTP library below the level of answers; it changed its name before."""
    return any(
        cls.__name__ == "TransportError" and cls.__module__.split(".")[0].startswith("httpx")
        for cls in type(error).__mro__
    ) or type(error).__module__.startswith("requests.")
