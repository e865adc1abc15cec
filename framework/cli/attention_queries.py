"""What `framework explain attention_backend --model MODEL` asks: by the model's configuration, a
query for each type of layer that it names.  What a model definition adds is not known here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from framework.errors import ModelError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.attention_backend import AttentionQuery

SLIDING = "sliding_attention"


def attention_queries(
    usual: AttentionQuery, config: Mapping[str, Any]
) -> tuple[AttentionQuery, ...]:
    """usual: with platform and types.  config: as in config.json.  Raises ModelError."""
    nested = config.get("text_config")
    if isinstance(nested, Mapping):
        config = nested
    heads = _positive(config, "num_attention_heads")
    size = (
        _positive(config, "hidden_size") // heads
        if config.get("head_dim") is None
        else _positive(config, "head_dim")
    )
    kv_heads = "num_key_value_heads"
    asked = replace(
        usual,
        num_heads=heads,
        num_kv_heads=heads if config.get(kv_heads) is None else _positive(config, kv_heads),
        head_size=size,
        head_size_v=size,
        softcap=_softcap(config),
    )
    return tuple(replace(asked, window=window) for window in _windows(config))


def _windows(config: Mapping[str, Any]) -> Iterator[int | None]:
    """Of each type of layer, in order."""
    none = config.get("sliding_window") is None or config.get("use_sliding_window") is False
    window = None if none else _positive(config, "sliding_window")
    types = config.get("layer_types")
    if window is None or not isinstance(types, list):
        yield window
        return
    yield from dict.fromkeys(window if kind == SLIDING else None for kind in types)


def _positive(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        raise ModelError(
            "the model's configuration does not tell what its attention needs",
            expected=f"{key}, an integer of at least 1",
            found=shown(value, 80),
            mend="leave --model out, or correct the configuration",
        )
    return value


def _softcap(config: Mapping[str, Any]) -> float | None:
    value = config.get("attn_logit_softcapping")
    return float(value) if isinstance(value, int | float) and value > 0 else None
