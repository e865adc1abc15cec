"""Tensors of torch for who speaks numpy only.  torch is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from framework.contracts.tensor_bridge import TensorBridge
from framework.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

# As the framework writes them, and as torch does.
_NAMES = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
    "int64": "int64",
    "int32": "int32",
    "uint8": "uint8",
    "bool": "bool",
}
_NOT_IN_NUMPY = ("bfloat16", "float8_e4m3", "float8_e5m2")


class TorchBridge(TensorBridge):
    """torch's tensors, on any device that torch knows."""

    def dtypes(self, device: str) -> tuple[str, ...]:
        return tuple(_NAMES)

    def tensor(self, array: np.ndarray, dtype: str, device: str) -> torch.Tensor:
        import torch

        # A copy, because torch would share the memory of the array.
        return torch.from_numpy(np.array(array, order="C")).to(device, _dtype(dtype))

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        narrow = tensor.dtype in [_dtype(name) for name in _NOT_IN_NUMPY]
        host = tensor.detach().cpu()
        values = host.float() if narrow else host
        return np.array(values.numpy())

    def view(
        self, buffer: Any, dtype: str, shape: tuple[int, ...], offset: int, stride: int
    ) -> torch.Tensor:
        wanted = _dtype(dtype)
        inner = 1
        for size in shape[1:]:
            inner *= size
        elements = buffer.view(wanted)
        flat = elements.as_strided(
            (shape[0], inner), (stride // wanted.itemsize, 1), offset // wanted.itemsize
        )
        view: torch.Tensor = flat.view(shape)
        return view


def _dtype(name: str) -> torch.dtype:
    import torch

    if name not in _NAMES:
        raise UnsupportedError(
            f"torch has no element type {name!r}",
            expected=f"one of {', '.join(_NAMES)}",
            found=name,
        )
    found: torch.dtype = getattr(torch, _NAMES[name])
    return found
