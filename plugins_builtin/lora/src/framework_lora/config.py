"""adapter_config.json of PEFT: what of it is served, and how large an update counts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.contracts.sampling_checks import is_finite
from framework.errors import ModelError, UnsupportedError
from framework.shown import shown

NAME = "adapter_config.json"
MOST = 1e30  # a scale beyond it makes infinite logits
_PLAIN_KEY = re.compile(r"\^?[\w.]+\$?\Z")
# What else an adapter may do: key -> the values with which it does nothing.
_NOTHING: Mapping[str, tuple[object, ...]] = {
    "bias": ("none", None),
    "modules_to_save": (None, [], {}),
    "use_dora": (False, None),
    "lora_bias": (False, None),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "layer_replication": (None, []),
    "alora_invocation_tokens": (None, []),
    "use_qalora": (False, None),
    "arrow_config": (None,),
    "use_bdlora": (None, False),
    # Others begin with changed weights of the base model.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}
_WHY = {
    "bias": "only bias none is served",
    "modules_to_save": "whole modules of an adapter's own are not served",
    "use_dora": "DoRA changes the size of weights, which is no low-rank update",
    "init_lora_weights": "its base model is not the one as it was published",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeftConfig:
    """rank, alpha: of modules without a pattern of their own."""

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    rslora: bool
    base: str | None

    def rank_of(self, module: str) -> int:
        """Of the update of a module, by its full name."""
        return int(_by_pattern(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        """alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023, "A Rank Stabilization Scaling Factor
        for Fine-Tuning with LoRA")."""
        rank = self.rank_of(module)
        alpha = float(_by_pattern(self.alphas, module, self.alpha))
        return alpha / (math.sqrt(rank) if self.rslora else rank)


def _by_pattern(patterns: Mapping[str, float], module: str, usual: float) -> float:
    """A pattern is the end of a module's name, at a dot; with ^ the whole name.  First match."""
    for key, value in patterns.items():
        end = key.rstrip("$")
        whole = end.startswith("^")
        end = end.removeprefix("^")
        if module == end or (not whole and module.endswith(f".{end}")):
            return value
    return usual


def read_config(root: Path) -> PeftConfig:
    """Raises ModelError for what is missing or damaged, UnsupportedError for what is not served."""
    path = root / NAME
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be read", expected="a JSON object", found=error, mend=_AGAIN
        ) from error
    if not isinstance(given, dict):
        raise _bad(path, "", "a JSON object", given)
    kind = given.get("peft_type")
    if kind != "LORA":
        raise UnsupportedError(
            f"{path}: only adapters of peft_type LORA are served",
            expected="LORA",
            found=shown(kind),
        )
    for key, allowed in _NOTHING.items():
        value = given.get(key)
        if not any(value == each and type(value) is type(each) for each in allowed):
            raise UnsupportedError(
                f"{path}: {key} is not served{f': {_WHY[key]}' if key in _WHY else ''}",
                expected=f"{key}={json.dumps(allowed[0])}",
                found=f"{key}={shown(value):.120}",
                mend="train the adapter without it, or merge it into the model",
            )
    base = given.get("base_model_name_or_path")
    return PeftConfig(
        rank=_whole(path, "r", given.get("r", 8)),
        alpha=_number(path, "lora_alpha", given.get("lora_alpha", 8)),
        ranks=_patterns(path, "rank_pattern", given, _whole),
        alphas=_patterns(path, "alpha_pattern", given, _number),
        rslora=_flag(path, "use_rslora", given.get("use_rslora", False)),
        base=base if isinstance(base, str) and base else None,
    )


def _patterns(path: Path, key: str, given: Mapping[str, Any], read: Any) -> dict[str, Any]:
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _bad(path, key, "a mapping", value)
    for pattern in value:
        if not _PLAIN_KEY.match(pattern):
            raise UnsupportedError(
                f"{path}: {key} has a regular expression, which is not served",
                expected="names of modules or ends of such names",
                found=shown(pattern),
                mend="write the names out",
            )
    return {pattern: read(path, f"{key}[{pattern!r}]", each) for pattern, each in value.items()}


def _whole(path: Path, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _bad(path, key, "an integer from 1 on", value)
    return value


def _number(path: Path, key: str, value: object) -> float:
    if not is_finite(value, MOST):
        raise _bad(path, key, "a finite number", value)
    return float(value)


def _flag(path: Path, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(path, key, "true or false", value)
    return value


_AGAIN = "fetch the adapter again: it is damaged or incomplete"


def _bad(path: Path, key: str, expected: str, found: object) -> ModelError:
    what = f"{path}: {key} is invalid" if key else f"{path} cannot be read"
    return ModelError(what, expected=expected, found=f"{shown(found):.120}", mend=_AGAIN)
