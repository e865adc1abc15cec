"""Log-probabilities: which tokens, which values, which ranks, in every mode."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework.errors import ModelError

GREEDY = SamplingParams(temperature=0)
VOCAB = 50


def best(values, k):
    """Ids of the k largest, lowest id first among equals."""
    return sorted(range(len(values)), key=lambda token: (-values[token], token))[:k]


def test_entries_are_the_token_itself_then_the_best_with_ranks(make_bench, naive_log_softmax):
    rng = np.random.default_rng(9)
    bench = make_bench(VOCAB)
    logits = rng.normal(0, 2, (5, VOCAB)).astype(np.float32)
    asked = [3, None, 0, -1, VOCAB]
    for slot, k in enumerate(asked):
        bench.admit(slot, SamplingParams(temperature=2.0, logprobs=k), seed=slot)
    output = bench.sample(range(5), logits)
    assert output.logprob_rows.tolist() == [0, 2, 3, 4]
    assert output.logprobs.offsets.tolist() == [0, 4, 5, 5 + VOCAB + 1, 5 + 2 * (VOCAB + 1)]
    for index, row in enumerate([0, 2, 3, 4]):
        k = VOCAB if asked[row] == -1 else asked[row]
        expected = naive_log_softmax(logits[row].astype(np.float64))
        entry, token = output.logprobs.slice(index, index + 1), int(output.token_ids[row])
        assert entry.ids.tolist() == [token, *best(expected, k)]
        np.testing.assert_allclose(entry.values, expected[entry.ids], atol=1e-5)
        assert entry.ranks.tolist() == [1 + int((expected > expected[token]).sum())]


def test_the_whole_vocabulary_sums_to_one(make_bench):
    for mode in ("raw_logprobs", "processed_logprobs"):
        bench = make_bench(VOCAB, mode=mode)
        bench.admit(0, SamplingParams(logprobs=-1, top_k=5, temperature=0.5))
        logits = np.random.default_rng(10).normal(0, 2, VOCAB)
        values = bench.sample([0], logits).logprobs.values[1:].astype(np.float64)
        assert abs(np.exp(values).sum() - 1) < 1e-5
        assert (values > -1e30).sum() == (5 if mode == "processed_logprobs" else VOCAB)


def test_raw_modes_ignore_whatever_changes_the_logits(make_bench, naive_log_softmax):
    logits = np.random.default_rng(11).normal(0, 2, VOCAB).astype(np.float32)
    sampling = SamplingParams(
        logprobs=-1, temperature=0.4, top_p=0.5, logit_bias={3: 9.0}, allowed_token_ids=[3, 4]
    )
    for mode, expected in (("raw_logprobs", naive_log_softmax(logits)), ("raw_logits", logits)):
        bench = make_bench(VOCAB, mode=mode)
        bench.admit(0, sampling)
        entry = bench.sample([0], logits).logprobs
        np.testing.assert_allclose(entry.values, expected[entry.ids], atol=1e-5)


def test_processed_log_probabilities_keep_their_digits_at_a_low_temperature(
    make_bench, naive_log_softmax
):
    logits = np.array([20.0, 20.0 - 2**-16, 20.0 - 2**-15, 3.0], np.float32)
    bench = make_bench(4, mode="processed_logprobs")
    bench.admit(0, SamplingParams(logprobs=-1, temperature=2e-5))
    entry = bench.sample([0], logits).logprobs
    expected = naive_log_softmax(logits.astype(np.float64) / 2e-5)
    np.testing.assert_allclose(entry.values, expected[entry.ids], rtol=1e-5, atol=1e-5)


def test_ties_are_listed_by_id_and_share_their_rank(make_bench):
    bench = make_bench(2000)
    logits = np.zeros(2000)
    logits[[1500, 30, 700]] = 1.0
    for k in (0, 1, 2, 3, 6, 1999, 2000):
        bench.admit(0, GREEDY.replace(logprobs=k, logit_bias={700: 1.0}))
        entry = bench.sample([0], logits).logprobs
        assert entry.ids.tolist() == [700, *best(logits, k)]
        assert entry.ranks.tolist() == [1]


def test_the_entries_of_a_row_do_not_depend_on_how_many_its_mates_want(make_bench):
    logits = np.round(np.random.default_rng(12).normal(0, 1, (2, 500)))  # many ties
    alone = make_bench(500)
    alone.admit(0, GREEDY.replace(logprobs=7))
    expected = alone.sample([0], logits[0]).logprobs
    for k in (1, 7, 100, 499, -1):
        bench = make_bench(500)
        bench.admit(0, GREEDY.replace(logprobs=7))
        bench.admit(1, GREEDY.replace(logprobs=k))
        found = bench.sample([0, 1], logits).logprobs.slice(0, 1)
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.values.tobytes() == expected.values.tobytes()


def test_values_are_finite_so_that_json_can_carry_them(make_bench):
    for mode in ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"):
        bench = make_bench(4, mode=mode)
        bench.admit(0, GREEDY.replace(logprobs=-1, allowed_token_ids=[1, 2]))
        entry = bench.sample([0], [-np.inf, 1, 2, 3]).logprobs
        json.dumps(entry.values.tolist(), allow_nan=False)
        assert entry.values[entry.ids == 0].max() < -3e38


def test_prompt_logprobs_give_each_target_under_the_raw_distribution(make_bench, naive_log_softmax):
    logits = np.random.default_rng(13).normal(0, 2, (6, VOCAB)).astype(np.float32)
    targets = np.array([0, 49, 3, 3, 10, 11])
    for mode in ("raw_logprobs", "processed_logprobs"):
        sampler = make_bench(VOCAB, mode=mode).sampler
        for k, count in ((0, 0), (4, 4), (-1, VOCAB)):
            found = sampler.prompt_logprobs(torch.from_numpy(logits.copy()), targets, k)
            assert len(found) == 6
            for row, target in enumerate(targets.tolist()):
                expected = naive_log_softmax(logits[row].astype(np.float64))
                entry = found.slice(row, row + 1)
                assert entry.ids.tolist() == [target, *best(expected, count)]
                np.testing.assert_allclose(entry.values, expected[entry.ids], atol=1e-5)
                assert entry.ranks[0] == 1 + (expected > expected[target]).sum()


def test_prompt_logprobs_in_chunks_equal_those_in_one_bit_for_bit(make_bench):
    logits = torch.randn((9, 301), generator=torch.Generator().manual_seed(1))
    targets = np.arange(9) * 7
    sampler = make_bench(301).sampler
    whole = sampler.prompt_logprobs(logits, targets, 5)
    for start, stop in ((0, 1), (1, 5), (5, 9)):
        part = sampler.prompt_logprobs(logits[start:stop], targets[start:stop], 5)
        assert part.values.tobytes() == whole.slice(start, stop).values.tobytes()
        assert part.ids.tolist() == whole.slice(start, stop).ids.tolist()


def test_prompt_logprobs_of_nan_are_an_error_and_of_nothing_are_nothing(make_bench):
    sampler = make_bench(VOCAB).sampler
    assert len(sampler.prompt_logprobs(torch.zeros(0, VOCAB), np.zeros(0, np.int64), 3)) == 0
    with pytest.raises(ModelError, match="not numbers"):
        sampler.prompt_logprobs(torch.full((1, VOCAB), torch.nan), np.zeros(1, np.int64), 3)
