"""What a runner tells of what its model makes of whole prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.contracts.model import Model
    from framework_torch.pooling.config import PoolingConfig


def class_labels(model: Model) -> tuple[str, ...]:
    """Names of the classes of a model with a head for them; () of any other."""
    return tuple(getattr(model, "class_labels", ()))


def features_of(pooling: PoolingConfig | None, labels: tuple[str, ...]) -> frozenset[str]:
    """What such a runner declares."""
    found = set[str]()
    if pooling is not None or labels:
        found.add("pooling")
    if labels:
        found.add("classification")
    return frozenset(found)


def hidden_size(model: Model, embedding: int) -> int:
    """Numbers of the hidden state of a token.  embedding: of what `Model.embed` gives for one."""
    return int(getattr(model, "hidden_size", None) or embedding)


def embedding_size(model: Model, device: str) -> int:
    """Numbers of what `Model.embed` gives for a token."""
    import torch

    with torch.inference_mode():
        return int(model.embed(torch.zeros(1, dtype=torch.int64, device=device)).shape[-1])
