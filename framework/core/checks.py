"""What a configuration cannot ask of this engine, and a runner cannot tell of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from numbers import Integral
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from framework.contracts.cache_plan import CacheLayoutName
from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.core.kv.managers import manager_for
from framework.errors import ConfigError
from framework.plugins.blame import unfit
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.step import CachePlan, RunnerInfo
    from framework.core.config import CoreConfig

_MOST = int(np.iinfo(np.int64).max)


def _all(found: Iterable[object], kind: type) -> bool:
    return all(isinstance(one, kind) for one in found)


def _whole(value: object, least: int) -> bool:
    number = isinstance(value, Integral) and not isinstance(value, bool)
    return number and least <= int(value) <= _MOST  # type: ignore[call-overload]


# What a runner tells when it is loaded: field, what is expected, whether a value is that.
_TOLD: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("layers", "cache specs by layer", lambda v: len(v) > 0 and _all(v.values(), KVCacheSpec)),
    ("page_tokens", "sizes in tokens", lambda v: len(v) > 0 and all(_whole(n, 1) for n in v)),
    ("bytes_free", "a number of bytes", lambda v: _whole(v, 0)),
    ("vocab_size", "a number of tokens", lambda v: _whole(v, 1)),
    ("max_loop_depth", "a number of steps", lambda v: _whole(v, 1)),
    ("max_model_len", "a number of tokens, or None", lambda v: v is None or _whole(v, 1)),
    ("embedding_size", "a number of values, or None", lambda v: v is None or _whole(v, 1)),
    ("class_labels", "names of classes", lambda v: isinstance(v, tuple) and _all(v, str)),
    (
        "kernel_page_tokens",
        "sizes in tokens by spec",
        lambda v: all(_whole(size, 1) for size in v.values()),
    ),
    ("layout", f"one of {get_args(CacheLayoutName)}", lambda v: v in get_args(CacheLayoutName)),
    ("features", "a set of names", lambda v: isinstance(v, Set) and _all(v, str)),
    ("control_ops", "a set of names", lambda v: isinstance(v, Set) and _all(v, str)),
)


def check_told(runner: ModelRunner, info: RunnerInfo, config: CoreConfig) -> None:
    """Raises PluginError if what the runner tells of itself cannot be, and ConfigError if it
    cannot keep so many steps in flight."""
    for name, expected, fits in _TOLD:
        value = getattr(info, name)
        try:
            good = fits(value)
        except Exception:  # it is of another kind altogether
            good = False
        if not good:
            raise unfit(runner, f"told a wrong {name} when it was loaded", expected, shown(value))
    if config.loop_depth > info.max_loop_depth:
        raise ConfigError(
            "the runner cannot keep so many steps in flight",
            expected=f"loop_depth at most {info.max_loop_depth}",
            found=config.loop_depth,
            mend="lower loop_depth",
        )


def check_whole_prompts(config: CoreConfig, max_model_len: int) -> None:
    """Raises ConfigError if a prompt could be longer than a step, or would be cut."""
    if config.long_prefill_threshold is not None:
        raise ConfigError(
            "without chunked prefill no prompt is cut, which long_prefill_threshold asks for",
            expected="long_prefill_threshold=None",
            found=repr(config.long_prefill_threshold),
            mend="leave long_prefill_threshold out, or allow chunked prefill",
        )
    if config.max_num_batched_tokens < max_model_len:
        raise ConfigError(
            "without chunked prefill a step must be able to hold the longest prompt",
            expected=f"max_num_batched_tokens >= max_model_len ({max_model_len})",
            found=config.max_num_batched_tokens,
            mend="raise max_num_batched_tokens or lower max_model_len; or allow chunked prefill, "
            "where the model can be computed in parts",
        )


def check_cache(
    plan: CachePlan,
    config: CoreConfig,
    managers: Sequence[CacheManagerType],
    max_model_len: int,
) -> None:
    """Raises ConfigError if settings and cache do not fit together."""
    check_states(plan, config, managers)
    if not config.enable_chunked_prefill:
        check_whole_prompts(config, max_model_len)


def check_states(plan: CachePlan, config: CoreConfig, managers: Sequence[CacheManagerType]) -> None:
    """Raises ConfigError for what groups that carry a state cannot do."""
    carriers = [g for g in plan.groups if manager_for(g.spec, managers).carries_state]
    if not carriers:
        return
    needed = {
        "max_drafts": (config.max_drafts == 0, 0),
        "lookahead": (config.lookahead == 0, 0),
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
                mend=f"set {name}={value}; a state cannot be rolled back, cut inside a page, or "
                "taken on before it is there",
            )
