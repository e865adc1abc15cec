"""adapter_config.json of PEFT: what of it is served, and how large an update counts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.contracts.sampling_checks import is_finite
from framework.errors import ModelError, UnsupportedError
from framework.shown import shown
from framework_lora.patterns import Patterns
from framework_lora.targets import Targets, read_targets

NAME = "adapter_config.json"
MOST = 1e30  # a scale beyond it makes infinite logits
LARGEST = 1 << 24
"""Bytes of settings: nothing else of the process goes on while they are parsed."""
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
    "kasa_config": (None,),
    # Others begin with changed weights of the base model.
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}
# What says how it was trained, for what, or how numbers were found that the other file holds.
_TOLD = frozenset(
    (
        *("peft_type", "peft_version", "task_type", "auto_mapping", "inference_mode", "revision"),
        *("base_model_name_or_path", "lora_dropout", "megatron_core", "qalora_group_size"),
        *("loftq_config", "eva_config", "corda_config", "lora_ga_config", "runtime_config"),
        "ensure_weight_tying",
    )
)
_READ = frozenset(
    (
        *("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    )
)
_CLEAR = _TOLD | _READ | _NOTHING.keys()
_WHY = {
    "bias": "only bias none is served",
    "modules_to_save": "whole modules of an adapter's own are not served",
    "use_dora": "DoRA changes the size of weights, which is no low-rank update",
    "init_lora_weights": "its base model is not the one as it was published",
    "kasa_config": "its base model is not the one as it was published",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PeftConfig:
    """rank, alpha: of modules without a pattern of their own.  targets: which ones it changes."""

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    alphas: Mapping[str, float]
    rslora: bool
    base: str | None
    targets: Targets
    patterns: Patterns

    def rank_of(self, module: str) -> int:
        """Of the update of a module, by its full name."""
        return int(self._by_pattern(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        """alpha / r, or alpha / sqrt(r) (Kalajdzievski 2023, "A Rank Stabilization Scaling Factor
        for Fine-Tuning with LoRA")."""
        rank = self.rank_of(module)
        alpha = float(self._by_pattern(self.alphas, module, self.alpha))
        return alpha / (math.sqrt(rank) if self.rslora else rank)

    def _by_pattern(self, values: Mapping[str, float], module: str, usual: float) -> float:
        """Of the first expression that is the end of a module's name, at a dot, or all of it."""
        for key, value in values.items():
            # Many keys are names, and of one model: most of them end in another way.
            end = key.rpartition(".")[2]
            if end.isidentifier() and not module.endswith(end):
                continue
            if self.patterns.match(_at_end(key), module) is not None:
                return value
        return usual


def _at_end(key: str) -> str:
    return rf"(.*\.)?({key})$"


def read_config(root: Path) -> PeftConfig:
    """Raises ModelError for what is missing or damaged, UnsupportedError for what is not served."""
    path = root / NAME
    check_file(path, LARGEST)
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
    strange = {key: value for key, value in given.items() if key not in _CLEAR}
    for key, value in strange.items():
        if value is not None and value is not False and value not in ([], {}):
            raise UnsupportedError(
                f"{path}: {shown(key):.60} is not known, so that it cannot be served",
                expected="settings of PEFT's LoraConfig",
                found=f"{shown(key):.60}: {shown(value):.120}",
                mend="take it out, if it changes nothing of what the adapter computes",
            )
    base = given.get("base_model_name_or_path")
    patterns = Patterns(str(path))
    _flag(path, "fan_in_fan_out", given.get("fan_in_fan_out", False))
    return PeftConfig(
        rank=_whole(path, "r", given.get("r", 8)),
        alpha=_number(path, "lora_alpha", given.get("lora_alpha", 8)),
        ranks=_patterns(path, "rank_pattern", given, _whole, patterns),
        alphas=_patterns(path, "alpha_pattern", given, _number, patterns),
        rslora=_flag(path, "use_rslora", given.get("use_rslora", False)),
        base=base if isinstance(base, str) and base else None,
        targets=read_targets(str(path), given, patterns),
        patterns=patterns,
    )


def check_file(path: Path, most: int | None = None) -> None:
    """Raises ModelError for what is no plain file, as a pipe is waited for and a device has no end;
    and for one of more than `most` bytes."""
    if path.exists() and not path.is_file():
        raise ModelError(f"{path} cannot be read", expected="a file", found="none", mend=_AGAIN)
    size = path.stat().st_size if most is not None and path.exists() else 0
    if most is not None and size > most:
        raise ModelError(
            f"{path} cannot be read",
            expected=f"at most {most} bytes",
            found=f"{size} bytes",
            mend=_AGAIN,
        )


def _patterns(
    path: Path, key: str, given: Mapping[str, Any], read: Any, patterns: Patterns
) -> dict[str, Any]:
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _bad(path, key, "a mapping", value)
    for pattern in value:
        patterns.check(_at_end(pattern))
    return {
        pattern: read(path, f"{key}[{shown(pattern):.60}]", one) for pattern, one in value.items()
    }


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
