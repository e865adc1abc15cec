"""Sampling through the whole engine: histories, seeds and scores are those of the request,
whatever its batch mates, and whatever is preempted in between."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from framework import LLM, SamplingParams

SMALL = {"num_pages": 12, "max_model_len": 96}


def naive_penalties(model, prompt, count, *, presence, frequency, repetition):
    """Greedy decoding with penalties from the true history, recomputed at every step."""
    tokens = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0, -1].double().clone()
        seen = torch.tensor(sorted(set(tokens)))
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / repetition, values * repetition)
        outputs = tokens[len(prompt) :]
        for token in set(outputs):
            logits[token] -= presence + frequency * outputs.count(token)
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("depth", [1, 2])
def test_penalties_count_the_true_history_through_preemptions(model, depth):
    values = {"presence": 0.8, "frequency": 0.6, "repetition": 1.4}
    params = SamplingParams(
        temperature=0,
        max_tokens=30,
        ignore_eos=True,
        presence_penalty=values["presence"],
        frequency_penalty=values["frequency"],
        repetition_penalty=values["repetition"],
    )
    prompts = [reference.prompt for reference in model.references[:5]]
    with LLM(model.folder, dtype="float32", loop_depth=depth, **SMALL) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        assert llm.stats.preemptions > 0
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = naive_penalties(model.model, prompt, 30, **values)
        assert list(output.outputs[0].token_ids) == expected


@pytest.mark.parametrize("depth", [1, 2])
def test_a_seeded_request_gives_the_same_tokens_in_any_company(model, llm, depth):
    params = SamplingParams(temperature=1.0, top_p=0.9, top_k=40, seed=7, max_tokens=30)
    prompt = model.references[2].prompt
    alone = llm.generate([prompt], params, use_tqdm=False)[0].outputs[0].token_ids
    others = [SamplingParams(temperature=0.7, min_p=0.05, seed=k, max_tokens=20) for k in range(8)]
    crowd = [reference.prompt for reference in model.references[:4]] * 2
    with LLM(
        model.folder, dtype="float32", loop_depth=depth, max_num_batched_tokens=11, **SMALL
    ) as small:
        outputs = small.generate([*crowd, prompt], [*others, params], use_tqdm=False)
        assert small.stats.preemptions > 0
    assert list(outputs[-1].outputs[0].token_ids) == list(alone)


def test_requests_without_a_seed_differ_and_repeat_with_the_engine(model):
    params = SamplingParams(temperature=1.0, max_tokens=20, ignore_eos=True)
    runs = []
    for seed in (1, 1, 2):
        with LLM(model.folder, dtype="float32", seed=seed) as llm:
            outputs = llm.generate([[5, 6]] * 2, params, use_tqdm=False)
            runs.append([tuple(o.outputs[0].token_ids) for o in outputs])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]


def test_n_outputs_of_one_seed_differ_and_repeat(llm):
    params = SamplingParams(n=3, temperature=1.0, seed=3, max_tokens=12, ignore_eos=True)
    first, second = (llm.generate([[5, 6, 7]], params, use_tqdm=False)[0] for _ in range(2))
    texts = [tuple(output.token_ids) for output in first.outputs]
    assert [output.index for output in first.outputs] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [tuple(output.token_ids) for output in second.outputs]


def test_bytes_of_log_probabilities_make_up_the_text(llm):
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=60, ignore_eos=True, logprobs=1)
    [output] = llm.generate([[65, 66]], params, use_tqdm=False)
    answer = output.outputs[0]
    special = {256, 257, 258, 259}
    data = b"".join(
        bytes(entry[token].bytes)
        for token, entry in zip(answer.token_ids, answer.logprobs, strict=True)
        if token not in special
    )
    assert data.decode("utf-8", "replace") == answer.text
    total = sum(
        entry[token].logprob for token, entry in zip(answer.token_ids, answer.logprobs, strict=True)
    )
    assert answer.cumulative_logprob == pytest.approx(total)


@pytest.mark.parametrize("minimum", [0, 1, 5, 12])
def test_min_tokens_masks_every_id_that_would_end_the_request(model, llm, minimum):
    """The token that greedy decoding would produce is a stop id: it waits until min_tokens."""
    reference = model.references[1]
    params = SamplingParams(
        temperature=0,
        max_tokens=12,
        min_tokens=minimum,
        stop_token_ids=sorted(set(reference.tokens)),
        ignore_eos=True,
    )
    [output] = llm.generate([reference.prompt], params, use_tqdm=False)
    tokens = list(output.outputs[0].token_ids)
    assert len(tokens) >= min(minimum + (minimum < 12), 12)
    assert not set(tokens[:minimum]) & set(reference.tokens)
    if minimum == 0:
        assert tokens == reference.tokens[:1]
        assert output.outputs[0].stop_reason == reference.tokens[0]


@pytest.mark.parametrize("pages", [1, 2])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_whole_prompt_hit_gives_the_cold_answer(model, pages, extra):
    prompt = random.Random(3).choices(range(1, 256), k=16 * pages + extra)
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, logprobs=0)
    with LLM(model.folder, dtype="float32") as llm:
        cold, warm = (llm.generate([prompt], params, use_tqdm=False)[0] for _ in range(2))
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, (len(prompt) - 1) // 16 * 16)
    assert list(cold.outputs[0].token_ids) == list(warm.outputs[0].token_ids)
    np.testing.assert_allclose(
        [next(iter(e.values())).logprob for e in cold.outputs[0].logprobs],
        [next(iter(e.values())).logprob for e in warm.outputs[0].logprobs],
        atol=1e-4,
    )


def test_a_prompt_that_can_never_fit_does_not_block_a_short_one(model):
    from framework import InputError

    with LLM(model.folder, dtype="float32", num_pages=5) as llm:
        assert llm.max_model_len == 64
        params = SamplingParams(temperature=0, max_tokens=5)
        with pytest.raises(InputError):
            llm.generate([[1] * 100, [1, 2]], params, use_tqdm=False)
        assert len(llm.generate([[1, 2]], params, use_tqdm=False)) == 1


def test_sixty_four_requests_with_a_cache_for_twelve_equal_each_alone(llm, model):
    """Mixed lengths; after that the pool is as it was at the start."""
    from framework import LLM

    base = [reference.prompt for reference in model.references if len(reference.prompt) <= 33]
    # Each begins with a token of its own, so that none helps another through the cache.
    prompts = [[1 + k, *base[k % len(base)]] for k in range(64)]
    sampling = [
        SamplingParams(temperature=0, max_tokens=2 + (7 * k) % 13, ignore_eos=True)
        for k in range(64)
    ]
    # The null page, and three of 16 tokens for each of twelve.
    with LLM(model.folder, dtype="float32", max_model_len=48, num_pages=37) as tight:
        many = tight.generate(prompts, sampling, use_tqdm=False)
        assert tight.stats.preemptions > 0
        assert tight.stats.pages_used == 0
        tight.check_integrity()
    for prompt, params, output in zip(prompts, sampling, many, strict=True):
        [alone] = llm.generate([prompt], params, use_tqdm=False)
        assert list(output.outputs[0].token_ids) == list(alone.outputs[0].token_ids)
