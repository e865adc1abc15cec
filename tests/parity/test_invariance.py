"""Bit for bit: what a request is told does not depend on what is computed beside it.

Requests come in random company, in pools too small for all, with whatever the prefix cache holds;
their tokens and log-probabilities equal those of the first time they were seen, alone.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from framework import LLM, SamplingParams

OPTIONS: Any = {"max_model_len": 64, "max_num_seqs": 6, "max_num_batched_tokens": 48}
LONGEST = 6
PAGES = 6  # of 16 tokens, one of them null: for two or three of these requests
SHARED = "The quick brown fox jumps over the lazy dog, twice and once more. "


def prompts(llm: LLM, chance: random.Random, count: int) -> list[list[int]]:
    """Of 1 to 40 tokens; a third begins alike."""
    shared = list(llm.get_tokenizer().encode(SHARED))
    made = []
    for index in range(count):
        own = [chance.randrange(300, 20_000) for _ in range(chance.choice((1, 2, 7, 15, 16, 17)))]
        made.append([*shared, *own] if index % 3 == 0 else own)
    return made


def told(llm: LLM, ids: list[list[int]], lengths: list[int]) -> list[Any]:
    """By request: tokens, and the log-probabilities of the likeliest at each."""
    params = [
        SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True, logprobs=8)
        for length in lengths
    ]
    found = llm.generate([{"prompt_token_ids": each} for each in ids], params)
    return [
        [
            (token, sorted((key, value.logprob) for key, value in place.items()))
            for token, place in zip(
                result.outputs[0].token_ids, result.outputs[0].logprobs, strict=True
            )
        ]
        for result in found
    ]


def check_schedules(llm: LLM, count: int, seed: int) -> None:
    """Random companies; AssertionError for the first difference."""
    chance = random.Random(seed)
    pool = prompts(llm, chance, min(count, 18))
    alone: dict[int, list[Any]] = {}
    for schedule in range(count):
        if chance.random() < 0.5:
            llm.reset_prefix_cache()
        chosen = chance.sample(range(len(pool)), chance.randint(2, 6))
        for index in chosen:
            if index not in alone:
                (alone[index],) = told(llm, [pool[index]], [LONGEST])
        lengths = [chance.randint(1, LONGEST) for _ in chosen]
        found = told(llm, [pool[index] for index in chosen], lengths)
        for index, length, own in zip(chosen, lengths, found, strict=True):
            assert own == alone[index][:length], (schedule, index, chosen, lengths)


@pytest.fixture(scope="module")
def smollm2() -> Any:
    with LLM("demo", num_pages=PAGES, **OPTIONS) as llm:
        yield llm


@pytest.fixture(scope="module")
def gemma3(gemma_path: Any) -> Any:
    with LLM(gemma_path, num_pages=6 * PAGES, **OPTIONS) as llm:
        yield llm


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_ten_schedules(request: pytest.FixtureRequest, name: str) -> None:
    llm = request.getfixturevalue(name)
    check_schedules(llm, 10, seed=1)
    assert llm.stats.preemptions > 0
    assert llm.stats.prefix_hits > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_two_hundred_schedules(request: pytest.FixtureRequest, name: str) -> None:
    check_schedules(request.getfixturevalue(name), 200, seed=2)
