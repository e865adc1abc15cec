"""Of which type K and V are kept, and with it which attention backends serve the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from framework.contracts.kv_cache_spec import FullAttentionSpec, KVCacheSpec
from framework.contracts.model import AttentionLayer
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import DeviceFacts
from framework.plugins.blame import unfit
from framework_torch.choosing_attention import AttentionChoice, choose_attention
from framework_torch.memory import BYTES
from framework_torch.ranking import may_round
from framework_torch.selecting import named_dtype

Choices = Mapping[KVCacheSpec, AttentionChoice]


def choose_cache(
    context: RunnerContext,
    layers_of: Callable[[str], Mapping[str, AttentionLayer]],
    facts: DeviceFacts,
    dtype: str,
    ranking: Sequence[str],
) -> tuple[Mapping[str, AttentionLayer], Choices]:
    """Layers and the backends that serve them.  layers_of: the layers, for a type of the cache.

    That is what the operator says; else the model's `dtype`, or where the operator leaves that,
    too, and lets kernels round, the first narrower one that all groups' backends prefer.  Raises
    ConfigError, SelectionError, and PluginError for a backend that does not serve what it prefers.
    """
    kept = named_dtype(context.cache_dtype, dtype, "kv_cache_dtype")
    layers = layers_of(kept)
    choices = choose_attention(context, layers, facts, dtype, ranking)
    if context.cache_dtype != "auto" or not may_round(context):
        return layers, choices
    narrower = _preferred(choices.values(), dtype)
    if narrower is None:
        return layers, choices
    layers = layers_of(narrower)
    served = choose_attention(context, layers, facts, dtype, ranking)
    if {c.name for c in served.values()} != {c.name for c in choices.values()}:
        backend = next(iter(choices.values())).backend
        raise unfit(backend, "prefers a type of cache that it rejects", "to serve it", narrower)
    return layers, served


def _preferred(choices: Iterable[AttentionChoice], dtype: str) -> str | None:
    """The first narrower type that all groups that keep anything prefer."""
    keeping = [c.cache_dtypes for c in choices if c.query.layer_type != "encoder_only"]
    for name in keeping[0] if keeping else ():
        if (
            all(name in others for others in keeping)
            and BYTES.get(name, BYTES[dtype]) < BYTES[dtype]
        ):
            return name
    return None


def kept_in(layers: Mapping[str, AttentionLayer]) -> str:
    """The end of a start-up line about the cache: of which types K and V are."""
    types = {
        layer.spec.dtype for layer in layers.values() if isinstance(layer.spec, FullAttentionSpec)
    }
    return f", K and V in {' and '.join(sorted(types))}" if types else ""
