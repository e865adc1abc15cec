"""The rules of `SamplingParams`, by field: types and ranges that need no model."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from framework.errors import InputError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams

MAX_N = 16_384
MAX_TEXT = 16_384
"""Characters of all stop strings, or of all bad words: others wait while they are prepared."""
_INT32 = 2**31
_INT64 = 2**63
_FLOAT32 = 3.4e38  # what a bias may add; more would be infinite in a logit
_NUMBER = (int, float)  # a tuple: to make and to ask a union costs several times more
_STRUCTURES = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
_TRUNCATION = "an integer >= 1, -1 or None"
_LOGPROBS = "an integer >= 0, or -1 for the whole vocabulary"

Check = Callable[["SamplingParams", str], object]


def invalid(name: str, expected: str, found: object, mend: str | None = None) -> InputError:
    """The error for a field that has a wrong value."""
    return InputError(
        f"{name} is invalid", parameter=name, expected=expected, found=shown(found, 80), mend=mend
    )


def _plain(value: object) -> str | None:
    """The mend for a number of an array library, which looks like a right one."""
    return "pass Python's own number, VALUE.item()" if hasattr(value, "item") else None


def is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: object, size: float = math.inf) -> TypeGuard[float]:
    """Whether `value` is a finite number of at most `size`; bool is no number here, nor is an int
    beyond float64."""
    if isinstance(value, bool) or not isinstance(value, _NUMBER):
        return False
    try:
        return math.isfinite(value) and abs(value) <= size
    except OverflowError:
        return False


def _number(expected: str, low: float, high: float) -> Check:
    """low, high: finite, so that infinity and NaN lie outside."""

    def check(p: SamplingParams, name: str) -> None:
        value = getattr(p, name)
        if isinstance(value, bool) or not isinstance(value, _NUMBER) or not low <= value <= high:
            raise invalid(name, expected, value, _plain(value))
        if isinstance(value, int):  # no message can carry one beyond 64 bits
            msgspec.structs.force_setattr(p, name, float(value))

    return check


def _integer(expected: str, low: int, high: int, optional: bool = False) -> Check:
    def check(p: SamplingParams, name: str) -> None:
        value, wanted = getattr(p, name), expected
        if is_integer(value):
            if low <= value <= high:
                return
            if value > high and str(high) not in expected:
                wanted = expected.removesuffix(", or None").removesuffix(" or None")
                wanted += f", at most {high}"
        elif optional and value is None:
            return
        raise invalid(name, wanted, value, _plain(value))

    return check


def _truncation(p: SamplingParams, name: str) -> None:
    _integer(_TRUNCATION, -1, _INT32 - 1, optional=True)(p, name)
    if p.truncate_prompt_tokens == 0:
        raise invalid(name, _TRUNCATION, 0)


def _flag(p: SamplingParams, name: str) -> None:
    if not isinstance(getattr(p, name), bool):
        raise invalid(name, "True or False", getattr(p, name))


def _sequence(p: SamplingParams, name: str, expected: str) -> list[Any] | tuple[Any, ...]:
    value = getattr(p, name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise invalid(name, expected, value)
    return value


def _texts(p: SamplingParams, name: str) -> None:
    alone = name == "stop" and isinstance(p.stop, str)
    texts = p.stop_strings if alone else _sequence(p, name, "a list of strings")
    for text in texts:
        if not isinstance(text, str) or not text:
            raise invalid(name, "strings that are not empty", text)
    if (length := sum(map(len, texts))) > MAX_TEXT:
        raise invalid(name, f"at most {MAX_TEXT} characters in all", f"{length} characters")
    if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
        raise invalid(name, "text that UTF-8 can carry, without lone surrogates", texts)


def _ids(p: SamplingParams, name: str) -> None:
    for token in _sequence(p, name, "a list of token ids"):
        if not is_integer(token) or token < 0:
            raise invalid(name, "token ids (integers >= 0)", token)


def _allowed(p: SamplingParams, name: str) -> None:
    _ids(p, name)
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        raise invalid(name, "at least one token id, or None", p.allowed_token_ids)


def _mapping(p: SamplingParams, name: str) -> Mapping[Any, Any] | None:
    value = getattr(p, name)
    if value is not None and not isinstance(value, dict):
        raise invalid(name, "a mapping (dict), or None", value)
    return value


def _biases(p: SamplingParams, name: str) -> None:
    biases = _mapping(p, name) or {}
    for token, bias in biases.items():
        if not is_integer(token) or token < 0:
            mend = "convert keys that are text with int()" if isinstance(token, str) else None
            raise invalid(name, "token ids (integers >= 0) as keys", token, mend)
        if not is_finite(bias, _FLOAT32):
            raise invalid(name, "numbers as values that are finite in float32", bias)
    if any(isinstance(bias, int) for bias in biases.values()):  # as in `_number`
        floats = {token: float(bias) for token, bias in biases.items()}
        msgspec.structs.force_setattr(p, name, floats)


def _structure(p: SamplingParams, name: str) -> None:
    structure = _mapping(p, name)
    if structure is None:
        return
    chosen = [key for key in _STRUCTURES if structure.get(key) is not None]
    if len(chosen) != 1 or any(key not in _STRUCTURES for key in structure):
        raise invalid(name, f"exactly one of {_STRUCTURES}", structure)
    _data(p, name)


def _data(p: SamplingParams, name: str) -> None:
    """It has to travel to another process: what cannot is the caller's error, here."""
    value = _mapping(p, name)
    if value is None:
        return
    if any(not isinstance(key, str) for key in value):
        raise invalid(name, "strings as keys", value)
    try:
        msgspec.msgpack.encode(value)
    except Exception as error:  # TypeError, ValueError, OverflowError, RecursionError ...
        raise invalid(name, f"data that msgpack can carry ({error})", value) from None


