"""Tensors of the heads that belong to a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.errors import ModelError

if TYPE_CHECKING:
    import torch

    from framework.contracts.model_source import ModelFiles


class Tensors:
    """All tensors of safetensors files, float32 on `device`, by name without `prefix`."""

    def __init__(self, files: ModelFiles, device: str, prefix: str = "") -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        self._of = files.name
        if not files.weights or any(file.suffix != ".safetensors" for file in files.weights):
            raise ModelError(
                f"{files.name!r} holds no heads that can be read",
                expected="files that end in .safetensors",
                found=", ".join(file.name for file in files.weights) or "no files",
                mend="name the folder of such heads, as speculative_model",
            )
        self._found: dict[str, torch.Tensor] = {}
        for file in files.weights:
            try:
                loaded = load_file(file)
            except (OSError, SafetensorError, ValueError) as error:
                raise ModelError(
                    f"{file} cannot be read",
                    expected="a safetensors file",
                    found=error,
                    mend="fetch the file again: it is damaged or was cut off",
                ) from error
            for name, tensor in loaded.items():
                self._found[name.removeprefix(prefix)] = tensor.float().to(device)

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor, which must be there and have this shape.  Raises ModelError."""
        tensor = self.optional(name, *shape)
        if tensor is None:
            raise ModelError(
                f"heads {self._of!r} lack a tensor",
                expected=f"{name} of shape {list(shape)}",
                found=", ".join(sorted(self._found)[:6]) or "none",
                mend="choose heads that were made for this proposer",
            )
        return tensor

    def optional(self, name: str, *shape: int) -> torch.Tensor | None:
        """The same, or None if it is not there."""
        tensor = self._found.pop(name, None)
        if tensor is not None and tuple(tensor.shape) != shape:
            raise ModelError(
                f"tensor {name!r} of heads {self._of!r} has another shape",
                expected=list(shape),
                found=list(tensor.shape),
                mend="choose heads that were made for this model",
            )
        return tensor

    def check_empty(self) -> None:
        """Raises ModelError if something was left that nobody took."""
        if self._found:
            raise ModelError(
                f"heads {self._of!r} hold tensors that this release does not know",
                expected="none",
                found=", ".join(sorted(self._found)[:6]),
                mend="choose heads that were made for this proposer",
            )
