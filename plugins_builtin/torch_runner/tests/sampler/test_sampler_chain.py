"""The chain against a slow reference, stage by stage and all together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework.errors import ConfigError, IntegrityError
from framework_torch.sampler import masks

VOCAB = 41
GREEDY = SamplingParams(temperature=0)


def random_request(rng):
    """Everything that a request can ask of the chain, each with some chance."""

    def maybe(chance, value, other):
        return value if rng.random() < chance else other

    ids = [int(token) for token in rng.permutation(VOCAB)]
    sampling = SamplingParams(
        temperature=maybe(0.3, 0.0, float(rng.uniform(0.2, 2.0))),
        top_p=maybe(0.5, float(rng.uniform(0.05, 0.99)), 1.0),
        top_k=maybe(0.5, int(rng.integers(1, VOCAB + 3)), 0),
        min_p=maybe(0.3, float(rng.uniform(0.0, 0.5)), 0.0),
        presence_penalty=maybe(0.4, float(rng.uniform(-2, 2)), 0.0),
        frequency_penalty=maybe(0.4, float(rng.uniform(-2, 2)), 0.0),
        repetition_penalty=maybe(0.4, float(rng.uniform(0.5, 2)), 1.0),
        logit_bias=maybe(0.3, {token: float(rng.uniform(-5, 5)) for token in ids[:3]}, None),
        allowed_token_ids=maybe(0.3, ids[:25], None),
        min_tokens=int(rng.integers(0, 6)),
    )
    prompt = rng.integers(0, VOCAB, rng.integers(1, 9)).tolist()
    outputs = rng.integers(0, VOCAB, rng.integers(0, 12)).tolist()
    words = ((int(rng.integers(VOCAB)),), (*outputs[-2:], int(rng.integers(VOCAB))), (1, 2, 3))
    return {
        "sampling": sampling,
        "prompt": prompt,
        "outputs": outputs,
        "stop_ids": maybe(0.5, (7, 11), ()),
        "bad_words": maybe(0.4, words, ()),
    }


def test_every_mixture_of_parameters_equals_the_naive_sampler(
    make_bench, naive_change, assert_pick
):
    rng = np.random.default_rng(1)
    for _ in range(80):
        bench = make_bench(VOCAB)
        count = 12
        slots = rng.permutation(32)[:count].tolist()
        logits = rng.normal(0, 3, (count, VOCAB)).astype(np.float32)
        requests = [random_request(rng) for _ in slots]
        seeds = [int(seed) for seed in rng.integers(0, 2**64, count, np.uint64)]
        for slot, request, seed in zip(slots, requests, seeds, strict=True):
            bench.admit(slot, seed=seed, **request)
        output = bench.sample(slots, logits)
        assert output.errors == {}
        assert output.logprobs is None
        assert output.token_ids.dtype == np.int32
        for row, (slot, request) in enumerate(zip(slots, requests, strict=True)):
            changed = naive_change(logits[row], **request)
            position = bench.table.known[slot]
            token = int(output.token_ids[row])
            assert_pick(token, changed, request["sampling"], seeds[row], position)


def test_processed_logits_equal_the_naive_ones_number_by_number(
    make_bench, naive_change, naive_filter
):
    rng = np.random.default_rng(2)
    for _ in range(20):
        bench = make_bench(VOCAB, mode="processed_logits")
        logits = rng.normal(0, 3, (6, VOCAB)).astype(np.float32)
        requests = [random_request(rng) for _ in range(6)]
        for slot, request in enumerate(requests):
            request["sampling"] = request["sampling"].replace(logprobs=-1)
            bench.admit(slot, seed=slot, **request)
        output = bench.sample(range(6), logits)
        for row, request in enumerate(requests):
            expected = naive_change(logits[row], **request)
            if not request["sampling"].greedy:
                expected = naive_filter(expected, request["sampling"])
            entry = output.logprobs.slice(row, row + 1)
            found = np.empty(VOCAB)
            found[entry.ids[1:]] = entry.values[1:]
            floor = np.finfo(np.float32).min
            np.testing.assert_allclose(found, np.maximum(expected, floor), rtol=1e-4, atol=1e-4)


def test_logit_bias_changes_the_greedy_pick(make_bench):
    bench = make_bench(4)
    bench.admit(0, GREEDY.replace(logit_bias={2: 5.0}))
    bench.admit(1, GREEDY.replace(logit_bias={0: -100.0}))
    bench.admit(2, GREEDY.replace(logit_bias={3: 3.4e38, 0: -3.4e38}))
    assert bench.sample([0, 1, 2], [[3, 2, 1, 0]] * 3).token_ids.tolist() == [2, 1, 3]


def test_logit_bias_does_not_bring_back_a_token_that_is_not_allowed(make_bench):
    bench = make_bench(4)
    bench.admit(0, GREEDY.replace(logit_bias={0: 100.0}, allowed_token_ids=[1, 2]))
    assert bench.sample([0], [3, 2, 1, 0]).token_ids.tolist() == [1]


def test_penalties_come_after_the_bias(make_bench):
    # 1 + 3 = 4, halved = 2: below token 1.  The other way round it would be 0.5 + 3.
    bench = make_bench(2)
    bench.admit(0, GREEDY.replace(logit_bias={0: 3.0}, repetition_penalty=2.0), prompt=[0])
    assert bench.sample([0], [1, 2.5]).token_ids.tolist() == [1]


def test_allowed_ids_mask_all_others_and_survive_all_orders(make_bench):
    bench = make_bench(5)
    bench.admit(0, GREEDY.replace(allowed_token_ids=[3]))
    bench.admit(1, SamplingParams(temperature=2.0, allowed_token_ids=[4, 1]))
    for position in range(1, 30):
        tokens = bench.sample([0, 1], [[9, 8, 7, 0, 1]] * 2, positions=[1, position]).token_ids
        assert tokens[0] == 3
        assert tokens[1] in (1, 4)
        bench.append(1, int(tokens[1]))


def test_bad_words_are_stopped_at_their_last_token_and_only_in_the_output(make_bench):
    logits = [5, 4, 3, 2, 1]
    for prompt, outputs, words, expected in [
        ([9], [], ((0,),), 1),  # one token
        ([9], [3], ((3, 0),), 1),  # two, the first was produced
        ([9], [2, 3], ((2, 3, 0),), 1),  # three
        ([9], [3, 2], ((2, 3, 0),), 0),  # another order
        ([9], [], ((3, 0),), 0),  # the first is not there yet
        ([3], [], ((3, 0),), 0),  # it is, but in the prompt
        ([9], [3], ((3, 0), (1,), (3, 3, 2)), 2),  # several words
        ([9], [3], ((3, 77), (), (77,)), 0),  # outside the vocabulary: harmless
    ]:
        bench = make_bench(5)
        bench.admit(0, GREEDY, prompt=prompt, outputs=outputs, bad_words=words)
        assert bench.sample([0], logits).token_ids.tolist() == [expected]


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_min_tokens_masks_every_stop_id_until_exactly_that_many_outputs(make_bench, min_tokens):
    bench = make_bench(4)
    bench.admit(0, GREEDY.replace(min_tokens=min_tokens), prompt=[3, 3], stop_ids=(0, 1, 50))
    for outputs in range(7):
        token = int(bench.sample([0], [9, 8, 1, 0]).token_ids[0])
        assert token == (2 if outputs < min_tokens else 0)
        bench.append(0, 2)


def test_a_bitmask_forbids_the_tokens_whose_bit_is_clear(make_bench):
    vocab = 70
    bench = make_bench(vocab)
    for slot in range(3):
        bench.admit(slot, GREEDY)
    logits = np.tile(np.arange(vocab, 0, -1), (3, 1))
    for dtype in (np.uint32, np.int32):
        for first in (0, 31, 32, 63, 64, 69):
            bits = np.zeros((2, 96), np.uint8)
            bits[0, first:] = 1
            bits[1, first] = 1
            words = np.packbits(bits, axis=1, bitorder="little").view(dtype)
            for mask in (words, torch.from_numpy(words.copy())):
                rows = np.array([2, 0], np.int32)
                output = bench.sample([0, 1, 2], logits, bitmask=mask, bitmask_rows=rows)
                assert output.token_ids.tolist() == [first, 0, first]
    with pytest.raises(ValueError, match="shape"):
        bench.sample([0], logits[:1], bitmask=words[:1, :2], bitmask_rows=np.array([0]))


def test_a_bitmask_leaves_what_it_allows_however_much_that_is():
    """None, few, half, nearly all and all; on the host, and bit by bit as devices have it."""
    vocab, shares = 1003, (0.0, 0.01, 0.5, 0.99, 1.0)
    rng = np.random.default_rng(3)
    allowed = rng.random((len(shares), 1024)) < np.array(shares)[:, None]
    words = np.packbits(allowed, axis=1, bitorder="little").view(np.int32)
    rows = np.array([4, 0, 6, 2, 3])
    logits = torch.from_numpy(rng.standard_normal((7, vocab)).astype(np.float32))
    before = logits.clone()
    masks.apply_bitmask(logits, words, rows)
    expected = before.clone()
    expected[rows] = torch.where(torch.from_numpy(allowed[:, :vocab]), before[rows], -torch.inf)
    assert torch.equal(logits, expected)
    bits = masks._clear_bits(torch.from_numpy(words), torch.device("cpu"))
    assert np.array_equal(bits.numpy(), ~allowed)


def test_greedy_takes_the_lowest_id_among_equals(make_bench):
    bench = make_bench(1000)
    bench.admit(0, GREEDY)
    logits = np.zeros((1, 1000))
    logits[0, [401, 77, 900]] = 2.0
    assert bench.sample([0], logits).token_ids.tolist() == [77]


def test_ids_of_a_prompt_beyond_the_logits_have_nothing_to_penalize(make_bench):
    """A vocabulary may be larger than what the model can produce."""
    bench = make_bench(50)
    penalties = {"repetition_penalty": 2.0, "presence_penalty": 1.0, "frequency_penalty": 1.0}
    bench.admit(0, GREEDY.replace(**penalties), prompt=(49, 50, 51), outputs=(50, 48))
    logits = np.linspace(1, 1.1, 50)
    assert bench.sample([0], logits).token_ids.tolist() == [47]


def test_the_best_one_alone_is_what_greedy_takes(make_bench):
    """top_k 1 at any temperature, any seed."""
    bench = make_bench(50)
    logits = np.linspace(0, 0.1, 50)
    for seed in range(20):
        bench.admit(0, SamplingParams(top_k=1, temperature=2.0), seed=seed)
        assert bench.sample([0], logits).token_ids.tolist() == [49]


def test_ties_at_the_border_of_top_k_and_top_p_keep_the_lowest_ids(make_bench, naive_filter):
    for sampling in (SamplingParams(top_k=3), SamplingParams(top_p=0.55)):
        bench = make_bench(6, mode="processed_logprobs")
        bench.admit(0, sampling.replace(logprobs=-1))
        entry = bench.sample([0], [0, 1, 0, 0, 0, 0]).logprobs
        kept = sorted(entry.ids[1:][entry.values[1:] > -100].tolist())
        assert kept == [0, 1, 2]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(top_p=0.5),
        SamplingParams(top_p=0.999),
        SamplingParams(top_k=1500),
        SamplingParams(top_k=1023),
        SamplingParams(top_k=1024),
        SamplingParams(top_k=1024, top_p=0.9),
        SamplingParams(top_k=1025, top_p=0.9),
        SamplingParams(top_k=4000, top_p=0.95, min_p=0.1),
    ],
)
def test_filters_are_right_however_many_tokens_they_keep(make_bench, naive_filter, sampling):
    # More than the window that is sorted first; once flat, once with many ties, once peaked.
    vocab = 5000
    rng = np.random.default_rng(3)
    normal = rng.normal(0, 1, vocab)
    logits = np.stack((normal * 0.1, np.round(normal), normal * 5)).astype(np.float32)
    bench = make_bench(vocab, mode="processed_logits")
    for slot in range(3):
        bench.admit(slot, sampling.replace(logprobs=-1))
    output = bench.sample([0, 1, 2], logits)
    for row in range(3):
        entry = output.logprobs.slice(row, row + 1)
        found = set(entry.ids[1:][entry.values[1:] > -1e30].tolist())
        expected = set(
            np.flatnonzero(np.isfinite(naive_filter(logits[row].astype(float), sampling)))
        )
        # float32 sums against float64: one token more or less at the border of a nucleus.
        assert len(found ^ expected) <= (sampling.top_p < 1.0)
        assert abs(len(found) - len(expected)) <= 1


def test_a_slot_that_nobody_admitted_is_a_fault_of_ours(make_bench):
    bench = make_bench(4)
    bench.admit(0, GREEDY)
    bench.admit(1, None)
    with pytest.raises(IntegrityError, match=r"\[1, 2\]"):
        bench.sample([0, 1, 2], np.zeros((3, 4)))
    bench.sampler.drop(0)
    bench.sampler.drop(0)
    with pytest.raises(IntegrityError):
        bench.sample([0], np.zeros((1, 4)))


def test_an_unknown_logprobs_mode_is_an_error_that_lists_the_modes(make_bench):
    with pytest.raises(ConfigError, match="processed_logits"):
        make_bench(4, mode="raw")


def test_the_next_owner_of_a_slot_inherits_nothing(make_bench):
    rich = {
        "sampling": GREEDY.replace(
            logit_bias={1: 50.0},
            allowed_token_ids=[1, 2],
            min_tokens=5,
            presence_penalty=2.0,
            frequency_penalty=2.0,
            repetition_penalty=9.0,
            logprobs=3,
        ),
        "stop_ids": (0,),
        "bad_words": ((3,), (2, 0)),
    }
    wide = {"sampling": SamplingParams(temperature=2.0, top_k=2, top_p=0.1, min_p=0.5)}
    logits = [4.0, 3.0, 2.0, 1.0]
    for before in (rich, wide):
        for drop in (True, False):
            bench = make_bench(4)
            bench.admit(0, prompt=[0], outputs=[0, 2], **before)
            if drop:
                bench.sampler.drop(0)
            bench.admit(0, GREEDY, prompt=[0], outputs=[0, 2])
            output = bench.sample([0], logits)
            assert output.token_ids.tolist() == [0]
            assert output.logprobs is None
            # Without a filter left over, a hot draw reaches every token.
            bench.admit(0, SamplingParams(temperature=2.0))
            seen = set()
            for position in range(1, 60):
                seen |= set(bench.sample([0], logits, positions=[position]).token_ids.tolist())
                bench.append(0, 0)
            assert seen == {0, 1, 2, 3}


def test_no_rows_give_no_tokens(make_bench):
    output = make_bench(4).sample([], np.zeros((0, 4)))
    assert output.token_ids.shape == (0,)
    assert output.errors == {}
