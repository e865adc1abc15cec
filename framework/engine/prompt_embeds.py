"""A prompt given as embeddings: what is read of it, and what is wrong with the rest."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any

import numpy as np

from framework.contracts.step import F32
from framework.errors import InputError
from framework.shown import shown

NAME = "prompt_embeds"
_FORM = "numbers [tokens, hidden size], as an array, a tensor, or an .npy file as bytes or base64"


def read_embeds(value: object) -> F32:
    """float32 [tokens, hidden], tokens >= 1, all finite; a copy that nobody else can change.

    value: a numpy array or a tensor of any floating type; or the bytes of an `.npy` file, or
    these in base64.  Nothing is unpickled.  Raises InputError for anything else.
    """
    if isinstance(value, str):
        value = _decoded(value)
    array = _file(bytes(value)) if isinstance(value, bytes | bytearray) else _array(value)
    if array.ndim != 2 or not array.size:
        raise _bad(_FORM, f"shape {list(array.shape)}")
    with np.errstate(over="ignore"):
        found = np.array(array, np.float32, order="C")
    if not np.isfinite(found).all():
        raise _bad("finite float32 numbers", "NaN, infinity, or numbers beyond float32")
    found.flags.writeable = False
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii", "replace"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad("an .npy file in base64", f"{shown(text):.40}: {error}") from None


def _array(value: object) -> np.ndarray[Any, np.dtype[Any]]:
    if hasattr(value, "detach") and hasattr(value, "float"):  # a tensor, of any device and type
        value = value.detach().float().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise _bad(_FORM, f"{type(value).__name__} {shown(value):.80}")
    _check_type(value.dtype)
    return value


def _file(data: bytes) -> np.ndarray[Any, np.dtype[Any]]:
    """Of an .npy file.  The numbers are taken from what is there, never from what its header
    says that there is."""
    source = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(source)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, by_columns, dtype = read(source)
    except Exception:  # whatever numpy's parsers make of rubbish
        raise _bad("an .npy file of version 1 or 2", f"{len(data)} bytes that are none") from None
    _check_type(dtype)
    rest = data[source.tell() :]
    # An empty one could be of any width, also of one that numpy cannot hold.
    if len(shape) != 2 or any(type(size) is not int or size < 1 for size in shape):
        raise _bad(_FORM, f"shape {shown(list(shape)):.80}")
    if len(rest) != shape[0] * shape[1] * dtype.itemsize:
        said = f"{shown(list(shape)):.80} numbers of {dtype}"
        raise _bad(f"an .npy file with {said}", f"{len(rest)} bytes")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if by_columns else "C")


def _check_type(dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise _bad("float16, float32 or float64", f"numbers of type {dtype!s:.80}")


def check_width(array: F32, width: int) -> None:
    """Raises InputError unless each vector has as many numbers as the model's own have."""
    if array.shape[1] != width:
        raise _bad(f"vectors of {width} numbers, the model's hidden size", str(array.shape[1]))


def _bad(expected: str, found: str) -> InputError:
    return InputError(f"{NAME} is invalid", parameter=NAME, expected=expected, found=found)
