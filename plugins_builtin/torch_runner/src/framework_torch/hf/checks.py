"""Before a model serves: is it really computed rightly with our attention?

    1 observed     three tokens at positions 0 1 2, each attending to itself alone
    2 alone        the same with the tokens turned round and the middle one exchanged: the other
                   two must not notice, or something besides attention mixes tokens
    3 in full      our embedding, decoder and head with a causal attention in plain torch, against
                   Transformers' own forward with its own attention

It costs four passes over three tokens, and no more for a long model than for a short one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from framework.contracts.attention_backend import AttentionParams
from framework.contracts.model import Model
from framework.errors import FrameworkError, UnsupportedError
from framework_torch.hf import interface
from framework_torch.hf.limits import longest_sequence
from framework_torch.hf.model import TransformersDecoder, run_decoder
from framework_torch.hf.observe import Observer

TOKENS = 3
# Relative to the root mean square of what is compared; only rounding may differ.
TOLERANCE = {torch.float32: 1e-3}
TOLERANCE_HALF = 0.1
# Rules of masks are looked at up to here if the model names no length.
DEFAULT_LENGTH = 1 << 16


def verified(causal_lm: Any, name: str) -> Model:
    """The module as a model that is known to be right.  Raises UnsupportedError."""
    try:
        with torch.inference_mode():
            return _verified(causal_lm)
    except FrameworkError as error:
        raise UnsupportedError(
            f"{name}: {error.message}",
            expected=error.expected,
            found=error.found,
            mend=error.mend,
        ) from error
    except Exception as error:  # whatever modelling code raises when it is run in our way
        raise UnsupportedError(
            f"{name}: {type(causal_lm).__name__} cannot be run with our attention",
            expected="a decoder that takes embeddings and positions",
            found=f"{type(error).__name__}: {error}",
            mend="use a model plugin that defines this architecture",
        ) from error


def _verified(causal_lm: Any) -> TransformersDecoder:
    decoder = _decoder(causal_lm)
    table = causal_lm.get_input_embeddings().weight
    ids = torch.arange(1, TOKENS + 1, device=table.device) * max(1, len(table) // (TOKENS + 2))
    ids %= len(table)
    hidden = causal_lm.get_input_embeddings()(ids)
    max_model_len = longest_sequence(causal_lm.config)
    observer = Observer(longest=max_model_len or DEFAULT_LENGTH)
    interface.use(causal_lm, interface.OBSERVED)
    with interface.attending(observer):
        output = decoder(
            inputs_embeds=hidden[None],
            position_ids=torch.arange(TOKENS, device=table.device)[None],
            use_cache=False,
        )
    interface.use(causal_lm, interface.NAME)
    first = output.last_hidden_state[0]
    if not observer.facts:
        raise _not_ours("attention through Transformers' interface", "no call of it")
    _check_alone(decoder, hidden, [first, *observer.states])
    model = TransformersDecoder(
        causal_lm, decoder, observer.facts, type(output), 0, max_model_len
    ).eval()
    model.vocab_size = model.logits(first).shape[-1]
    if model.vocab_size > len(table):
        raise _not_ours(f"an embedding of each of {model.vocab_size} tokens", len(table))
    _check_in_full(model, ids)
    return model


def _decoder(causal_lm: Any) -> nn.Module:
    """The part that takes embeddings and gives hidden states."""
    embedding = causal_lm.get_input_embeddings()
    found: nn.Module
    for found in (causal_lm.get_decoder(), causal_lm.base_model):
        # `get_decoder` goes by names, and a name may mean something else, as an output layer.
        if found is not causal_lm and any(part is embedding for part in found.modules()):
            return found
    raise _not_ours("a decoder apart from the output layer", type(causal_lm).__name__)


def _check_alone(decoder: nn.Module, hidden: torch.Tensor, expected: list[torch.Tensor]) -> None:
    """expected: results of `hidden` at positions 0 1 2, first dimension tokens."""
    observer = Observer(longest=0, examine=False)
    turned = torch.stack((hidden[2], hidden[1].flip(0), hidden[0]))
    positions = torch.tensor((2, 0, 0), device=hidden.device)
    with interface.attending(observer):
        found = [run_decoder(decoder, turned, positions), *observer.states]
    for one, other in zip(expected, found, strict=True):
        if not _close(one[[0, 2]], other[[2, 0]]):
            raise _not_ours(
                "tokens that meet in attention only, placed by their positions alone",
                "a token's result depends on its neighbours or on its place in the batch",
            )


def _check_in_full(model: TransformersDecoder, ids: torch.Tensor) -> None:
    causal_lm = model.causal_lm
    interface.use(causal_lm, interface.EAGER)
    try:
        expected = causal_lm(input_ids=ids[None], use_cache=False).logits[0].float()
    finally:
        interface.use(causal_lm, interface.NAME)
    params = {name: layer.params for name, layer in model.attention_layers("float32").items()}
    hidden = model(model.embed(ids), torch.arange(len(ids), device=ids.device), _Plain(params))
    found = model.logits(hidden)
    if not _close(expected, found, hidden.dtype):
        raise _not_ours(
            "the logits of Transformers' own attention",
            f"logits that differ by up to {(expected - found).abs().max():.3g}",
        )


def _close(one: torch.Tensor, other: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    tolerance = TOLERANCE.get(dtype or one.dtype, TOLERANCE_HALF)
    one, other = one.float(), other.float()
    return float((one - other).square().mean().sqrt()) <= tolerance * float(
        one.square().mean().sqrt()
    )


@dataclass(frozen=True, slots=True)
class _Plain:
    """Causal attention over the tokens of one call, in the steps and the types in which
    Transformers' modelling code does it, so that 16-bit models round alike."""

    params: Mapping[str, AttentionParams]

    def attend(self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        params = self.params[layer]
        group = q.shape[1] // k.shape[1]
        q = q.transpose(0, 1)
        k, v = (part.repeat_interleave(group, dim=1).transpose(0, 1) for part in (k, v))
        scores = torch.matmul(q, k.transpose(1, 2)) * params.scale
        if params.softcap is not None:
            scores = params.softcap * torch.tanh(scores / params.softcap)
        at = torch.arange(len(scores[0]), device=q.device)
        distance = at[:, None] - at
        hidden = distance < 0
        if params.window is not None:
            hidden |= distance >= params.window
        scores = scores.masked_fill(hidden, float("-inf")).float()
        if params.sinks is not None:
            sinks = params.sinks.float()[:, None, None].expand(-1, len(at), 1)
            weights = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        return torch.matmul(weights.to(v.dtype), v).transpose(0, 1)


def _not_ours(expected: object, found: object) -> UnsupportedError:
    return UnsupportedError(
        "this model cannot be computed with our attention",
        expected=expected,
        found=found,
        mend="use a model plugin that defines this architecture",
    )
