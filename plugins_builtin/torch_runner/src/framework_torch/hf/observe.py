"""What a model's attention layers need, read off their own calls and not off a configuration.

The model computes three tokens once.  Each attention call tells its heads, sizes, scale,
softcap and sinks, and which mask it was given; the rule behind that mask tells whether the
layer is causal and how far it sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from framework.contracts.attention_backend import AttentionParams
from framework.errors import UnsupportedError
from framework_torch.hf.interface import MaskRule

# Options of a call that change nothing here, whatever they hold.
NEUTRAL = frozenset(
    (
        "is_causal",
        "position_ids",
        "use_cache",
        "cache_position",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "sliding_window",  # the mask tells it
    )
)
# Options that are understood.
READ = frozenset(("scaling", "softcap", "s_aux", "dropout"))
LONGEST = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFacts:
    """One attention layer as it was seen."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int
    params: AttentionParams
    causal: bool = True

    def agrees(self, q: torch.Tensor, k: torch.Tensor, options: Mapping[str, Any]) -> bool:
        """Whether a later call asks for the same; a part of the shapes stands for all."""
        params = self.params
        return (
            k.shape[0] == q.shape[0]
            and k.shape[1] == self.num_kv_heads
            and read_scale(q, options) == params.scale
            and options.get("softcap") == params.softcap
            and options.get("s_aux") is params.sinks
        )


@dataclass(slots=True)
class Observer:
    """Answers attention calls with the values themselves: every token attends to itself alone,
    as if each were a sequence of one token.

    facts: by module, in the order of the calls.  states: q, k, v of all calls.
    longest: length up to which a mask's rule is looked at.  causal: else each token must see all.
    """

    longest: int
    examine: bool = True
    causal: bool = True
    facts: dict[nn.Module, AttentionFacts] = field(default_factory=dict)
    states: list[torch.Tensor] = field(default_factory=list)
    masks: list[tuple[torch.Tensor, MaskRule]] = field(default_factory=list)

    def attend(
        self,
        module: nn.Module,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> torch.Tensor:
        name = f"layers.{len(self.facts)}"
        if self.examine:
            self._examine(name, module, (q, k, v), mask, options)
        self.states += (q, k, v)
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    def mask(self, rule: MaskRule, queries: int, keys: int) -> torch.Tensor:
        mask = torch.ones(1, 1, queries, keys, dtype=torch.bool).tril()
        self.masks.append((mask, rule))
        return mask

    def _examine(
        self,
        name: str,
        module: nn.Module,
        states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        mask: Any,
        options: Mapping[str, Any],
    ) -> None:
        q, k, v = states
        if module in self.facts:
            raise unsupported(name, "one call of each attention module", "the module calls twice")
        if not (q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1] == v.shape[1]):
            raise unsupported(name, "keys and values of the same tokens", [s.shape for s in states])
        if q.shape[1] % k.shape[1]:
            raise unsupported(name, "a multiple of the KV heads", f"{q.shape[1]} heads")
        _check_options(name, options)
        self.facts[module] = AttentionFacts(
            name=name,
            causal=self.causal,
            num_heads=q.shape[1],
            num_kv_heads=k.shape[1],
            head_size=q.shape[2],
            head_size_v=v.shape[2],
            params=AttentionParams(
                scale=read_scale(q, options),
                window=self._window(name, mask),
                softcap=options.get("softcap"),
                sinks=options.get("s_aux"),
            ),
        )

    def _window(self, name: str, mask: Any) -> int | None:
        rules = [rule for made, rule in self.masks if made is mask]
        if not self.causal:
            for rule in rules:
                check_sees_all(name, rule, self.longest)
            if mask is not None and not rules:
                raise unsupported(name, "a mask from Transformers' mask functions", "another mask")
            return None
        if not rules:
            found = "no mask: the layer sees later tokens" if mask is None else "another mask"
            raise unsupported(name, "a mask from Transformers' mask functions", found)
        return read_window(name, rules[0], self.longest)


def read_scale(q: torch.Tensor, options: Mapping[str, Any]) -> float:
    """Factor of the scores; without one Transformers divides by the root of the head size."""
    scaling = options.get("scaling")
    return float(q.shape[-1] ** -0.5 if scaling is None else scaling)


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    strange = {key: value for key, value in options.items() if key not in NEUTRAL | READ}
    used = [key for key, value in strange.items() if torch.is_tensor(value) or value]
    if used:
        raise unsupported(name, "plain attention", f"also {', '.join(sorted(used))}")
    if options.get("dropout"):
        raise unsupported(name, "no dropout", options["dropout"])


def read_window(name: str, rule: MaskRule, longest: int) -> int | None:
    """None if queries see all tokens up to their own, else how many they see, their own among
    them.  Raises UnsupportedError for any other rule, as of chunks or two-way prefixes.

    The rule is a function of indices, so it can be asked about tokens that were not computed.
    """
    longest = min(longest, LONGEST)
    windows: set[int] = set()
    unlimited = 0  # tokens that a query was seen to see without a limit
    for query in sorted({longest - 1, longest // 2, longest // 3, 1}):
        keys = torch.arange(query + 2)
        zero = torch.zeros((), dtype=torch.int64)
        try:
            sees = rule(zero, zero, torch.tensor(query), keys).expand(query + 2)
        except Exception as error:  # a rule over the three tokens that were computed
            raise unsupported(name, "a mask by position", f"another rule ({error})") from error
        first = int(sees.long().argmax())
        if bool(sees[-1]) or not bool(sees[first : query + 1].all()):
            raise unsupported(name, "a causal mask without gaps", "another rule")
        if first:
            windows.add(query + 1 - first)
        else:
            unlimited = max(unlimited, query + 1)
    if len(windows) > 1 or unlimited > min(windows, default=unlimited):
        raise unsupported(name, "one window for all positions", "a mask that moves in chunks")
    return next(iter(windows), None)


def check_sees_all(name: str, rule: MaskRule, longest: int) -> None:
    """Raises UnsupportedError unless every query sees every key."""
    keys = torch.arange(min(longest, LONGEST))
    zero = torch.zeros((), dtype=torch.int64)
    for query in {0, len(keys) // 2, max(len(keys) - 1, 0)}:
        try:
            sees = rule(zero, zero, torch.tensor(query), keys).expand(len(keys))
        except Exception as error:  # a rule over the three tokens that were computed
            raise unsupported(name, "a mask by position", f"another rule ({error})") from error
        if not bool(sees.all()):
            raise unsupported(name, "a mask that hides nothing", "a window, or another rule")


def unsupported(name: str, expected: object, found: object) -> UnsupportedError:
    """For an attention layer that is not what our attention computes."""
    return UnsupportedError(
        f"attention layer {name} cannot be served by our attention",
        expected=expected,
        found=found,
        mend="use a model plugin that defines this architecture",
    )
