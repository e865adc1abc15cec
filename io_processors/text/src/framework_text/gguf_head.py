"""What the head of a GGUF file says, with typed access to its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from framework.errors import ModelError

T = TypeVar("T")

MEND = "download or convert the file again"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the table of tensors.

    shape: outermost dimension first, as torch has it.  type_id: ggml's number of the format.
    start, nbytes: where its data lie, counted from the start of the file.
    """

    name: str
    shape: tuple[int, ...]
    type_id: int
    start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class GgufHead:
    """metadata: strings as str, arrays of strings as list[str], arrays of numbers as numpy."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or ""

    def text(self, key: str) -> str | None:
        """A string, None if absent; ModelError for another type."""
        return self._typed(key, str, "a string")

    def flag(self, key: str) -> bool | None:
        return self._typed(key, bool, "a bool")

    def integer(self, key: str) -> int | None:
        value = self._typed(key, int, "an integer")
        if isinstance(value, bool):
            raise self._wrong(key, "an integer", value)
        return value

    def number(self, key: str) -> float | None:
        value = self.metadata.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number", value)
        return float(value)

    def strings(self, key: str) -> list[str] | None:
        return self._typed(key, list, "an array of strings")

    def numbers(self, key: str) -> np.ndarray | None:
        return self._typed(key, np.ndarray, "an array of numbers")

    def _typed(self, key: str, wanted: type[T], words: str) -> T | None:
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, wanted):
            raise self._wrong(key, words, value)
        return value

    def _wrong(self, key: str, words: str, value: object) -> ModelError:
        return ModelError(
            f"{self.path}: the metadata key {key!r} has the wrong type",
            expected=words,
            found=type(value).__name__,
            mend=MEND,
        )