def check_together(p: SamplingParams) -> None:
    """Rules between fields, each of which is right by itself."""
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        raise invalid("min_tokens", f"at most max_tokens ({p.max_tokens})", p.min_tokens)
    if p.n > 1 and p.greedy:
        raise invalid("n", "1 with greedy sampling (temperature 0): all outputs are equal", p.n)
    if p.max_tokens == 0 and p.prompt_logprobs is None:
        raise invalid("max_tokens", "at least 1, or 0 together with prompt_logprobs", 0)
    if p.stop and not p.detokenize:
        raise invalid("stop", "no stop strings with detokenize=False: there is no text", p.stop)


_penalty = _number("a number in [-2, 2]", -2.0, 2.0)
_logprobs = _integer(_LOGPROBS, -1, _INT32 - 1, optional=True)
_or_none = _integer("an integer >= 0, or None", 0, _INT32 - 1, optional=True)

CHECKS: Mapping[str, Check] = {
    "n": _integer(f"an integer in [1, {MAX_N}]", 1, MAX_N),
    "temperature": _number("a finite number in [0, 2]", 0.0, 2.0),
    "top_p": _number("a number in (0, 1]", 5e-324, 1.0),
    "top_k": _integer("0 or -1 (off), or an integer >= 1", -1, _INT32 - 1),
    "min_p": _number("a number in [0, 1]", 0.0, 1.0),
    "presence_penalty": _penalty,
    "frequency_penalty": _penalty,
    "repetition_penalty": _number("a finite number > 0", 5e-324, sys.float_info.max),
    "seed": _integer("a 64-bit integer or None", -_INT64, _INT64 - 1, optional=True),
    "stop": _texts,
    "stop_token_ids": _ids,
    "ignore_eos": _flag,
    "include_stop_str_in_output": _flag,
    "max_tokens": _or_none,
    "min_tokens": _integer("an integer >= 0", 0, _INT32 - 1),
    "logprobs": _logprobs,
    "prompt_logprobs": _logprobs,
    "skip_special_tokens": _flag,
    "spaces_between_special_tokens": _flag,
    "detokenize": _flag,
    "logit_bias": _biases,
    "bad_words": _texts,
    "allowed_token_ids": _allowed,
    "structured_outputs": _structure,
    "truncate_prompt_tokens": _truncation,
    "stream_interval": _integer("an integer >= 1", 1, _INT32 - 1),
    "thinking_token_budget": _or_none,
    "extra_args": _data,
}
"""Of all fields but output_kind, which is converted."""
