"""Plugin `model_source:local`: a folder or a GGUF file on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelQuery, ModelSource
from framework.errors import ModelError

_PATH_STARTS = ("/", "./", "../", "~")
_DOTS = (".", "..", "~")


class LocalSource(ModelSource):
    """Whatever exists, and whatever can only be a path: a typing error in a path is then an
    error about that path, not about a hub."""

    def answer(self, query: ModelQuery) -> Answer:
        if _looks_like_path(query.name) or _find(query.name) is not None:
            return Supported(note="a path on this machine")
        return Rejected(
            (
                Rejection(
                    code="not_found",
                    field="name",
                    found=query.name,
                    needed="an existing folder or .gguf file",
                    remedy="name a folder or file that exists",
                ),
            )
        )

    def fetch(self, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
        """(folder, weight files).  ModelError if the path or its weights are missing."""
        path = _find(query.name)
        if path is None:
            raise ModelError(
                f"there is no model at {query.name!r}",
                expected="a folder or a .gguf file on this machine",
                found=f"nothing at {_absolute(query.name)}",
                mend="correct the path; a model of a hub is named ORG/NAME",
            )
        if query.revision is not None:
            raise ModelError(
                f"{path}: a folder on this machine has no revisions",
                found=f"revision={query.revision!r}",
                mend="leave the revision out",
            )
        if path.is_dir():
            found = weights_in(path, want_weights=query.want_weights)
            _check_readable(*found, *sorted(path.glob("*.json")))
            return path, found
        found = _file(path)
        _check_readable(*found)
        return path.parent, found


def weights_in(folder: Path, *, want_weights: bool) -> tuple[Path, ...]:
    """The weight files of a folder.

    Without `want_weights` only a GGUF file, and only where it is also the configuration.
    """
    from framework_model_sources.choose import GGUF, choose_weights

    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_file()]
    except OSError as error:
        raise ModelError(
            f"{folder} cannot be read", found=str(error), mend="check its permissions"
        ) from error
    if not want_weights:
        if {"config.json", "tokenizer.json", "tokenizer_config.json"} & set(names):
            return ()
        names = [name for name in names if name.lower().endswith(GGUF)]
        return tuple(folder / name for name in choose_weights(names, str(folder)))
    chosen = choose_weights(names, str(folder))
    if not chosen:
        listed = ", ".join(sorted(names)[:8]) or "an empty folder"
        raise ModelError(
            f"{folder} holds no weights",
            expected="files *.safetensors, *.gguf or *.bin",
            found=listed,
            mend="name the folder of a complete model, or use load_format=dummy",
        )
    return tuple(folder / name for name in chosen)


def _check_readable(*files: Path) -> None:
    """ModelError for one that this process may not read; whoever reads it would call it damaged."""
    for file in files:
        if file.is_file() and not os.access(file, os.R_OK):
            raise ModelError(
                f"{file} may not be read by this user",
                expected="permission to read it",
                found=f"mode {file.stat().st_mode & 0o777:03o}",
                mend=f"chmod +r {file}, or run as its owner",
            )


def _file(path: Path) -> tuple[Path, ...]:
    from framework_model_sources.choose import GGUF, parts_of

    if path.suffix.lower() != GGUF:
        raise ModelError(
            f"{path} is a file of a kind that is not a model by itself",
            expected="a folder, or a .gguf file",
            found=path.suffix or "no suffix",
            mend=f"name the folder: {path.parent}",
        )
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    return tuple(path.parent / name for name in parts_of(path.name, names))


def _looks_like_path(name: str) -> bool:
    if name.startswith(_PATH_STARTS) or name in _DOTS or "\\" in name:
        return True
    # Two slashes may be a file of a hub's repository: ORG/NAME/FILE.gguf.
    return name.lower().endswith(".gguf") and ":" not in name and name.count("/") < 2


def _absolute(name: str) -> str:
    try:
        return str(Path(name).expanduser().absolute())
    except (OSError, ValueError, RuntimeError):
        return repr(name)


def _find(name: str) -> Path | None:
    """The path if something is there; names that no path can have are not."""
    if not name.strip():
        return None
    try:
        path = Path(name).expanduser()
        return path if path.is_dir() or path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None
