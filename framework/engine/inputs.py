"""From what a user asked to what the engine core takes: tokenized, validated, fanned out.

Everything that can be wrong with a request is found here, before anything runs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.engine.prompts import ParsedPrompt, parse_prompt
from framework.engine.request_options import RequestOptions
from framework.engine.text_limit import ContextLimit
from framework.errors import InputError, UnsupportedError
from framework.plugins.blame import blaming
from framework.plugins.near import did_you_mean
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.logits_processor import LogitsProcessor
    from framework.contracts.tokenizer import Tokenizer

_UINT64 = 2**64 - 1
PLAIN = RequestOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """One request, ready for the core.

    request_id: unique in this engine.  client_id: what the client calls it.
    prompt: its text, if text was given.  inputs: one per output, in order of index.
    eos_ids: ids that end it as end-of-sequence; empty with ignore_eos.
    arrival_time: Unix time, seconds.
    """

    request_id: str
    client_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    sampling: SamplingParams
    inputs: tuple[EngineInput, ...]
    eos_ids: frozenset[int]
    arrival_time: float


class InputProcessor:
    """Makes PreparedRequests.

    eos_ids: end-of-sequence ids of model and tokenizer.  seed: of the engine; requests
    without their own get one derived from it and their number.
    logits_processors: the active ones by name; each may refuse a request.
    participants: names of the active ones.  numbers: for the ids of requests, where several
    processors feed one engine.  Arguments in `SamplingParams.extra_args` must
    be for one of these names.

    limit: how much text can fit.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        max_model_len: int,
        eos_ids: Iterable[int] = (),
        seed: int = 0,
        logits_processors: Mapping[str, LogitsProcessor] | None = None,
        participants: Iterable[str] = (),
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self.limit = ContextLimit(tokenizer, max_model_len)
        self._eos_ids = frozenset(eos_ids)
        self._seed = seed & _UINT64
        self._processors = dict(logits_processors or {})
        self._extras = frozenset({*self._processors, *participants})
        self._numbers = itertools.count() if numbers is None else numbers

    def process(
        self, prompt: object, sampling: object, options: RequestOptions = PLAIN
    ) -> PreparedRequest:
        """Raises InputError or UnsupportedError, with the reason, and has then no effect."""
        arrival = time.time()
        if not isinstance(sampling, SamplingParams):
            raise _bad("sampling_params", "SamplingParams", sampling)
        self._check_sampling(sampling)
        parsed = parse_prompt(prompt)
        ids = self._ids(parsed, sampling)
        extras = self._encode_extras(sampling)
        bad_words = self._bad_words(sampling)
        total = self._max_total(len(ids), sampling)
        # Nothing can be wrong any more: a number that is taken is used.
        number = next(self._numbers)
        first = EngineInput(
            request_id=str(number),
            client_id=str(number) if options.request_id is None else options.request_id,
            tokens=np.asarray(ids, np.int32),
            sampling=sampling,
            seed=self._request_seed(sampling, number),
            max_total=total,
            stop_ids=self._stop_ids(sampling),
            bad_words=bad_words,
            tenant=options.tenant,
            priority=options.priority,
            deadline=options.deadline,
            salt=parsed.salt,
            trace_headers=options.trace_headers,
            extras=extras,
        )
        return PreparedRequest(
            request_id=first.request_id,
            client_id=first.client_id,
            prompt=parsed.text,
            prompt_token_ids=ids,
            sampling=sampling,
            inputs=fan_out(first),
            eos_ids=frozenset() if sampling.ignore_eos else self._eos_ids,
            arrival_time=arrival,
        )

    def _check_sampling(self, sampling: SamplingParams) -> None:
        sampling.check(self._vocab_size)
        if sampling.structured_outputs is not None:
            raise UnsupportedError(
                "structured_outputs is not supported: no structured-output backend is installed",
                expected="structured_outputs=None",
                found=f"structured_outputs={shown(sampling.structured_outputs):.80}",
            )
        for name in sampling.extra_args or {}:
            if name not in self._extras:
                known = ", ".join(sorted(self._extras)) or "none"
                raise InputError(
                    f"extra_args names {name!r}, which is not active"
                    f"{did_you_mean(str(name), self._extras)}",
                    parameter="extra_args",
                    expected=f"names of active plugins: {known}",
                    found=repr(name),
                    mend="activate the plugin, for instance LLM(logits_processors=[NAME])",
                )
        for processor in self._processors.values():
            with blaming(processor, "validating a request"):
                processor.validate(sampling)

    def _ids(self, parsed: ParsedPrompt, sampling: SamplingParams) -> list[int]:
        keep = sampling.truncate_prompt_tokens
        ids = parsed.ids
        if ids is None:
            text = parsed.text or ""
            if keep is None:
                self.limit.check(text)
            ids = self._tokenizer.encode(text)
        if keep is not None:
            ids = ids[-keep:]
        if not ids:
            raise InputError(
                "the prompt is empty",
                parameter="prompt",
                expected="at least one token",
                found="none",
            )
        largest = max(ids)
        if largest >= self._vocab_size:
            raise InputError(
                f"token id {largest} is out of range",
                parameter="prompt",
                expected=f"ids in [0, {self._vocab_size})",
                found=f"{largest} at position {ids.index(largest)}",
            )
        return ids

    def _max_total(self, prompt: int, sampling: SamplingParams) -> int:
        room = self._max_model_len - prompt
        wanted = sampling.max_tokens
        if room < (0 if wanted == 0 else 1):
            raise self.limit.too_long(f"{prompt} tokens")
        return prompt + (room if wanted is None else min(wanted, room))

    def _stop_ids(self, sampling: SamplingParams) -> tuple[int, ...]:
        eos = () if sampling.ignore_eos else self._eos_ids
        inside = {token for token in eos if 0 <= token < self._vocab_size}
        return tuple(sorted(inside | set(sampling.stop_token_ids or ())))

    def _bad_words(self, sampling: SamplingParams) -> tuple[tuple[int, ...], ...]:
        """A word is banned as it stands, and at the start of a text and after a space."""
        found: dict[tuple[int, ...], None] = {}
        for word in sampling.bad_words or ():
            bare = word.lstrip(" ")
            for text in (word, bare, f" {bare}"):
                ids = tuple(self._tokenizer.encode(text, add_special_tokens=False)) if text else ()
                if ids and max(ids) < self._vocab_size:
                    found[ids] = None
        return tuple(found)

    def _request_seed(self, sampling: SamplingParams, number: int) -> int:
        from framework.core.random import derive_seed

        if sampling.seed is not None:
            return sampling.seed & _UINT64
        return derive_seed(self._seed, number)

    def _encode_extras(self, sampling: SamplingParams) -> dict[str, bytes]:
        import msgspec

        extras = {}
        for name, arguments in (sampling.extra_args or {}).items():
            try:
                extras[name] = msgspec.msgpack.encode(arguments)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise InputError(
                    f"extra_args[{name!r}] cannot be sent to the engine: {error}",
                    parameter="extra_args",
                    expected="numbers, strings, lists and mappings",
                    found=f"{shown(arguments):.80}",
                ) from error
        return extras


def fan_out(request: EngineInput) -> tuple[EngineInput, ...]:
    """One input per output of a processed request.

    Output 0 keeps the seed, so that n changes nothing for it; prompt log-probabilities are
    computed once.
    """
    from framework.core.random import derive_seed

    sampling = request.sampling
    if sampling.n == 1:
        return (request,)
    spared: dict[str, Any] = {} if sampling.max_tokens == 0 else {"prompt_logprobs": None}
    own, other = sampling.replace(n=1), sampling.replace(n=1, **spared)
    return tuple(
        replace(
            request,
            request_id=f"{request.request_id}.{index}",
            sampling=own if index == 0 else other,
            seed=request.seed if index == 0 else derive_seed(request.seed, index),
        )
        for index in range(sampling.n)
    )


def _bad(parameter: str, expected: str, found: object) -> InputError:
    return InputError(
        f"{parameter} is invalid", parameter=parameter, expected=expected, found=shown(found)
    )
