"""Before a model serves: is it really computed rightly with our attention?

    1 observed   three tokens at positions 0 1 2, each attending to itself alone
    2 alone      the same with the tokens turned round and the middle one exchanged: the other two
                 must not notice, or something besides attention mixes tokens
    3 whole      Transformers' own forward from token ids, with the attention of 1, must give the
                 logits that our embedding, decoder and head give
    4 attention  Transformers' own forward with its own attention; then each attention module once
                 more, with what it was given there, and causal attention in plain torch

Attention is compared layer by layer because rounding grows on the way through a 16-bit model,
most of all where it moves a token to another expert.  Together it costs four passes over three
tokens, however long the model's sequences are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from framework.contracts.attention_backend import AttentionParams
from framework.contracts.model import Model
from framework.errors import FrameworkError, UnsupportedError
from framework_torch.hf import interface
from framework_torch.hf.interface import MaskRule
from framework_torch.hf.limits import longest_sequence
from framework_torch.hf.model import TransformersDecoder, run_decoder
from framework_torch.hf.observe import AttentionFacts, Observer

TOKENS = 3
# Relative to the root mean square of what is compared; only rounding may differ.
TOLERANCE, TOLERANCE_HALF = 1e-3, 0.05
# Rules of masks are looked at up to here if the model names no length.
DEFAULT_LENGTH = 1 << 16


def verified(causal_lm: Any, name: str) -> Model:
    """The module as a model that is known to be right.  Raises UnsupportedError."""
    with verifying(causal_lm, name, "a decoder"):
        return _verified(causal_lm)


@contextmanager
def verifying(module: Any, name: str, what: str) -> Iterator[None]:
    """Whatever is raised within is an UnsupportedError of the model `name`.  what: it should be."""
    try:
        with torch.inference_mode():
            yield
    except FrameworkError as error:
        raise UnsupportedError(
            f"{name}: {error.message}",
            expected=error.expected,
            found=error.found,
            mend=error.mend,
        ) from error
    except Exception as error:  # whatever modelling code raises when it is run in our way
        raise UnsupportedError(
            f"{name}: {type(module).__name__} cannot be run with our attention",
            expected=f"{what} that takes embeddings and positions",
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
        raise not_ours("attention through Transformers' interface", "no call of it")
    check_alone(decoder, hidden, [first, *observer.states])
    model = TransformersDecoder(
        causal_lm, decoder, observer.facts, type(output), 0, max_model_len
    ).eval()
    model.vocab_size = model.logits(first).shape[-1]
    if model.vocab_size > len(table):
        raise not_ours(f"an embedding of each of {model.vocab_size} tokens", len(table))
    _check_whole(model, ids, first)
    check_attention(causal_lm, model.facts, ids)
    return model


def _decoder(causal_lm: Any) -> nn.Module:
    """The part that takes embeddings and gives hidden states."""
    embedding = causal_lm.get_input_embeddings()
    found: nn.Module
    for found in (causal_lm.get_decoder(), causal_lm.base_model):
        # `get_decoder` goes by names, and a name may mean something else, as an output layer.
        if found is not causal_lm and any(part is embedding for part in found.modules()):
            return found
    raise not_ours("a decoder apart from the output layer", type(causal_lm).__name__)


def check_alone(
    decoder: nn.Module, hidden: torch.Tensor, expected: list[torch.Tensor], start: int = 0
) -> None:
    """Raises UnsupportedError if tokens meet elsewhere than in attention.

    expected: results of `hidden` at positions 0 1 2 from `start` on, first dimension tokens."""
    observer = Observer(longest=0, examine=False)
    turned = torch.stack((hidden[2], hidden[1].flip(0), hidden[0]))
    positions = torch.tensor((2, 0, 0), device=hidden.device) + start
    with interface.attending(observer):
        found = [run_decoder(decoder, turned, positions), *observer.states]
    for one, other in zip(expected, found, strict=True):
        if not close(one[[0, 2]], other[[2, 0]]):
            raise not_ours(
                "tokens that meet in attention only, placed by their positions alone",
                "a token's result depends on its neighbours or on its place in the batch",
            )


def _check_whole(model: TransformersDecoder, ids: torch.Tensor, hidden: torch.Tensor) -> None:
    """hidden: of our own pass over `ids`, from embedding to final norm."""
    with interface.attending(Observer(longest=0, examine=False)):
        expected = model.causal_lm(input_ids=ids[None], use_cache=False).logits[0].float()
    found = model.logits(hidden)
    if not close(expected, found):
        raise not_ours(
            "the logits of Transformers' own forward",
            f"logits that differ by up to {(expected - found).abs().max():.3g}",
        )


def check_attention(
    module: Any, facts: Mapping[nn.Module, AttentionFacts], ids: torch.Tensor
) -> None:
    """Raises UnsupportedError where an attention layer of Transformers' own forward over `ids`
    gives something else than attention as its facts have it."""
    calls: list[tuple[nn.Module, Any, Any, torch.Tensor]] = []

    def note(layer: nn.Module, args: Any, options: Any, result: Any) -> None:
        calls.append((layer, args, options, _first(result)))

    hooks = [layer.register_forward_hook(note, with_kwargs=True) for layer in facts]
    interface.use(module, interface.EAGER)
    try:
        module(input_ids=ids[None], use_cache=False)
    finally:
        interface.use(module, interface.NAME)
        for hook in hooks:
            hook.remove()
    if {layer for layer, *_ in calls} != set(facts):
        raise not_ours("attention modules that are called as modules", "other calls")
    for layer, args, options, expected in calls:
        own = facts[layer]
        with interface.attending(Plain(own.params, own.causal)):
            found = _first(layer(*args, **options))
        if not close(expected, found):
            raise not_ours(
                "the result of Transformers' own attention",
                f"in {own.name} results that differ by up to {(expected - found).abs().max():.3g}",
            )


def _first(result: Any) -> torch.Tensor:
    tensor: torch.Tensor = result[0] if isinstance(result, tuple) else result
    return tensor


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether only rounding can have made the difference."""
    tolerance = TOLERANCE if one.dtype == torch.float32 else TOLERANCE_HALF
    one, other = one.float(), other.float()
    error, size = (x.square().mean().sqrt() for x in (one - other, one))
    return bool(error <= tolerance * size)


