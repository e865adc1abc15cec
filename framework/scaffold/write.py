"""Files on disk, all or none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from framework.errors import ConfigError


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write `files` (relative path -> text) into a new folder; returns what was written.

    Raises ConfigError if the folder exists or cannot be written; then nothing is left behind.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError as error:
        raise ConfigError(
            f"{error.filename} exists",
            expected="a folder that is not there yet",
            mend="choose another name or --output, or remove it",
        ) from error
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error}") from error
    try:
        return [_write(folder / path, text) for path, text in files.items()]
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ConfigError(f"{folder} cannot be written: {error}") from error


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
