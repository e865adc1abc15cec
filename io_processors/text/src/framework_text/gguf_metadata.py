"""The head of a GGUF file, read with bounds: metadata and the table of tensors, no weights.

Layout (little-endian; the GGUF specification, versions 2 and 3):

    "GGUF" | version u32 | tensors u64 | keys u64
    keys    x { key: string, type u32, value }
    tensors x { name: string, n_dims u32, dims u64 x n_dims, type u32, offset u64 }
    padding to `general.alignment` | tensor data

    string = length u64, bytes      array = type u32, count u64, values

The gguf library's reader makes several arrays per string (SmolLM2: 2 s, a vocabulary of 262k
tokens: 10 s) and trusts every count.  This one checks each count against the bytes that are
left before it allocates or loops, so a damaged file is an error at once.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from framework.errors import ModelError
from framework_text.gguf_head import MEND, GgufHead, TensorInfo

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
# Far above any real file; they bound the time that a hostile one can cost.
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 20
MAX_STRINGS = 1 << 22
MAX_NUMBERS = 1 << 26
MAX_NAME = 1 << 16
MAX_DIMS = 8
MAX_ALIGNMENT = 1 << 20

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, struct.Struct] = {
    number: struct.Struct("<" + letter) for number, letter in enumerate("BbHhIif?")
} | {10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d")}
_U32, _U64 = _SCALARS[4], _SCALARS[10]


def is_gguf(path: Path) -> bool:
    """Whether the file begins with GGUF's magic, or is called as such a file and ends within it:
    then it is a damaged one.  Reads four bytes; False if unreadable."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
            cut = len(start) < len(MAGIC) and path.suffix.lower() == ".gguf"
            return start == MAGIC or (cut and MAGIC.startswith(start))
    except OSError:
        return False