@dataclass(frozen=True, slots=True)
class Plain:
    """Attention over the tokens of one call, in the steps and types in which Transformers'
    modelling code mostly does it."""

    params: AttentionParams
    causal: bool = True

    def attend(
        self,
        module: nn.Module,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        params, group = self.params, q.shape[1] // k.shape[1]
        q = q.transpose(0, 1)
        k, v = (part.repeat_interleave(group, dim=1).transpose(0, 1) for part in (k, v))
        scores = torch.matmul(q, k.transpose(1, 2)) * params.scale
        if params.softcap is not None:
            scores = params.softcap * torch.tanh(scores / params.softcap)
        at = torch.arange(len(scores[0]), device=q.device)
        distance = at[:, None] - at
        hidden = (distance < 0) & self.causal
        if params.window is not None:
            hidden |= distance >= params.window
        scores = scores.masked_fill(hidden, float("-inf")).float()
        if params.sinks is not None:
            sinks = params.sinks.float()[:, None, None].expand(-1, len(at), 1)
            weights = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        return torch.matmul(weights.to(v.dtype), v).transpose(0, 1)

    def mask(self, rule: MaskRule, queries: int, keys: int) -> torch.Tensor | None:
        return None


def not_ours(expected: object, found: object) -> UnsupportedError:
    """For a model that is not what our attention computes."""
    return UnsupportedError(
        "this model cannot be computed with our attention",
        expected=expected,
        found=found,
        mend="use a model plugin that defines this architecture",
    )
