"""What a request cannot ask of this engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import astuple

from framework.contracts.features import needed_features
from framework.contracts.messages import EngineInput
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.contracts.sampling_checks import is_finite, is_integer
from framework.errors import InputError, OverloadedError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.messages import EngineOutputs
    from framework.contracts.step import RunnerInfo
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
_NONE = type(None)
_IDS, _UNSIGNED = np.dtype(np.int32), np.dtype(np.uint32)
_PROMPT = "an int32 array of one dimension"
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "request_id": (str, "a string"),
    "sampling": (SamplingParams, "SamplingParams"),
    "pooling": ((PoolingParams, _NONE), "PoolingParams, or None"),
    "stop_ids": ((tuple, list), "a tuple of token ids"),
    "bad_words": ((tuple, list), "a tuple of words, each of token ids"),
    "tokens": (np.ndarray, _PROMPT),
    **{name: (int, f"an integer from {low} to {high}") for name, low, high in _WHOLE},
    "deadline": ((int, float, _NONE), "seconds left, finite, or None"),
    "salt": ((str, _NONE), "a string, or None"),
    "tenant": (str, "a string"),
    "adapter": ((int, _NONE), f"an integer from 0 to {_I64.max}, or None"),
    "payloads": (Mapping, "a mapping"),
    "extras": (Mapping, "a mapping"),
}
"""What the value of a field may be; nowhere a bool, which is no number here."""


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
    # One look at each: seen without a sign, a negative id is larger than any vocabulary.  The
    # place of the largest is found in less time than its value.
    ids = entry.tokens.view(_UNSIGNED)
    if ids.item(ids.argmax()) >= info.vocab_size:
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
    used = name in state.requests
    for ended in state.ended:
        used = used or ended.request.id == name
    for outputs in untold:
        used = used or any(outputs.request_ids[end.row] == name for end in outputs.finished)
    if used:
        raise InputError(f"request id {name!r} is in use", parameter="request_id")


def check_room(
    queue: WaitingQueue, config: CoreConfig, num_tokens: int, clock: Callable[[], float]
) -> None:
    """Raises OverloadedError if a request of `num_tokens` may not wait beside those who do.

    A prompt longer than the limit on tokens may wait alone: else it could never be served.
    """
    most, most_tokens = config.max_queued_requests, config.max_queued_tokens
    if most is not None and len(queue) >= most:
        expected, found = f"fewer than {most} requests waiting", str(len(queue))
    elif most_tokens is not None and len(queue) and queue.num_tokens + num_tokens > most_tokens:
        expected = f"prompts of at most {most_tokens} tokens waiting"
        found = f"{queue.num_tokens}, and {num_tokens} more"
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
    wrong = _of_another_kind(tuple(map(type, astuple(entry))))
    if wrong is not None:
        raise _bad(wrong, _KINDS[wrong][1], getattr(entry, wrong))
    if entry.tokens.dtype != _IDS or entry.tokens.ndim != 1:
        raise _bad("tokens", _PROMPT, entry.tokens)
    for name, low, high in _WHOLE:
        if not low <= getattr(entry, name) <= high:
            raise _bad(name, _KINDS[name][1], getattr(entry, name))
    if entry.adapter is not None and not 0 <= entry.adapter <= _I64.max:
        raise _bad("adapter", _KINDS["adapter"][1], entry.adapter)
    _check_ids("stop_ids", entry.stop_ids)
    for word in entry.bad_words:
        if not isinstance(word, tuple | list):
            raise _bad("bad_words", "token ids of each word", word)
        _check_ids("bad_words", word)
    # NaN is neither before nor after any other time: all later ones would wait behind it.
    if entry.deadline is not None and not is_finite(entry.deadline):
        raise _bad("deadline", _KINDS["deadline"][1], entry.deadline)
    if entry.payloads:
        _check_texts("payloads", str, entry.payloads)
    if entry.extras:
        _check_texts("extras", bytes, entry.extras)


@lru_cache(maxsize=64)
def _of_another_kind(kinds: tuple[type, ...]) -> str | None:
    """The first field whose value, of the kind told in the order of the fields, is of none that
    it may be.  Requests are of few combinations of kinds: each is looked at once."""
    by_name = dict(zip(EngineInput.__struct_fields__, kinds, strict=True))
    for name, (allowed, _) in _KINDS.items():
        if by_name[name] is bool or not issubclass(by_name[name], allowed):
            return name
    return None


def _check_texts(parameter: str, kind: type, texts: Mapping[str, object]) -> None:
    for name, text in texts.items():
        if not (isinstance(name, str) and isinstance(text, kind)):
            raise _bad(parameter, f"{kind.__name__} by name", {name: text})


def _check_ids(name: str, ids: Iterable[object]) -> None:
    for token in ids:
        if not is_integer(token) or not 0 <= token <= _I32.max:
            raise _bad(name, "token ids", token)


def _bad(field: str, expected: str, found: object) -> InputError:
    parameter = "prompt" if field == "tokens" else field  # what a client calls it
    return InputError(
        f"{parameter} of the request is invalid",
        parameter=parameter,
        expected=expected,
        found=shown(found),
    )
