"""What a configuration or a request cannot ask of this engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from framework.core.kv.managers import manager_for
from framework.errors import ConfigError, InputError

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.messages import EngineInput
    from framework.contracts.step import CachePlan
    from framework.core.config import CoreConfig


def check_servable(
    entry: EngineInput, max_model_len: int, vocab_size: int, features: frozenset[str]
) -> None:
    """Raises InputError if the request can never be served."""
    count = len(entry.tokens)
    if not 1 <= count <= entry.max_total <= max_model_len:
        raise InputError(
            "the request cannot fit",
            parameter="prompt",
            expected=f"1 <= prompt <= prompt + output <= {max_model_len} tokens",
            found=f"a prompt of {count}, {entry.max_total} altogether",
            mend="shorten the prompt or lower max_tokens",
        )
    if entry.tokens.min() < 0 or entry.tokens.max() >= vocab_size:
        raise InputError(
            "the prompt holds token ids outside the vocabulary",
            parameter="prompt",
            expected=f"ids in [0, {vocab_size})",
            found=f"from {entry.tokens.min()} to {entry.tokens.max()}",
        )
    missing = _needed_features(entry) - features
    if missing:
        raise InputError(
            "the model runner does not serve what the request needs",
            parameter=min(missing),
            expected=f"one of the declared features {sorted(features)}",
            found=sorted(missing),
            mend="leave it out, or choose a runner that declares it",
        )


def check_whole_prompts(config: CoreConfig, max_model_len: int) -> None:
    """Raises ConfigError if a prompt could be longer than a step."""
    if config.max_num_batched_tokens < max_model_len:
        raise ConfigError(
            "without chunked prefill a step must be able to hold the longest prompt",
            expected=f"max_num_batched_tokens >= max_model_len ({max_model_len})",
            found=config.max_num_batched_tokens,
            mend="raise max_num_batched_tokens, lower max_model_len, or allow chunked prefill",
        )


def check_states(plan: CachePlan, config: CoreConfig, managers: Sequence[CacheManagerType]) -> None:
    """Raises ConfigError for what groups that carry a state cannot do."""
    carriers = [g for g in plan.groups if manager_for(g.spec, managers).carries_state]
    if not carriers:
        return
    needed = {
        "max_drafts": (config.max_drafts == 0, 0),
        "enable_chunked_prefill": (
            config.enable_chunked_prefill or not config.enable_prefix_caching,
            True,
        ),
    }
    for name, (good, value) in needed.items():
        if not good:
            raise ConfigError(
                f"layers that carry a state ({carriers[0].layers[0]!r}) cannot be served so",
                expected=f"{name}={value}",
                found=f"{name}={getattr(config, name)}",
                mend=f"set {name}={value}; a state cannot be rolled back or cut inside a page",
            )


def _needed_features(entry: EngineInput) -> frozenset[str]:
    """What a request needs of the runner beyond tokens."""
    sampling = entry.sampling
    needs = {
        "logprobs": sampling.logprobs is not None,
        "prompt_logprobs": sampling.prompt_logprobs is not None,
        "structured_outputs": sampling.structured_outputs is not None,
        "adapters": entry.adapter is not None,
        "payloads": bool(entry.payloads),
    }
    return frozenset(name for name, needed in needs.items() if needed)