def read_head(path: Path) -> GgufHead:
    """Read metadata and tensor table.  ModelError names the file and what is wrong with it."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            if len(magic) < len(MAGIC):
                raise ModelError(
                    f"{path} is damaged: it ends within GGUF's magic",
                    found=f"{len(magic)} bytes",
                    mend=MEND,
                )
            if magic != MAGIC:
                raise ModelError(
                    f"{path} is not a GGUF file",
                    expected=f"the first four bytes {MAGIC!r}",
                    found=repr(magic),
                    mend=MEND,
                )
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot read {path}",
            found=str(error),
            mend="check that the file exists and is readable",
        ) from error
    with view:
        return _Reader(path, view).head()


class _Reader:
    """A cursor over the mapped file; every step forward is checked against the end."""

    def __init__(self, path: Path, view: mmap.mmap) -> None:
        self.path = path
        self.view = view
        self.size = len(view)
        self.at = 4

    def fail(self, what: str, expected: object = None, found: object = None) -> ModelError:
        return ModelError(
            f"{self.path} is damaged: {what}", expected=expected, found=found, mend=MEND
        )

    def head(self) -> GgufHead:
        version = self.scalar(_U32, "the version")
        if version not in VERSIONS:
            big_endian = version & 0xFFFF == 0
            raise ModelError(
                f"{self.path}: GGUF version {version} cannot be read",
                expected=f"version {' or '.join(map(str, VERSIONS))}, little-endian",
                found="a big-endian file" if big_endian else version,
                mend="convert the model with a current converter",
            )
        tensors = self.count("tensors", MAX_TENSORS, smallest=24)
        keys = self.count("metadata keys", MAX_KEYS, smallest=13)
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self.name("a metadata key")
            if key in metadata:
                raise self.fail(f"the metadata key {key!r} is there twice")
            metadata[key] = self.value(key)
        rows = [self.row() for _ in range(tensors)]
        return GgufHead(self.path, metadata, self.place(rows, metadata))

    def scalar(self, kind: struct.Struct, what: str) -> Any:
        if self.at + kind.size > self.size:
            raise self.fail(f"it ends within {what}", found=f"{self.size} bytes")
        value = kind.unpack_from(self.view, self.at)[0]
        self.at += kind.size
        return value

    def count(self, what: str, most: int, smallest: int) -> int:
        """A number of items that take at least `smallest` bytes each."""
        number = int(self.scalar(_U64, f"the number of {what}"))
        room = min(most, (self.size - self.at) // smallest)
        if number > room:
            raise self.fail(
                f"it claims more {what} than fit", expected=f"at most {room}", found=number
            )
        return number

    def name(self, what: str) -> str:
        return self.decode(self.take(what, MAX_NAME), what)

    def take(self, what: str, most: int | None = None) -> bytes:
        length = int(self.scalar(_U64, f"the length of {what}"))
        room = self.size - self.at if most is None else min(most, self.size - self.at)
        if length > room:
            raise self.fail(f"{what} is too long", expected=f"at most {room} bytes", found=length)
        start, self.at = self.at, self.at + length
        return self.view[start : self.at]

    def decode(self, raw: bytes, what: str) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8", found=repr(raw[:40])) from error

    def value(self, key: str) -> Any:
        type_id = self.scalar(_U32, f"the type of {key!r}")
        if type_id == _STRING:
            return self.decode(self.take(repr(key)), repr(key))
        if type_id == _ARRAY:
            return self.array(key)
        if type_id in _SCALARS:
            return self.scalar(_SCALARS[type_id], repr(key))
        raise self.fail(f"{key!r} has an unknown type", expected="0 to 12", found=type_id)

    def array(self, key: str) -> list[str] | np.ndarray:
        type_id = self.scalar(_U32, f"the type of {key!r}")
        if type_id == _STRING:
            return self.string_array(key, self.count(f"items of {key!r}", MAX_STRINGS, smallest=8))
        if type_id not in _SCALARS:
            raise self.fail(f"{key!r} is an array of type {type_id}", expected="numbers or strings")
        kind = _SCALARS[type_id]
        number = self.count(f"items of {key!r}", MAX_NUMBERS, smallest=kind.size)
        dtype = np.dtype(bool) if type_id == _BOOL else np.dtype(kind.format)
        start, self.at = self.at, self.at + number * kind.size
        return np.frombuffer(self.view[start : self.at], dtype)

    def string_array(self, key: str, number: int) -> list[str]:
        """The hot loop: a vocabulary and its merges are some 100k to 800k strings."""
        view, at, size, unpack = self.view, self.at, self.size, _U64.unpack_from
        values: list[str] = []
        for _ in range(number):
            start = at + 8
            if start > size:
                raise self.fail(f"it ends within {key!r}", found=f"{size} bytes")
            at = start + unpack(view, at)[0]
            if at > size:
                raise self.fail(f"an item of {key!r} is longer than the file")
            try:
                values.append(view[start:at].decode("utf-8"))
            except UnicodeDecodeError:
                raise self.fail(f"item {len(values)} of {key!r} is not UTF-8") from None
        self.at = at
        return values

    def row(self) -> tuple[str, tuple[int, ...], int, int]:
        """One row of the tensor table: name, shape, type, offset from the start of the data."""
        name = self.name("a tensor's name")
        n_dims = self.scalar(_U32, f"the shape of {name!r}")
        if n_dims > MAX_DIMS:
            raise self.fail(
                f"tensor {name!r} has too many dimensions", expected=MAX_DIMS, found=n_dims
            )
        dims = [int(self.scalar(_U64, f"the shape of {name!r}")) for _ in range(n_dims)]
        type_id = self.scalar(_U32, f"the type of {name!r}")
        offset = self.scalar(_U64, f"the offset of {name!r}")
        return name, tuple(reversed(dims)), type_id, offset

    def place(
        self, rows: list[tuple[str, tuple[int, ...], int, int]], metadata: Mapping[str, Any]
    ) -> Mapping[str, TensorInfo]:
        """The tensors by name, each checked to lie within the file."""
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if (
            type(alignment) is not int
            or not 1 <= alignment <= MAX_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise self.fail("its alignment is impossible", "a power of two", alignment)
        data = -(-self.at // alignment) * alignment
        block_size = _block_sizes() if rows else None
        tensors: dict[str, TensorInfo] = {}
        for name, shape, type_id, offset in rows:
            if name in tensors:
                raise self.fail(f"tensor {name!r} is there twice")
            assert block_size is not None
            nbytes = self.nbytes(name, shape, block_size(type_id))
            start = data + offset
            if start + nbytes > self.size:
                raise self.fail(
                    f"tensor {name!r} ends beyond the end of the file",
                    expected=f"at least {start + nbytes} bytes",
                    found=f"{self.size} bytes: the file is truncated or its table is wrong",
                )
            tensors[name] = TensorInfo(name, shape, type_id, start, nbytes)
        return tensors

    def nbytes(self, name: str, shape: tuple[int, ...], block: tuple[int, int] | None) -> int:
        """Bytes of a tensor; `block` is (elements, bytes) of one block."""
        if block is None:
            raise ModelError(
                f"{self.path}: tensor {name!r} is of a format that is not known",
                mend="use another quantization of the model",
            )
        elements, size = block
        row = shape[-1] if shape else 1
        if row % elements:
            raise self.fail(
                f"rows of {name!r} are not whole blocks", f"a multiple of {elements}", row
            )
        return prod(shape) // elements * size


def _block_sizes() -> Callable[[int], tuple[int, int] | None]:
    """(elements, bytes) of a block by ggml's number; None for an unknown format."""
    from gguf.constants import GGML_QUANT_SIZES

    table = {int(kind): (int(a), int(b)) for kind, (a, b) in GGML_QUANT_SIZES.items()}
    return table.get
