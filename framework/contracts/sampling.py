"""`SamplingParams`: what a request may ask of sampling, with ranges and meaning.

The class is a plain value without heavy imports: front end, engine core, wire and runner
all read it.  `check(vocab_size)` holds the rules that need the model.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from framework.contracts.named import NamedFields, check_names
from framework.errors import InputError

GREEDY_BELOW = 1e-5
MAX_N = 16_384
MAX_TEXT = 16_384
"""Characters of all stop strings, or of all bad words: others wait while they are prepared."""
_INT32 = 2**31
_INT64 = 2**63
_FLOAT32 = 3.4e38  # what a bias may add; more would be infinite in a logit
_NUMBER = (int, float)  # a tuple: to make and to ask a union costs several times more
_FLAGS = (
    "ignore_eos",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "detokenize",
)
_STRUCTURES = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class OutputKind(StrEnum):
    """CUMULATIVE: all text so far; DELTA: what is new; FINAL_ONLY: one output at the end."""

    CUMULATIVE = "cumulative"
    DELTA = "delta"
    FINAL_ONLY = "final_only"


LogprobsMode = Literal["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"]


class SamplingParams(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, metaclass=NamedFields
):
    """Parameters of one request.  Invalid values raise `InputError` that names the field;
    types are checked too, and nothing is converted but the value of an `OutputKind`.

    n: outputs per prompt (>= 1; with greedy sampling only 1).
    temperature: finite, [0, 2]; below 1e-5 is greedy.
    top_p (0, 1]; top_k 0 or -1 off, else >= 1; min_p [0, 1], relative to the most probable.
    presence_penalty, frequency_penalty [-2, 2]: count output tokens only.
    repetition_penalty > 0, finite: counts prompt and output.
    seed: int64 or None; a seeded request gives the same tokens whatever its batch mates.
    stop: strings that end the output (cut unless include_stop_str_in_output), MAX_TEXT
        characters in all; needs detokenize.
    stop_token_ids: ids that end the output; hidden from the text only if special.
    ignore_eos: the model's end-of-sequence ids do not end the output.
    max_tokens: >= 1, or 0 to only score a prompt; None: the rest of the context.
    min_tokens: until then end-of-sequence and stop ids are masked, stop strings are delayed.
    logprobs, prompt_logprobs: None off; k >= 0: the token's own and the k best (up to k + 1
        entries); -1: whole vocabulary.
    logit_bias: id -> value added to its logit, finite in float32.  bad_words: strings that
        must not be produced.  allowed_token_ids: all others are masked.
    structured_outputs: a mapping with exactly one of json, regex, choice, grammar,
        json_object, structural_tag.
    output_kind: an `OutputKind` or its value.
    truncate_prompt_tokens: keep this many of the prompt's last tokens, >= 1; -1: as many as leave
        room for max_tokens (for one where that is None).  None: a longer prompt is refused.
    stream_interval: >= 1; a stream brings the first token at once, then so many at a time.
    thinking_token_budget: >= 0; after so many tokens of reasoning the model is made to end it.
        None: no limit.  Needs a reasoning parser.
    extra_args: plugin name -> arguments, for logits processors and the like.

    Lists may be tuples.  Whatever is nested must be data that msgpack can carry.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    detokenize: bool = True
    logit_bias: dict[int, float] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[int] | None = None
    structured_outputs: dict[str, Any] | None = None
    output_kind: OutputKind = OutputKind.CUMULATIVE
    truncate_prompt_tokens: int | None = None
    stream_interval: int = 1
    thinking_token_budget: int | None = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        for check in (
            _check_numbers,
            _check_lengths,
            _check_switches,
            _check_texts,
            _check_ids,
            _check_mappings,
            _check_together,
        ):
            check(self)

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def check(self, vocab_size: int) -> None:
        """Raise InputError if an id lies outside the vocabulary."""
        for name in ("stop_token_ids", "allowed_token_ids", "logit_bias"):
            for token in getattr(self, name) or ():
                if not 0 <= token < vocab_size:
                    raise _bad(name, f"token ids in [0, {vocab_size})", token)
        for name in ("logprobs", "prompt_logprobs"):
            if (getattr(self, name) or 0) > vocab_size:
                raise _bad(name, f"at most the vocabulary of {vocab_size}", getattr(self, name))

    def replace(self, **changes: Any) -> SamplingParams:
        """A copy with `changes`, validated again."""
        check_names(type(self), changes)
        return msgspec.structs.replace(self, **changes)


