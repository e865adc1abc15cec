"""Kind `tensor_bridge`: tensors of one API, for who speaks numpy only.

The name of a plugin is the name of the API, as `AttentionQuery.tensor_api` writes it ("torch").
The conformance kit, which imports no tensor library, hands tensors over with it and reads what
a plugin wrote.  Tensors are opaque to who uses a bridge.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from framework.contracts.base import Contract


class TensorBridge(Contract):
    """Element types are written as torch writes them ("float32"), devices too ("cpu")."""

    kind: ClassVar[str] = "tensor_bridge"

    @abstractmethod
    def dtypes(self, device: str) -> tuple[str, ...]:
        """Element types that tensors on `device` can have; "uint8" is among them."""

    @abstractmethod
    def tensor(self, array: np.ndarray, dtype: str, device: str) -> Any:
        """A new contiguous tensor with the values of `array`, rounded to nearest.

        It shares no memory with `array`.  Raises UnsupportedError for a type that is not in
        `dtypes`.
        """

    @abstractmethod
    def array(self, tensor: Any) -> np.ndarray:
        """A copy of the values on the host, once all work on the tensor is done.

        Element types that numpy lacks come as float32, which holds their values exactly; all
        others keep theirs.
        """

    @abstractmethod
    def write(self, tensor: Any, array: np.ndarray) -> None:
        """Put the values of `array` into a tensor of the same shape, in place, rounded to
        nearest; later work on the tensor sees them."""

    @abstractmethod
    def view(
        self, buffer: Any, dtype: str, shape: tuple[int, ...], offset: int, stride: int
    ) -> Any:
        """A tensor that shares the memory of `buffer`, a contiguous one of uint8.

        Element i of dimension 0 begins `offset + i * stride` bytes into it; within, it is
        contiguous.  Both are multiples of the size of an element.  What is written through the
        view is seen in the buffer, so that `array(buffer)` shows whatever else was written.
        Raises UnsupportedError as `tensor` does.
        """

    def defaults(self) -> Mapping[str, object]:
        """What holds for all tensors and computations of the process that do not say otherwise,
        by name: such as "dtype", "device", "deterministic" and "threads".  None of it by default.

        A change to any of them reaches code that has nothing to do with who made it.
        """
        return {}

    def restore(self, defaults: Mapping[str, object]) -> None:
        """Make those that `defaults` names what it says; values as `defaults` gives them."""
