"""From what a user asked to what the engine core takes: tokenized, validated, fanned out.

Everything that can be wrong with a request is found here, before anything runs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from framework.contracts.features import SERVED
from framework.contracts.messages import EngineInput
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import OutputKind, SamplingParams
from framework.contracts.sampling_checks import invalid
from framework.engine.ability import GENERATES, Ability
from framework.engine.adapters import NO_ADAPTERS, AdapterDirectory
from framework.engine.extras import encode_extras, read_extras
from framework.engine.io import TEXT, IOProcessors, RequestReader
from framework.engine.payloads import PayloadStore
from framework.engine.prepared import (
    NOTHING_SAMPLED,
    Draft,
    PreparedRequest,
    fan_out,
    internal_id,
)
from framework.engine.prompt_embeds import NAME as EMBEDS
from framework.engine.prompts import of_each
from framework.engine.request_options import RequestOptions
from framework.engine.text_limit import ContextLimit
from framework.errors import InputError, UnsupportedError
from framework.plugins.blame import blaming
from framework.plugins.near import did_you_mean
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.io_processor import EnginePrompt, Params, Reading
    from framework.contracts.logits_processor import LogitsProcessor
    from framework.contracts.participant import FrontHalf
    from framework.contracts.tokenizer import Tokenizer

_UINT64 = 2**64 - 1
PLAIN = RequestOptions()


class InputProcessor:
    """Makes PreparedRequests.

    eos_ids: end-of-sequence ids of model and tokenizer.  seed: of the engine; requests
    without their own get one derived from it and their number.
    logits_processors: the active ones by name; each may refuse a request.
    participants: names of the active ones; readers: their halves here.  adapters: by name.
    numbers: for the ids of requests, where several processors feed one engine.  Arguments in
    `SamplingParams.extra_args` must be for one of these names.  io_processors: the active ones by
    name.  chat_template: in place of the model's.  able: what the engine can be asked for.
    payloads: where bulk data of prompts are kept; its own where several do not share one.

    limit: how much text can fit.  reader: what the IO processors make of a request.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        max_model_len: int,
        io_processors: IOProcessors,
        chat_template: str | None = None,
        eos_ids: Iterable[int] = (),
        seed: int = 0,
        logits_processors: Mapping[str, LogitsProcessor] | None = None,
        participants: Iterable[str] = (),
        adapters: AdapterDirectory = NO_ADAPTERS,
        readers: Mapping[str, FrontHalf] | None = None,
        numbers: Iterator[int] | None = None,
        able: Ability = GENERATES,
        payloads: PayloadStore | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self.able, self._payloads = able, payloads or PayloadStore()
        self.limit = ContextLimit(tokenizer, max_model_len)
        self.reader = RequestReader(
            io_processors,
            tokenizer,
            limit=self.limit,
            max_tokens=max_model_len,
            chat_template=chat_template,
        )
        self._eos_ids = frozenset(eos_ids)
        self._seed, self._adapters = seed & _UINT64, adapters
        self._processors = dict(logits_processors or {})
        self._readers = dict(readers or {})
        self._served = frozenset[str]().union(*(r.serves for r in self._readers.values()))
        # Who serves a field is asked by that field: what its halves tell each other is no argument.
        serving = {name for name, reader in self._readers.items() if reader.serves}
        self._extras = frozenset({*self._processors, *participants}) - serving - adapters.serving
        self._numbers = itertools.count() if numbers is None else numbers

    def process(
        self, prompt: object, sampling: object, options: RequestOptions = PLAIN
    ) -> PreparedRequest:
        """A prompt to be continued, read by the processor "text".

        Raises InputError or UnsupportedError, with the reason, and has then no effect.
        """
        if not isinstance(sampling, SamplingParams):
            raise invalid("sampling_params", "SamplingParams", sampling)
        _, [request, *more] = self.ask(TEXT, prompt, sampling, options)
        if more:
            raise InputError(
                "one prompt was expected",
                parameter="prompt",
                found=f"{1 + len(more)} of them",
                mend="read several prompts with `ask`",
            )
        return request

    def ask(
        self,
        name: str,
        request: object,
        params: object,
        options: RequestOptions = PLAIN,
        *,
        kind: OutputKind | None = None,
    ) -> tuple[Reading, list[PreparedRequest]]:
        """What the IO processor `name` reads of a request, and the requests that follow from it.

        kind: of the outputs, whatever the parameters say.  Raises InputError or UnsupportedError,
        with the reason, and has then no effect.
        """
        arrival = time.time()
        reading = self.reader.read(name, request, self._checked(params))
        asked = self._checked(params if reading.params is None else reading.params)
        if kind is not None and isinstance(asked, SamplingParams) and asked.output_kind is not kind:
            asked = asked.replace(output_kind=kind)
        # All are looked at before one takes a number.
        adapter = self._adapters.named(options.adapter)
        make = self._pooled if isinstance(asked, PoolingParams) else self._sampled
        drafts = of_each(reading.prompts, lambda prompt: make(prompt, asked))
        return reading, [
            self._prepared(draft, prompt, options, arrival, adapter)
            for prompt, draft in zip(reading.prompts, drafts, strict=True)
        ]

    def _sampled(self, prompt: EnginePrompt, params: Any) -> Draft:
        ids = self._fitting(prompt, params)
        return Draft(
            sampling=params,
            max_total=self._max_total(len(ids), params),
            stop_ids=self._stop_ids(params),
            bad_words=self._bad_words(params),
            extras=encode_extras(params) | read_extras(self._readers, params),
        )

    def _pooled(self, prompt: EnginePrompt, params: Any) -> Draft:
        ids = self._fitting(prompt, params)
        if len(ids) > self._max_model_len:
            raise self.limit.too_long(f"{len(ids)} tokens", output=False)
        return Draft(sampling=NOTHING_SAMPLED, pooling=params, max_total=len(ids))

    def _prepared(
        self,
        draft: Draft,
        prompt: EnginePrompt,
        options: RequestOptions,
        arrival: float,
        adapter: tuple[int | None, Mapping[str, bytes]],
    ) -> PreparedRequest:
        """Nothing can be wrong any more: a number that is taken is used."""
        held = {} if prompt.embeds is None else {EMBEDS: self._payloads.put(prompt.embeds)}
        number, sampling = next(self._numbers), draft.sampling
        first = EngineInput(
            request_id=internal_id(number, options.request_id),
            client_id=str(number) if options.request_id is None else options.request_id,
            tokens=np.asarray(prompt.ids, np.int32),
            sampling=sampling,
            pooling=draft.pooling,
            seed=self._request_seed(sampling, number),
            max_total=draft.max_total,
            stop_ids=draft.stop_ids,
            bad_words=draft.bad_words,
            tenant=options.tenant,
            priority=options.priority,
            deadline=options.deadline,
            salt=prompt.salt,
            trace_headers=options.trace_headers,
            adapter=adapter[0],
            payloads={name: payload.reference for name, payload in held.items()},
            extras={**draft.extras, **adapter[1]},
        )
        return PreparedRequest(
            request_id=first.request_id,
            client_id=first.client_id,
            prompt=prompt.text,
            prompt_token_ids=prompt.ids,
            sampling=sampling,
            inputs=fan_out(first),
            eos_ids=frozenset() if sampling.ignore_eos else self._eos_ids,
            arrival_time=arrival,
            adapter=options.adapter,
            held=held,
        )

    def _checked(self, params: object) -> Params:
        """Parameters that this engine can serve."""
        if isinstance(params, PoolingParams):
            self.able.check_pooling(params)
            return params
        if not isinstance(params, SamplingParams):
            raise invalid("params", "SamplingParams or PoolingParams", params)
        self.able.check_generating()
        self.able.check_logprobs(params, self._vocab_size)
        self._check_sampling(params)
        return params

    def _check_sampling(self, sampling: SamplingParams) -> None:
        sampling.check(self._vocab_size)
        for name, mend in SERVED.items():
            asked = getattr(sampling, name)
            if asked is not None and name not in self._served:
                raise UnsupportedError(
                    f"{name} is not supported: no plugin here serves it",
                    expected=f"{name}=None",
                    found=f"{name}={shown(asked):.80}",
                    mend=mend,
                )
        for name in sampling.extra_args or {}:
            if name not in self._extras:
                known = ", ".join(sorted(self._extras)) or "none"
                raise InputError(
                    f"extra_args names {shown(name)}, which is not active or takes none"
                    f"{did_you_mean(str(name), self._extras)}",
                    parameter="extra_args",
                    expected=f"names of active plugins that take arguments: {known}",
                    found=shown(name),
                    mend="activate the plugin, for instance LLM(logits_processors=[NAME])",
                )
        for processor in self._processors.values():
            with blaming(processor, "validating a request"):
                processor.validate(sampling)

    def _fitting(self, prompt: EnginePrompt, params: Params) -> list[int]:
        """Raises InputError unless these are ids of the vocabulary, or embeddings that fit."""
        ids = prompt.ids
        if prompt.embeds is not None:
            self.able.check_embeds(prompt.embeds, params)
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