def _bad(name: str, expected: str, found: object, mend: str | None = None) -> InputError:
    return InputError(
        f"{name} is invalid", parameter=name, expected=expected, found=_shown(found), mend=mend
    )


def _shown(value: object) -> str:
    """A short form of `value`, whatever it is: it may be huge or break its own repr."""
    try:
        return reprlib.repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"


def _plain(value: object) -> str | None:
    """The mend for a number of an array library, which looks like a right one."""
    return "pass Python's own number, VALUE.item()" if hasattr(value, "item") else None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object, size: float = math.inf) -> bool:
    """Whether `value` is a finite number of at most `size`; bool is no number here."""
    if isinstance(value, bool) or not isinstance(value, _NUMBER):
        return False
    try:
        return math.isfinite(value) and abs(value) <= size
    except OverflowError:  # an int beyond float64
        return False


def _number(p: SamplingParams, name: str, expected: str, low: float, high: float) -> float:
    """low, high: finite, so that infinity and NaN lie outside."""
    value: float = getattr(p, name)
    if isinstance(value, bool) or not isinstance(value, _NUMBER) or not low <= value <= high:
        raise _bad(name, expected, value, _plain(value))
    return value


def _integer(p: SamplingParams, name: str, expected: str, low: int, high: int) -> None:
    value = getattr(p, name)
    if _is_integer(value) and value > high:
        expected = f"{expected.removesuffix(', or None').removesuffix(' or None')}, at most {high}"
    if not _is_integer(value) or not low <= value <= high:
        raise _bad(name, expected, value, _plain(value))


