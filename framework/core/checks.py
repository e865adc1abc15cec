"""What a configuration or a request cannot ask of this engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from numbers import Integral
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from framework.contracts.cache_plan import CacheLayoutName
from framework.contracts.features import needed_features
from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.contracts.sampling_checks import is_finite, is_integer
from framework.core.kv.managers import manager_for
from framework.errors import ConfigError, InputError, OverloadedError
from framework.plugins.blame import unfit
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.messages import EngineInput, EngineOutputs
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.step import CachePlan, RunnerInfo
    from framework.core.config import CoreConfig
    from framework.core.queue import WaitingQueue
    from framework.core.state import CoreState

_I32, _I64 = np.iinfo(np.int32), np.iinfo(np.int64)
_WHOLE = (
    ("priority", int(_I64.min), int(_I64.max)),
    ("seed", 0, int(np.iinfo(np.uint64).max)),
    ("max_total", 1, int(_I32.max)),
    ("encoder_tokens", 0, int(_I32.max)),
)
_KINDS = (
    ("request_id", str, "a string"),
    ("sampling", SamplingParams, "SamplingParams"),
    ("pooling", (PoolingParams, type(None)), "PoolingParams, or None"),
    ("stop_ids", (tuple, list), "a tuple of token ids"),
    ("bad_words", (tuple, list), "a tuple of words, each of token ids"),
)


def _all(found: Iterable[object], kind: type) -> bool:
    return all(isinstance(one, kind) for one in found)


def _whole(value: object, least: int) -> bool:
    number = isinstance(value, Integral) and not isinstance(value, bool)
    return number and least <= int(value) <= _I64.max  # type: ignore[call-overload]


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


def check_servable(entry: EngineInput, max_model_len: int, info: RunnerInfo) -> None:
    """Raises InputError if the request can never be served, or holds a value for which the
    arrays and the line of the core have no place."""
    _check_values(entry)
    count = len(entry.tokens)
    if not 1 <= count <= entry.max_total <= max_model_len:
        raise InputError(
            "the request cannot fit",
            parameter="prompt",
            expected=f"1 <= prompt <= prompt + output <= {max_model_len} tokens",
            found=f"a prompt of {count}, {entry.max_total} altogether",
            mend="shorten the prompt or lower max_tokens",
        )
    if entry.pooling is not None and entry.max_total != count:
        raise InputError(
            "a request that is pooled is not continued",
            parameter="max_total",
            expected=f"the {count} tokens of the prompt",
            found=entry.max_total,
            mend="leave no room for output",
        )
    # One look at each: seen without a sign, a negative id is larger than any vocabulary.
    if np.maximum.reduce(entry.tokens.view(np.uint32)) >= info.vocab_size:
        raise InputError(
            "the prompt holds token ids outside the vocabulary",
            parameter="prompt",
            expected=f"ids in [0, {info.vocab_size})",
            found=f"from {entry.tokens.min()} to {entry.tokens.max()}",
        )
    if entry.pooling is None and not info.generates:
        raise InputError(
            "the model runner samples no tokens",
            parameter="sampling",
            expected="a request with pooling parameters",
            found="one to be continued",
        )
    embeds = entry.pooling is not None and entry.pooling.task == "embed"
    if embeds and "pooling" in info.features and info.embedding_size is None:
        raise InputError(
            "the model runner makes no embeddings",
            parameter="pooling",
            expected='pooling parameters with task="classify"',
            found="task='embed'",
        )
    missing = needed_features(entry) - info.features
    if missing:
        raise InputError(
            "the model runner does not serve what the request needs",
            parameter=min(missing),
            expected=f"one of the declared features {sorted(info.features)}",
            found=sorted(missing),
            mend="leave it out, or choose a runner that declares it",
        )


def check_id(name: str, state: CoreState, untold: Iterable[EngineOutputs]) -> None:
    """Raises InputError for the id of a request that has not ended, or of whose end nobody has
    heard: what is still told of it would be taken for the new one's.  untold: outputs of steps
    that are over."""
    ending = [end.request.id for end in state.ended]
    ending += [outputs.request_ids[end.row] for outputs in untold for end in outputs.finished]
    if name in state.requests or name in ending:
        raise InputError(f"request id {name!r} is in use", parameter="request_id")


def check_room(
    queue: WaitingQueue, config: CoreConfig, num_tokens: int, clock: Callable[[], float]
) -> None:
    """Raises OverloadedError if a request of `num_tokens` may not wait beside those who do.

    A prompt longer than the limit on tokens may wait alone: else it could never be served.
    """
    waiting, tokens = len(queue), queue.num_tokens
    most, most_tokens = config.max_queued_requests, config.max_queued_tokens
    if most is not None and waiting >= most:
        expected, found = f"fewer than {most} requests waiting", str(waiting)
    elif most_tokens is not None and waiting and tokens + num_tokens > most_tokens:
        expected = f"prompts of at most {most_tokens} tokens waiting"
        found = f"{tokens}, and {num_tokens} more"
    else:
        return
    raise OverloadedError(
        "the queue is full",
        expected=expected,
        found=found,
        mend="ask again later",
        retry_after=queue.rate.seconds_per_place(clock()),
    )


def _check_values(entry: EngineInput) -> None:
    """Raises InputError for a value that is not of its type, or too large to be counted."""
    for name, kinds, expected in _KINDS:
        if not isinstance(getattr(entry, name), kinds):
            raise _bad(name, expected, getattr(entry, name))
    tokens: object = entry.tokens
    if not (isinstance(tokens, np.ndarray) and tokens.dtype == np.int32 and tokens.ndim == 1):
        raise _bad("prompt", "an int32 array of one dimension", tokens)
    for name, low, high in _WHOLE:
        value = getattr(entry, name)
        if not is_integer(value) or not low <= value <= high:
            raise _bad(name, f"an integer from {low} to {high}", value)
    _check_ids("stop_ids", entry.stop_ids)
    for word in entry.bad_words:
        if not isinstance(word, tuple | list):
            raise _bad("bad_words", "token ids of each word", word)
        _check_ids("bad_words", word)
    # NaN is neither before nor after any other time: all later ones would wait behind it.
    if entry.deadline is not None and not is_finite(entry.deadline):
        raise _bad("deadline", "seconds left, finite, or None", entry.deadline)
    if entry.salt is not None and not isinstance(entry.salt, str):
        raise _bad("salt", "a string, or None", entry.salt)
    if not isinstance(entry.tenant, str):
        raise _bad("tenant", "a string", entry.tenant)
    if entry.adapter is not None and not is_integer(entry.adapter):
        raise _bad("adapter", "an integer, or None", entry.adapter)
    for parameter, kind, texts in (
        ("payloads", str, entry.payloads),
        ("extras", bytes, entry.extras),
    ):
        if texts == {}:  # far cheaper than to ask for its class
            continue
        if not isinstance(texts, Mapping):
            raise _bad(parameter, "a mapping", texts)
        for name, text in texts.items():
            if not (isinstance(name, str) and isinstance(text, kind)):
                raise _bad(parameter, f"{kind.__name__} by name", {name: text})


def _check_ids(name: str, ids: Iterable[object]) -> None:
    for token in ids:
        if not is_integer(token) or not 0 <= token <= _I32.max:
            raise _bad(name, "token ids", token)


def _bad(parameter: str, expected: str, found: object) -> InputError:
    return InputError(
        f"{parameter} of the request is invalid",
        parameter=parameter,
        expected=expected,
        found=shown(found),
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
