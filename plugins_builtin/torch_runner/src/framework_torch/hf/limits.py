"""How long a sequence a configuration of Transformers allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from framework_torch.models.rope import LONGEST, ORIGINAL

# Names under which configurations keep it; `max_position_embeddings` is an alias in most.
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")


def longest_sequence(config: Any) -> int | None:
    """Tokens, or None if the configuration does not say.

    Rotary embeddings of type "longrope" change the frequencies of the whole batch once its
    longest sequence passes the length of the first training.  Keys that are already in the
    cache cannot follow, and a neighbour's length must not matter, so those models are served up
    to that length.  "dynamic" does so past `max_position_embeddings`, which nothing reaches.
    "yarn" stretches the original length by its factor, whatever `max_position_embeddings` says.
    """
    lengths = [getattr(config, name, None) for name in LENGTHS]
    found = [n for n in lengths if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    longest = found[0] if found else None
    for rope in _rotary(getattr(config, "rope_parameters", None)):
        original = rope.get(ORIGINAL) or getattr(config, ORIGINAL, None)
        if rope.get("rope_type") == "longrope" and original:
            longest = min(longest or original, int(original))
        if rope.get("rope_type") == "yarn" and original and rope.get("factor"):
            longest = max(longest or 0, min(LONGEST, int(original * rope["factor"])))
    return longest


def _rotary(parameters: Any) -> Iterator[Mapping[str, Any]]:
    """The parameters, or those of each type of layers."""
    if isinstance(parameters, Mapping):
        yield parameters
        for value in parameters.values():
            if isinstance(value, Mapping):
                yield value
