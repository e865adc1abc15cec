"""Before an encoder serves: is it really computed rightly with our attention?

As in `checks`: tokens meet in attention only, Transformers' own forward from token ids gives what
ours gives, and each attention module gives what two-way attention in plain torch gives.
"""

from __future__ import annotations

from typing import Any

import torch

from framework.contracts.model import Model
from framework_torch.hf import interface
from framework_torch.hf.checks import (
    DEFAULT_LENGTH,
    TOKENS,
    check_alone,
    check_attention,
    close,
    not_ours,
    verifying,
)
from framework_torch.hf.encoder_model import EncoderModel
from framework_torch.hf.limits import longest_sequence
from framework_torch.hf.model import run_decoder
from framework_torch.hf.observe import Observer


def verified_encoder(encoder: Any, name: str) -> Model:
    """The module as a model that is known to be right.  Raises UnsupportedError."""
    with verifying(encoder, name, "an encoder"):
        return checked(encoder)


def checked(encoder: Any) -> EncoderModel:
    """The module as a model, within `verifying`."""
    table = encoder.get_input_embeddings().weight
    ids = torch.arange(1, TOKENS + 1, device=table.device) * max(1, len(table) // (TOKENS + 2))
    ids %= len(table)
    hidden = encoder.get_input_embeddings()(ids)
    interface.use(encoder, interface.NAME)
    with interface.attending(Observer(longest=0, examine=False)):
        whole = encoder(input_ids=ids[None]).last_hidden_state[0]
    first = _first_position(encoder, hidden, whole)
    longest = longest_sequence(encoder.config)
    longest = None if longest is None else longest - first
    observer = Observer(longest=longest or DEFAULT_LENGTH, causal=False)
    interface.use(encoder, interface.OBSERVED)
    with interface.attending(observer):
        found = run_decoder(encoder, hidden, _positions(first, hidden))
    interface.use(encoder, interface.NAME)
    if not observer.facts:
        raise not_ours("attention through Transformers' interface", "no call of it")
    check_alone(encoder, hidden, [found, *observer.states], first)
    model = EncoderModel(encoder, observer.facts, found.shape[-1], longest, first).eval()
    check_attention(encoder, model.facts, ids)
    return model


def _positions(first: int, hidden: torch.Tensor) -> torch.Tensor:
    return torch.arange(first, first + len(hidden), device=hidden.device)


def _first_position(encoder: Any, hidden: torch.Tensor, whole: torch.Tensor) -> int:
    """Where the modelling code begins to count: at 0, or behind the padding's id.  whole: of its
    own forward over the same tokens."""
    padding = getattr(encoder.config, "pad_token_id", None) or 0
    for first in (0, padding + 1):
        with interface.attending(Observer(longest=0, examine=False)):
            found = run_decoder(encoder, hidden, _positions(first, hidden))
        if close(whole, found):
            return first
    raise not_ours(
        "the hidden states of Transformers' own forward",
        f"some that differ by up to {(whole - found).abs().max():.3g}",
    )
