"""Plugin `model_source:hub`: a repository of a model hub, through huggingface_hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelQuery, ModelSource

_PIECE = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(
    rf"(?P<repo>{_PIECE}/{_PIECE})(?:[:/](?P<file>[^:\0]+\.gguf))?\Z"
    rf"|(?P<short>{_PIECE})(?::(?P<short_file>[^:\0]+\.gguf))?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class HubName:
    """repo: "org/name", or a name without an owner.  file: one of several GGUF files."""

    repo: str
    file: str | None = None


def parse(name: str) -> HubName | None:
    """None for what cannot be the name of a repository."""
    match = _NAME.match(name)
    if match is None or any(mark in name for mark in ("..", "--")):
        return None
    return HubName(match["repo"] or match["short"], match["file"] or match["short_file"])


class HubSource(ModelSource):
    """ORG/NAME; ORG/NAME:FILE.gguf or ORG/NAME/FILE.gguf where a repository has several.

    Endpoint, cache and offline mode are those of huggingface_hub (HF_ENDPOINT, HF_HOME,
    HF_HUB_OFFLINE).
    """

    def answer(self, query: ModelQuery) -> Answer:
        if parse(query.name) is not None:
            return Supported(note="a repository of the model hub")
        return Rejected(
            (
                Rejection(
                    code="name",
                    field="name",
                    found=query.name,
                    needed="ORG/NAME or ORG/NAME:FILE.gguf",
                    remedy="name a repository of the hub",
                ),
            )
        )

    def fetch(self, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
        """(folder, weight files).  Downloads what the cache lacks; ModelError with the mend.

        Without a connection the cached copy is used, with a warning.
        """
        from framework_model_sources.download import Download

        name = parse(query.name)
        assert name is not None, "fetch comes after an answer that supports"
        return Download(name, query).run()
