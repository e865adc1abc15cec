"""What the requests in the slots asked for, as arrays by slot.

"Which rows need X" is one array operation: `params.has_bias[slots]`.  What has no fixed
size (lists of ids) lies in `rules`, a mapping that only rows with such a flag ever reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import I32, AdmittedRequest

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Ids of one request, all inside the vocabulary.

    allowed: all others are masked.  stop: masked until min_tokens.  bias_ids, bias_values:
    added to the logits.  banned: bad words of one token.  sequences: longer bad words.
    """

    allowed: I64
    stop: I64
    bias_ids: I64
    bias_values: npt.NDArray[np.float32]
    banned: I64
    sequences: tuple[I64, ...]


class SlotParameters:
    """Sampling parameters by slot; `admit` writes all of a slot, `drop` makes it neutral."""

    def __init__(self, vocab_size: int, max_slots: int) -> None:
        self.vocab_size = vocab_size
        self.live = np.zeros(max_slots, np.bool_)
        self.seed = np.zeros(max_slots, np.uint64)
        self.greedy = np.ones(max_slots, np.bool_)
        self.temperature = np.ones(max_slots, np.float32)
        self.top_p = np.ones(max_slots, np.float64)
        self.top_k = np.full(max_slots, vocab_size, np.int64)
        self.min_p = np.zeros(max_slots, np.float64)
        self.presence = np.zeros(max_slots, np.float64)
        self.frequency = np.zeros(max_slots, np.float64)
        self.repetition = np.ones(max_slots, np.float64)
        self.min_tokens = np.zeros(max_slots, np.int64)
        self.has_allowed = np.zeros(max_slots, np.bool_)
        self.has_bias = np.zeros(max_slots, np.bool_)
        self.has_bad_words = np.zeros(max_slots, np.bool_)
        self.wants_logprobs = np.zeros(max_slots, np.bool_)
        self.num_logprobs = np.zeros(max_slots, np.int64)
        # Whose token is the largest logit of the model, and nothing more is wanted of it.
        self.plain = np.zeros(max_slots, np.bool_)
        self.rules: dict[int, TokenRules] = {}

    def admit(self, request: AdmittedRequest) -> None:
        """Fill `request.slot`.  Raises InputError if an id lies outside the vocabulary."""
        slot, sampling = request.slot, request.sampling
        self.drop(slot)
        if sampling is None:  # pooled, never sampled
            return
        sampling.check(self.vocab_size)
        self.live[slot] = True
        self.seed[slot] = request.seed % 2**64
        self.greedy[slot] = sampling.greedy
        self.temperature[slot] = 1.0 if sampling.greedy else sampling.temperature
        self.top_p[slot] = sampling.top_p
        if 0 < sampling.top_k < self.vocab_size:
            self.top_k[slot] = sampling.top_k
        self.min_p[slot] = sampling.min_p
        self.presence[slot] = sampling.presence_penalty
        self.frequency[slot] = sampling.frequency_penalty
        self.repetition[slot] = sampling.repetition_penalty
        if sampling.logprobs is not None:
            self.wants_logprobs[slot] = True
            self.num_logprobs[slot] = self.best(sampling.logprobs)
        self._admit_rules(request, sampling)
        self.plain[slot] = (
            sampling.greedy
            and sampling.logprobs is None
            and slot not in self.rules
            and self.presence[slot] == self.frequency[slot] == 0.0
            and self.repetition[slot] == 1.0
        )

    def _admit_rules(self, request: AdmittedRequest, sampling: SamplingParams) -> None:
        slot, bias = request.slot, sampling.logit_bias or {}
        words = [self._ids(word) for word in request.bad_words]
        # A word with a token outside the vocabulary can never be completed.
        words = [
            word
            for word, asked in zip(words, request.bad_words, strict=True)
            if 0 < len(word) == len(asked)
        ]
        rules = TokenRules(
            allowed=self._ids(sampling.allowed_token_ids or ()),
            stop=self._ids(request.stop_ids),
            bias_ids=np.array(list(bias), np.int64),
            bias_values=np.array(list(bias.values()), np.float32),
            banned=self._ids(int(word[0]) for word in words if len(word) == 1),
            sequences=tuple(word for word in words if len(word) > 1),
        )
        self.has_allowed[slot] = sampling.allowed_token_ids is not None
        self.has_bias[slot] = bool(bias)
        self.has_bad_words[slot] = bool(words)
        if len(rules.stop):
            self.min_tokens[slot] = sampling.min_tokens
        if self.has_allowed[slot] or bias or words or self.min_tokens[slot]:
            self.rules[slot] = rules

    def _ids(self, ids: Iterable[int]) -> I64:
        """Those of `ids` that the model can produce at all."""
        return np.array([token for token in ids if 0 <= token < self.vocab_size], np.int64)

    def is_filtered(self, slots: I32) -> npt.NDArray[np.bool_]:
        """Which slots [n] have top-k, top-p or min_p, bool [n]."""
        top_k, top_p = self.top_k[slots] < self.vocab_size, self.top_p[slots] < 1.0
        return top_k | top_p | (self.min_p[slots] > 0.0)

    def best(self, asked: int) -> int:
        """How many of the best log-probabilities `asked` (>= 0, or -1 for all) means."""
        return self.vocab_size if asked < 0 else min(asked, self.vocab_size)

    def drop(self, slot: int) -> None:
        """Forget the slot; dropping an empty one is legal."""
        self.live[slot] = self.plain[slot] = False
        self.greedy[slot] = True
        self.temperature[slot] = self.top_p[slot] = self.repetition[slot] = 1.0
        self.top_k[slot] = self.vocab_size
        self.min_p[slot] = self.presence[slot] = self.frequency[slot] = 0.0
        self.min_tokens[slot] = self.num_logprobs[slot] = 0
        self.has_allowed[slot] = self.has_bias[slot] = self.has_bad_words[slot] = False
        self.wants_logprobs[slot] = False
        self.rules.pop(slot, None)
