"""Numbers that heads must agree on with their model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.errors import ModelError

if TYPE_CHECKING:
    from framework.contracts.model import Model
    from framework.contracts.model_source import ModelFiles


def hidden_size(model: Model, device: str) -> int:
    """Numbers of a hidden state of the model."""
    import torch

    return int(model.embed(torch.zeros(1, dtype=torch.int64, device=device)).shape[-1])


def whole(files: ModelFiles, name: str, default: int | None = None) -> int:
    """A number of the configuration, at least 1.  Raises ModelError."""
    value = files.config.get(name, default)
    if type(value) is not int or value < 1:
        raise ModelError(
            f"the configuration of heads {files.name!r} is invalid",
            expected=f"{name}, an integer of at least 1",
            found=repr(value),
        )
    return value
