"""A causal language model of Transformers as a model of the torch runner."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from framework.contracts.model import AdapterSite, AttentionLayer, ForwardContext
from framework.errors import IntegrityError, UnsupportedError
from framework_torch.hf.interface import MaskRule, attending
from framework_torch.hf.observe import AttentionFacts
from framework_torch.specs import attention_spec


class TransformersDecoder(nn.Module):
    """See `framework.contracts.model.Model`.

    T flattened tokens go through as a batch of one sequence: nothing but attention mixes
    tokens (which `checks` has made sure of), and attention is ours.

        causal_lm(ids)   =   embed -> decoder -> head
                                      ^ our attention
                                                 ^ causal_lm again, with a decoder that only
                                                   hands over hidden states: whatever the model
                                                   does to its logits is done by its own code
    """

    def __init__(
        self,
        causal_lm: Any,
        decoder: nn.Module,
        facts: Mapping[nn.Module, AttentionFacts],
        output_class: Any,
        vocab_size: int,
        max_model_len: int | None,
    ) -> None:
        super().__init__()
        self.causal_lm = causal_lm
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        # In tuples and dictionaries, so that torch does not count the modules twice.
        self._decoder = (decoder,)
        self.facts = dict(facts)
        self._blocks = _blocks(decoder, self.facts)
        self._head = (with_part(causal_lm, decoder, _Given(output_class)),)

    def attention_layers(self, cache_dtype: str) -> Mapping[str, AttentionLayer]:
        return {
            facts.name: AttentionLayer(
                spec=attention_spec(
                    facts.num_kv_heads,
                    facts.head_size,
                    facts.head_size_v,
                    cache_dtype,
                    facts.params.window,
                ),
                num_heads=facts.num_heads,
                params=facts.params,
            )
            for facts in self.facts.values()
        }

    def adapter_sites(self) -> Mapping[str, AdapterSite]:
        from framework_torch.hf.adapter_sites import adapter_sites

        return adapter_sites(self.causal_lm, self._decoder[0])

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.causal_lm.get_input_embeddings()(ids)
        return hidden

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        context: ForwardContext,
        layers: range | None = None,
        taps: Sequence[int] = (),
    ) -> Any:
        """As in the contract.  With taps: (hidden, {layer: hidden after it, before the norm}).
        Raises UnsupportedError for a part of the layers."""
        if layers is not None and layers != range(len(self._blocks)):
            raise UnsupportedError(
                "a model of Transformers' modelling code computes all of its layers at once",
                expected=f"layers=None or range(0, {len(self._blocks)})",
                found=layers,
                mend="do not split the model by layers, or use a model plugin that can",
            )
        strange = [tap for tap in taps if not 0 <= tap < len(self._blocks)]
        if strange:
            raise UnsupportedError(
                "there are no such layers to tap",
                expected=f"layers in [0, {len(self._blocks)})",
                found=strange,
            )
        tapped: dict[int, torch.Tensor] = {}
        hooks = [self._blocks[tap].register_forward_hook(_keep(tapped, tap)) for tap in taps]
        try:
            with attending(AttentionStep(context, self.facts)):
                result = run_decoder(self._decoder[0], hidden, positions)
        finally:
            for hook in hooks:
                hook.remove()
        return (result, tapped) if taps else result

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        output = self._head[0](inputs_embeds=hidden[None], use_cache=False)
        logits: torch.Tensor = output.logits[0].float()
        return logits


def run_decoder(decoder: nn.Module, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """hidden [T, H], positions int64 [T] -> [T, H] after the final norm."""
    output = decoder(inputs_embeds=hidden[None], position_ids=positions[None], use_cache=False)
    result: torch.Tensor = output.last_hidden_state[0]
    return result


class AttentionStep:
    """Attention calls of one step, passed on to its forward context."""

    def __init__(self, context: ForwardContext, facts: Mapping[nn.Module, AttentionFacts]) -> None:
        self._context, self._facts = context, facts

    def attend(
        self,
        module: nn.Module,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        facts = self._facts.get(module)
        if facts is None or mask is not None or not facts.agrees(q, k, options):
            raise IntegrityError(
                "an attention layer asks for something else than it did when it was examined",
                expected=facts or f"one of {len(self._facts)} layers",
                found=f"{type(module).__name__}, mask: {mask is not None}, q {list(q.shape)}, "
                f"k {list(k.shape)}, options {sorted(options)}",
                mend="report this with the model's config.json",
            )
        return self._context.attend(facts.name, q, k, v)

    def mask(self, rule: MaskRule, queries: int, keys: int) -> torch.Tensor | None:
        return None


class _Given(nn.Module):
    """Stands in for the decoder: the hidden states that it gets are already its result."""

    def __init__(self, output_class: Any) -> None:
        super().__init__()
        self._output_class = output_class

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> Any:
        return self._output_class(last_hidden_state=inputs_embeds)


def with_part(whole: nn.Module, part: nn.Module, other: nn.Module) -> nn.Module:
    """A copy that shares all modules with `whole` but has `other` for `part`."""
    if whole is part:
        return other
    twin = copy.copy(whole)
    twin._modules = {
        name: child
        if child is None or all(module is not part for module in child.modules())
        else with_part(child, part, other)
        for name, child in whole._modules.items()
    }
    return twin


def _blocks(decoder: nn.Module, facts: Mapping[nn.Module, AttentionFacts]) -> Sequence[nn.Module]:
    """The decoder's layers: the list whose items hold all attention modules; () if none does."""
    for part in decoder.modules():
        if isinstance(part, nn.ModuleList):
            inside = {module for block in part for module in block.modules()}
            if inside.issuperset(facts):
                return tuple(part)
    return ()


def _keep(tapped: dict[int, torch.Tensor], tap: int) -> Any:
    def hook(module: nn.Module, given: Any, result: Any) -> None:
        tapped[tap] = (result[0] if isinstance(result, tuple) else result)[0]

    return hook