def _sequence(p: SamplingParams, name: str, expected: str) -> list[Any] | tuple[Any, ...]:
    value = getattr(p, name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise _bad(name, expected, value)
    return value


def _check_numbers(p: SamplingParams) -> None:
    _number(p, "temperature", "a finite number in [0, 2]", 0.0, 2.0)
    if _number(p, "top_p", "a number in (0, 1]", 0.0, 1.0) <= 0.0:
        raise _bad("top_p", "a number in (0, 1]", p.top_p)
    _number(p, "min_p", "a number in [0, 1]", 0.0, 1.0)
    for name in ("presence_penalty", "frequency_penalty"):
        _number(p, name, "a number in [-2, 2]", -2.0, 2.0)
    _number(p, "repetition_penalty", "a finite number > 0", 5e-324, sys.float_info.max)
    _integer(p, "top_k", "0 or -1 (off), or an integer >= 1", -1, _INT32 - 1)
    _integer(p, "n", f"an integer in [1, {MAX_N}]", 1, MAX_N)
    if p.seed is not None:
        _integer(p, "seed", "a 64-bit integer or None", -_INT64, _INT64 - 1)


def _check_lengths(p: SamplingParams) -> None:
    if p.max_tokens is not None:
        _integer(p, "max_tokens", "an integer >= 0, or None", 0, _INT32 - 1)
    _integer(p, "min_tokens", "an integer >= 0", 0, _INT32 - 1)
    _integer(p, "stream_interval", "an integer >= 1", 1, _INT32 - 1)
    if p.max_tokens is not None and p.min_tokens > p.max_tokens:
        raise _bad("min_tokens", f"at most max_tokens ({p.max_tokens})", p.min_tokens)
    if p.thinking_token_budget is not None:
        _integer(p, "thinking_token_budget", "an integer >= 0, or None", 0, _INT32 - 1)
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(p, name) is not None:
            _integer(p, name, "an integer >= 0, or -1 for the whole vocabulary", -1, _INT32 - 1)
    if p.truncate_prompt_tokens is not None:
        expected = "an integer >= 1, -1 or None"
        _integer(p, "truncate_prompt_tokens", expected, -1, _INT32 - 1)
        if p.truncate_prompt_tokens == 0:
            raise _bad("truncate_prompt_tokens", expected, 0)


def _check_switches(p: SamplingParams) -> None:
    for name in _FLAGS:
        if not isinstance(getattr(p, name), bool):
            raise _bad(name, "True or False", getattr(p, name))
    if isinstance(p.output_kind, OutputKind):
        return
    if not isinstance(p.output_kind, str) or p.output_kind not in list(OutputKind):
        raise _bad("output_kind", f"one of {[kind.value for kind in OutputKind]}", p.output_kind)
    # A frozen struct: the plain string becomes the member before anybody has seen it.
    msgspec.structs.force_setattr(p, "output_kind", OutputKind(p.output_kind))


def _check_texts(p: SamplingParams) -> None:
    for name in ("stop", "bad_words"):
        alone = name == "stop" and isinstance(p.stop, str)
        texts = p.stop_strings if alone else _sequence(p, name, "a list of strings")
        for text in texts:
            if not isinstance(text, str) or not text:
                raise _bad(name, "strings that are not empty", text)
        if (length := sum(map(len, texts))) > MAX_TEXT:
            raise _bad(name, f"at most {MAX_TEXT} characters in all", f"{length} characters")
        if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
            raise _bad(name, "text that UTF-8 can carry, without lone surrogates", texts)


def _check_ids(p: SamplingParams) -> None:
    for name in ("stop_token_ids", "allowed_token_ids"):
        for token in _sequence(p, name, "a list of token ids"):
            if not _is_integer(token) or token < 0:
                raise _bad(name, "token ids (integers >= 0)", token)
    if p.allowed_token_ids is not None and not p.allowed_token_ids:
        raise _bad("allowed_token_ids", "at least one token id, or None", p.allowed_token_ids)


def _check_mappings(p: SamplingParams) -> None:
    for name in ("logit_bias", "structured_outputs", "extra_args"):
        value = getattr(p, name)
        if value is not None and not isinstance(value, dict):
            raise _bad(name, "a mapping (dict), or None", value)
    for token, bias in (p.logit_bias or {}).items():
        if not _is_integer(token) or token < 0:
            mend = "convert keys that are text with int()" if isinstance(token, str) else None
            raise _bad("logit_bias", "token ids (integers >= 0) as keys", token, mend)
        if not _is_finite(bias, _FLOAT32):
            raise _bad("logit_bias", "numbers as values that are finite in float32", bias)
    if p.structured_outputs is not None:
        _check_structure(p.structured_outputs)
    if p.extra_args is not None:
        _check_data("extra_args", p.extra_args)


def _check_structure(structure: Mapping[Any, Any]) -> None:
    chosen = [key for key in _STRUCTURES if structure.get(key) is not None]
    if len(chosen) != 1 or any(key not in _STRUCTURES for key in structure):
        raise _bad("structured_outputs", f"exactly one of {_STRUCTURES}", structure)
    _check_data("structured_outputs", structure)


def _check_data(name: str, value: Mapping[Any, Any]) -> None:
    """It has to travel to another process: what cannot is the caller's error, here."""
    if any(not isinstance(key, str) for key in value):
        raise _bad(name, "strings as keys", value)
    try:
        msgspec.msgpack.encode(value)
    except Exception as error:  # TypeError, ValueError, OverflowError, RecursionError ...
        raise _bad(name, f"data that msgpack can carry ({error})", value) from None


def _check_together(p: SamplingParams) -> None:
    if p.n > 1 and p.greedy:
        raise _bad("n", "1 with greedy sampling (temperature 0): all outputs are equal", p.n)
    if p.max_tokens == 0 and p.prompt_logprobs is None:
        raise _bad("max_tokens", "at least 1, or 0 together with prompt_logprobs", 0)
    if p.stop and not p.detokenize:
        raise _bad("stop", "no stop strings with detokenize=False: there is no text", p.stop)
