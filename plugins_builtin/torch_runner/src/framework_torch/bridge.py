"""Tensors of torch for who speaks numpy only.  torch is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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


class _Default(NamedTuple):
    """Of the process.  Values can be compared with ==."""

    get: Callable[[], object]
    set: Callable[[Any], object]


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

    def write(self, tensor: torch.Tensor, array: np.ndarray) -> None:
        import torch

        tensor.copy_(torch.from_numpy(np.array(array, order="C")))

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

    def defaults(self) -> Mapping[str, object]:
        return {name: default.get() for name, default in _defaults().items()}

    def restore(self, defaults: Mapping[str, object]) -> None:
        # Only what differs: to set a device, for example, costs each call from then on.
        for name, default in _defaults().items():
            if name in defaults and default.get() != defaults[name]:
                default.set(defaults[name])


def _defaults() -> dict[str, _Default]:
    import torch

    def set_device(name: str) -> None:
        torch.set_default_device(None if name == "cpu" else name)

    def set_random(state: bytes) -> None:
        torch.set_rng_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    def set_deterministic(modes: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(modes[0], warn_only=modes[1])

    return {
        "dtype": _Default(torch.get_default_dtype, torch.set_default_dtype),
        "device": _Default(lambda: str(torch.get_default_device()), set_device),
        "deterministic": _Default(
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            set_deterministic,
        ),
        "precision of products": _Default(
            torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
        ),
        "gradients": _Default(torch.is_grad_enabled, torch.set_grad_enabled),
        "random numbers": _Default(lambda: bytes(torch.get_rng_state().numpy()), set_random),
        "threads": _Default(torch.get_num_threads, torch.set_num_threads),
    }


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
