"""A table of tokens, a sampler on it, and the slow obvious sampler to compare with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import AdmittedRequest
from framework.core.random import uniforms
from framework_torch.sampler import Sampler, SamplerOutput

LENGTH = 64


class Table:
    """What the runner keeps: tokens by slot."""

    def __init__(self, max_slots: int) -> None:
        self.tokens = np.full((max_slots, LENGTH), 999_999, np.int32)
        self.num_prompt = np.zeros(max_slots, np.int32)
        self.known = np.zeros(max_slots, np.int32)
        self.first = np.zeros(max_slots, np.int32)


class Bench:
    """A sampler with its table; every request samples after its last known token."""

    def __init__(self, vocab: int, max_slots: int = 32, mode: str = "raw_logprobs", processors=()):
        self.table = Table(max_slots)
        self.sampler = Sampler(vocab, max_slots, mode, processors)

    def admit(
        self,
        slot: int,
        sampling: SamplingParams | None,
        prompt: Sequence[int] = (0,),
        outputs: Sequence[int] = (),
        seed: int = 0,
        stop_ids: tuple[int, ...] = (),
        bad_words: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        tokens = np.array([*prompt, *outputs], np.int32)
        self.table.tokens[slot, : len(tokens)] = tokens
        self.table.num_prompt[slot], self.table.known[slot] = len(prompt), len(tokens)
        self.sampler.admit(
            AdmittedRequest(
                slot=slot,
                generation=1,
                request_id=f"request-{slot}",
                tokens=tokens,
                num_prompt=len(prompt),
                sampling=sampling,
                seed=seed,
                stop_ids=stop_ids,
                bad_words=bad_words,
            )
        )

    def append(self, slot: int, token: int) -> None:
        self.table.tokens[slot, self.table.known[slot]] = token
        self.table.known[slot] += 1

    def sample(self, slots: Sequence[int], logits, positions=None, **options) -> SamplerOutput:
        """The logits are copied: the sampler may change its own."""
        slots = np.array(slots, np.int32)
        if positions is None:
            positions = self.table.known[slots]
        logits = torch.from_numpy(np.array(logits, np.float32, ndmin=2))
        positions = np.array(positions, np.int64)
        return self.sampler.sample(logits, slots, positions, self.table, **options)


def log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def change_naively(logits, sampling, prompt, outputs, stop_ids=(), bad_words=(), bits=None):
    """Everything before the pick, one token at a time, in float64."""
    x = np.array(logits, np.float64)
    for token in range(len(x)):
        if sampling.allowed_token_ids is not None and token not in sampling.allowed_token_ids:
            x[token] = -np.inf
        if bits is not None and not bits[token]:
            x[token] = -np.inf
        for word in bad_words:
            start = len(outputs) - len(word) + 1
            if start >= 0 and [*outputs[start:], token] == list(word):
                x[token] = -np.inf
        if len(outputs) < sampling.min_tokens and token in stop_ids:
            x[token] = -np.inf
        x[token] += (sampling.logit_bias or {}).get(token, 0.0)
        if token in [*prompt, *outputs]:
            r = sampling.repetition_penalty
            x[token] = x[token] / r if x[token] > 0 else x[token] * r
        if token in outputs:
            x[token] -= sampling.presence_penalty
            x[token] -= sampling.frequency_penalty * list(outputs).count(token)
    return x


def filter_naively(x, sampling):
    """Logits over temperature after min_p, top-k and top-p, one token at a time."""
    x = x / sampling.temperature
    p = np.exp(log_softmax(x))
    dropped = p < sampling.min_p * p.max()
    order = sorted(range(len(x)), key=lambda token: (-p[token], token))
    order = [token for token in order if not dropped[token] and p[token] > 0]
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    total, mass, kept = sum(p[token] for token in order), 0.0, []
    for token in order:
        if mass < sampling.top_p * total or sampling.top_p == 1.0:
            kept.append(token)
        mass += p[token]
    result = np.full(len(x), -np.inf)
    result[kept] = x[kept]
    return result


def check_pick(token, x, sampling, seed, position):
    """Assert that `token` is what the naive sampler picks from the changed logits x."""
    if sampling.greedy:
        assert token == int(np.argmax(x))
        return
    p = np.exp(log_softmax(filter_naively(x, sampling)))
    assert p[token] > 0
    u = uniforms([seed], [position])[0]
    # float32 softmax against float64: u may lie a hair beyond the token's interval.
    assert p[:token].sum() - 1e-5 <= u <= p[: token + 1].sum() + 1e-5


@pytest.fixture
def make_bench():
    return Bench


@pytest.fixture
def naive_change():
    return change_naively


@pytest.fixture
def naive_filter():
    return filter_naively


@pytest.fixture
def assert_pick():
    return check_pick


@pytest.fixture
def naive_log_softmax():
    return log_softmax
