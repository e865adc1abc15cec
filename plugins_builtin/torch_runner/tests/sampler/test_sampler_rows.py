"""A row's token is its own affair: batch mates, faults beside it, randomness."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.sampling import SamplingParams
from framework.core.random import uniforms
from framework_torch.sampler import pick

GREEDY = SamplingParams(temperature=0)
VOCAB = 1003  # no multiple of a vector's width

KINDS = [
    SamplingParams(logprobs=3),
    SamplingParams(temperature=0, logprobs=0),
    SamplingParams(temperature=0.7, top_p=0.8, logprobs=20),
    SamplingParams(temperature=1.3, top_k=7),
    SamplingParams(top_k=40, top_p=0.95, min_p=0.02, logprobs=1),
    SamplingParams(min_p=0.1, repetition_penalty=1.3),
    SamplingParams(presence_penalty=0.5, frequency_penalty=-0.4, logprobs=-1),
    SamplingParams(temperature=0, frequency_penalty=1.5),
    SamplingParams(logit_bias={5: 3.0, 9: -2.0}, top_k=900),
    SamplingParams(allowed_token_ids=list(range(0, VOCAB, 3)), top_p=0.5),
    SamplingParams(temperature=0, min_tokens=9, logprobs=5),
    SamplingParams(temperature=2.0),
    SamplingParams(temperature=1e-5),
    SamplingParams(temperature=0.3, top_p=1e-9),
    SamplingParams(top_k=1),
    SamplingParams(top_p=0.99999, repetition_penalty=0.7),
    SamplingParams(temperature=0, repetition_penalty=1e-300, presence_penalty=2),
]


def bits_of(output, row):
    """Everything that the output says about a row."""
    where = np.flatnonzero(output.logprob_rows == row)
    if not len(where):
        return int(output.token_ids[row]), None
    entry = output.logprobs.slice(where[0], where[0] + 1)
    return int(output.token_ids[row]), (
        entry.ids.tolist(),
        entry.values.tobytes(),
        entry.ranks.tolist(),
    )


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_a_row_alone_equals_the_row_among_sixteen_others_bit_for_bit(make_bench, mode):
    rng = np.random.default_rng(4)
    for scale in (0.5, 4.0):
        bench = make_bench(VOCAB, mode=mode)
        count = len(KINDS)
        logits = rng.normal(0, scale, (count, VOCAB)).astype(np.float32)
        for slot, sampling in enumerate(KINDS):
            outputs = rng.integers(0, VOCAB, 8).tolist()
            bench.admit(slot, sampling, [1, 2, 3], outputs, seed=slot, stop_ids=(4,))
        together = bench.sample(range(count), logits)
        order = rng.permutation(count)
        shuffled = bench.sample(order.tolist(), logits[order])
        for row in range(count):
            alone = bits_of(bench.sample([row], logits[row]), 0)
            assert alone == bits_of(together, row)
            assert alone == bits_of(shuffled, int(np.flatnonzero(order == row)[0]))


def test_the_number_of_threads_changes_nothing(make_bench):
    rng = np.random.default_rng(5)
    bench = make_bench(30_011)
    logits = rng.normal(0, 3, (2, 30_011)).astype(np.float32)
    bench.admit(0, SamplingParams(logprobs=5), seed=1)
    bench.admit(1, SamplingParams(top_p=0.97, logprobs=5), seed=2)
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            output = bench.sample([0, 1], logits)
            seen.append([bits_of(output, row) for row in range(2)])
    finally:
        torch.set_num_threads(before)
    assert seen[0] == seen[1] == seen[2]


def test_a_seed_reproduces_its_tokens_in_any_slot_and_other_seeds_differ(make_bench):
    bench = make_bench(VOCAB)
    logits = np.zeros((3, VOCAB))
    for slot, seed in ((3, 11), (8, 11), (9, 12)):
        bench.admit(slot, SamplingParams(), seed=seed)
    rows = []
    for position in range(1, 20):
        tokens = bench.sample([3, 8, 9], logits, positions=[position] * 3).token_ids.tolist()
        rows.append(tokens)
        for slot, token in zip((3, 8, 9), tokens, strict=True):
            bench.append(slot, token)
    first, second, other = zip(*rows, strict=True)
    assert first == second
    assert first != other
    assert len(set(first)) > 10


def test_draws_follow_the_distribution(make_bench, naive_filter, naive_log_softmax):
    draws = 20_000
    logits = np.array([0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 1.5, -0.5])
    sampling = SamplingParams(temperature=0.8, top_k=6, min_p=0.01)
    p = np.exp(naive_log_softmax(naive_filter(logits, sampling)))
    bench = make_bench(8, max_slots=draws)
    for slot in range(draws):
        bench.admit(slot, sampling, seed=slot)
    tokens = bench.sample(range(draws), np.tile(logits, (draws, 1))).token_ids
    counts = np.bincount(tokens, minlength=8)
    kept = p > 0
    assert kept.sum() == 6
    assert counts[~kept].sum() == 0
    # Chi-square with 5 degrees of freedom: 25.7 is 1 - 1e-4.
    assert ((counts[kept] - draws * p[kept]) ** 2 / (draws * p[kept])).sum() < 25.7


def test_the_pick_is_the_inverse_of_the_cumulative_distribution_in_vocabulary_order(make_bench):
    bench = make_bench(10)
    bench.admit(0, SamplingParams(), seed=77)
    for position in range(1, 40):
        u = uniforms([77], [position])[0]
        token = bench.sample([0], np.zeros(10), positions=[position]).token_ids[0]
        assert token == math.floor(u * 10)
        bench.append(0, 0)


def test_a_draw_takes_the_token_whose_interval_holds_the_number_even_at_its_ends(monkeypatch):
    for mass, u, expected in [
        ([1, 1, 2], 0.0, 0),
        ([1, 1, 2], 0.25, 1),
        ([1, 1, 2], 0.5, 2),
        ([1, 1, 2], 0.49, 1),
        ([0, 5, 0], 0.0, 1),
        ([0, 5, 0], 1 - 2**-53, 1),
        *[([2**50, extra, 0, 0], 1 - 2**-53, 1) for extra in range(1, 9)],
    ]:
        monkeypatch.setattr(pick, "uniforms", lambda seeds, positions, u=u: np.array([u]))
        found = pick.draw(torch.tensor([mass]), np.zeros(1, np.uint64), np.zeros(1, np.int64))
        assert found.tolist() == [expected]


def test_nan_and_masked_rows_end_with_their_own_error_and_touch_nobody(make_bench):
    rng = np.random.default_rng(6)
    logits = rng.normal(0, 2, (6, VOCAB)).astype(np.float32)
    kinds = [SamplingParams(top_p=0.9, logprobs=2), GREEDY.replace(logprobs=2)]

    def run(poison):
        bench = make_bench(VOCAB)
        for slot in range(6):
            words = ((3,), (4,)) if slot == 3 and poison else ()
            sampling = kinds[slot % 2]
            if slot == 3 and poison:
                sampling = sampling.replace(allowed_token_ids=[3, 4])
            bench.admit(slot, sampling, seed=slot, bad_words=words)
        bad = logits.copy()
        if poison:
            bad[1, 500], bad[2, 7], bad[4, :] = np.nan, np.inf, -np.inf
        return bench.sample(range(6), bad)

    clean, poisoned = run(False), run(True)
    assert clean.errors == {}
    assert sorted(poisoned.errors) == [1, 2, 3, 4]
    assert "not numbers" in poisoned.errors[1]
    assert "not numbers" in poisoned.errors[2]
    assert "no token is left" in poisoned.errors[3]
    assert poisoned.token_ids[1:5].tolist() == [0] * 4
    assert poisoned.logprob_rows.tolist() == [0, 5]
    for row in (0, 5):
        assert bits_of(poisoned, row) == bits_of(clean, row)


def test_nan_under_a_mask_never_reaches_the_log_probabilities(make_bench):
    for mode in ("raw_logprobs", "raw_logits"):
        bench = make_bench(4, mode=mode)
        bench.admit(0, GREEDY.replace(allowed_token_ids=[1], logprobs=1))
        output = bench.sample([0], [np.nan, 1, 2, 3])
        assert list(output.errors) == [0]
        assert len(output.logprobs) == 0


@pytest.mark.parametrize(
    "extreme",
    [
        {"repetition_penalty": 1e-300},
        {"repetition_penalty": 1e300},
        {"repetition_penalty": 5e-324},
        {"logit_bias": {1: 3.4e38, 2: 3.4e38}},
        {"logit_bias": {1: -3.4e38}, "temperature": 1e-5},
        {"logit_bias": {1: 3.4e38}, "temperature": 1e-5},
        {"temperature": 1e-5, "top_p": 1e-300, "min_p": 1.0},
    ],
)
def test_extreme_parameters_give_a_token_and_finite_numbers(make_bench, extreme):
    for mode in ("processed_logits", "processed_logprobs"):
        bench = make_bench(5, mode=mode)
        bench.admit(0, SamplingParams(logprobs=-1, **extreme), prompt=[0, 1, 2], outputs=[3, 1])
        output = bench.sample([0], [50.0, -50.0, 0.0, 1e-30, -1e-30])
        assert output.errors == {}
        assert 0 <= output.token_ids[0] < 5
        assert np.isfinite(output.logprobs.values).all()


class Adds(LogitsProcessor):
    """Prefers the token after the last output; raises for a slot in `broken`."""

    def __init__(self, broken=(), changes_argmax=True):
        super().__init__()
        self.broken, self.changes_argmax, self.seen = broken, changes_argmax, []

    def admit(self, request):
        self.seen.append(("admit", request.slot))
        if request.slot in self.broken and "admit" in self.broken:
            raise RuntimeError("no room")

    def drop(self, slot):
        self.seen.append(("drop", slot))

    def apply(self, logits, slots, outputs):
        for row, (slot, tokens) in enumerate(zip(slots.tolist(), outputs, strict=True)):
            if len(tokens):
                logits[row, int(tokens[-1]) + 1] += 100
            if slot in self.broken and "admit" not in self.broken:
                raise RuntimeError("out of order")


def test_processors_see_slots_and_outputs_and_come_before_the_penalties(make_bench):
    bench = make_bench(10, processors=[Adds()])
    bench.admit(4, GREEDY, prompt=[1, 2], outputs=[5])
    bench.admit(2, GREEDY, prompt=[1, 2])
    bench.admit(3, GREEDY.replace(repetition_penalty=1e6), prompt=[7], outputs=[6])
    logits = np.tile(np.arange(10.0, 0, -1), (3, 1))
    assert bench.sample([4, 2, 3], logits).token_ids.tolist() == [6, 0, 0]


def test_a_processor_that_raises_ends_only_the_request_it_raised_for(make_bench):
    bench = make_bench(10, mode="processed_logits", processors=[Adds(broken=(1,))])
    for slot in range(3):
        bench.admit(slot, GREEDY.replace(logprobs=0), outputs=[slot + 3])
    output = bench.sample([0, 1, 2], np.zeros((3, 10)))
    assert list(output.errors) == [1]
    assert "Adds" in output.errors[1]
    assert "out of order" in output.errors[1]
    assert output.token_ids[[0, 2]].tolist() == [4, 6]
    # What the failed call had already changed was undone before the second.
    assert output.logprobs.values.tolist() == [100, 100]


def test_a_processor_that_refuses_a_request_ends_it_at_its_first_token(make_bench):
    bench = make_bench(10, processors=[Adds(broken=(1, "admit"))])
    for slot in range(2):
        bench.admit(slot, GREEDY)
    output = bench.sample([0, 1], np.zeros((2, 10)))
    assert list(output.errors) == [1]
    bench.sampler.drop(1)
    bench.admit(2, GREEDY)
    assert bench.sample([0, 2], np.zeros((2, 10))).errors == {}


def test_ids_outside_the_vocabulary_end_their_request_only(make_bench):
    bench = make_bench(10)
    bench.admit(0, GREEDY)
    bench.admit(1, GREEDY.replace(logit_bias={10: 1.0}))
    output = bench.sample([0, 1], np.zeros((2, 10)))
    assert list(output.errors) == [1]
    assert "logit_bias" in output.errors[1]


def test_processors_that_keep_the_argmax_are_skipped_by_greedy_rows(make_bench):
    processor = Adds(changes_argmax=False)
    bench = make_bench(10, processors=[processor])
    bench.admit(0, GREEDY, outputs=[5])
    bench.admit(1, SamplingParams(), outputs=[5])
    assert bench.sample([0, 1], np.zeros((2, 10))).token_ids.tolist() == [0, 6]


def test_a_processor_hears_of_each_drop_once_and_before_the_next_owner(make_bench):
    processor = Adds()
    bench = make_bench(10, processors=[processor])
    bench.sampler.drop(0)
    bench.admit(0, GREEDY)
    bench.admit(0, GREEDY)
    bench.sampler.drop(0)
    bench.sampler.drop(0)
    assert processor.seen == [("admit", 0), ("drop", 0), ("admit", 0), ("drop", 0)]
