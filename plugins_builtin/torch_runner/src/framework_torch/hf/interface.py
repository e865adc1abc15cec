"""Our attention in Transformers' attention interface.

Transformers keeps attention functions in a table by name, which a model's configuration names.
A function gets the attention module and q, k, v but nothing of the step, so the step is found
through a context variable: `attending(handler)` is the forward context's context manager.

    NAME      what a model is served with: no mask is ever made
    OBSERVED  while it is examined: masks are made, and the rules they are made of are noted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig

from framework.errors import IntegrityError

NAME = "framework"
OBSERVED = "framework_observed"
EAGER = "eager"
# (batch, head, query, key) indices -> whether the query sees the key.
MaskRule = Callable[..., torch.Tensor]


class Handler(Protocol):
    """Who answers the attention calls of a forward pass."""

    def attend(
        self,
        module: nn.Module,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        """q [T, heads, head_size], k [T, kv_heads, head_size], v [T, kv_heads, head_size_v];
        options: what else the module passed.  Returns [T, heads, head_size_v]."""
        ...

    def mask(self, rule: MaskRule, queries: int, keys: int) -> torch.Tensor | None:
        """The mask that modules shall get; asked under OBSERVED only."""
        ...


_handler: ContextVar[Handler | None] = ContextVar("handler of attention calls", default=None)


@contextmanager
def attending(handler: Handler) -> Iterator[None]:
    """While inside, attention calls of this thread of execution go to `handler`."""
    token = _handler.set(handler)
    try:
        yield
    finally:
        _handler.reset(token)


def _current() -> Handler:
    handler = _handler.get()
    if handler is None:
        raise IntegrityError(
            "a model with our attention ran outside of a step",
            expected="a call through `TransformersDecoder`",
            found="no forward context",
        )
    return handler


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, heads, T, size] and so on, as Transformers has them -> [1, T, heads, size]."""
    q, k, v = (part[0].transpose(0, 1).contiguous() for part in (query, key, value))
    out = _current().attend(module, q, k, v, attention_mask, options)
    # Modelling code may `view` it, as Transformers' own functions hand it over in one piece.
    return out.contiguous()[None], None


def _mask(*, mask_function: MaskRule, q_length: int, kv_length: int, **_: Any) -> Any:
    return _current().mask(mask_function, int(q_length), int(kv_length))


def register() -> None:
    """Enter both names into Transformers' tables; again does nothing new."""
    for name in (NAME, OBSERVED):
        AttentionInterface.register(name, _attention)
    AttentionMaskInterface.register(OBSERVED, _mask)


def use(model: nn.Module, name: str) -> None:
    """Let all parts of a model call the attention function of that name."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if isinstance(config, PreTrainedConfig):
            config._attn_implementation = name
