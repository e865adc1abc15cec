"""Penalties count the true history: after preemption, with drafts, prompt and output apart."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.sampling import SamplingParams
from framework.errors import IntegrityError

VOCAB = 13
GREEDY = SamplingParams(temperature=0)


def processed(bench, slots, logits, **options):
    """The logits each row was picked from, [rows, V]."""
    output = bench.sample(slots, logits, **options)
    result = np.empty((len(slots), VOCAB))
    for row in range(len(slots)):
        entry = output.logprobs.slice(row, row + 1)
        result[row, entry.ids[1:]] = entry.values[1:]
    return result


@pytest.fixture
def bench(make_bench):
    return make_bench(VOCAB, mode="processed_logits")


def test_presence_and_frequency_count_output_only_repetition_counts_both(bench):
    logits = np.full((3, VOCAB), 4.0)
    prompt, outputs = [1, 1, 2], [2, 3, 3, 3]
    for slot, change in enumerate(
        ({"presence_penalty": 1.0}, {"frequency_penalty": 0.5}, {"repetition_penalty": 2.0})
    ):
        bench.admit(slot, GREEDY.replace(logprobs=-1, **change), prompt, outputs)
    found = processed(bench, [0, 1, 2], logits)
    assert found[0, :5].tolist() == [4, 4, 3, 3, 4]
    assert found[1, :5].tolist() == [4, 4, 3.5, 2.5, 4]
    assert found[2, :5].tolist() == [4, 2, 2, 2, 4]


def test_repetition_multiplies_negative_logits(bench):
    bench.admit(0, GREEDY.replace(logprobs=-1, repetition_penalty=2.0), prompt=[0, 1, 2])
    found = processed(bench, [0], [-3.0, 3.0, 0.0, -3.0, *[0.0] * 9])
    assert found[0, :4].tolist() == [-6, 1.5, 0, -3]


def test_counts_equal_the_true_history_through_preemption_and_new_owners(bench, naive_change):
    rng = np.random.default_rng(7)
    sampling = GREEDY.replace(
        logprobs=-1, presence_penalty=0.7, frequency_penalty=0.3, repetition_penalty=1.4
    )
    prompts = {name: rng.integers(0, VOCAB, 3 + name).tolist() for name in range(4)}
    outputs = {name: [] for name in prompts}
    slots = {}
    for step in range(40):
        name = int(rng.integers(4))
        if name in slots and rng.random() < 0.3:  # preempted: the slot may get another owner
            bench.sampler.drop(slots.pop(name))
        for name in prompts:
            if name not in slots:
                free = [slot for slot in range(6) if slot not in slots.values()]
                slots[name] = free[int(rng.integers(len(free)))]
                bench.admit(slots[name], sampling, prompts[name], outputs[name])
        logits = rng.normal(0, 2, (4, VOCAB)).astype(np.float32)
        order = [slots[name] for name in prompts]
        found = processed(bench, order, logits)
        for name in prompts:
            expected = naive_change(logits[name], sampling, prompts[name], outputs[name])
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)
            token = int(expected.argmax())
            outputs[name].append(token)
            bench.append(slots[name], token)
        assert len(outputs[0]) == step + 1


def test_drafts_before_a_position_count_as_output(bench, naive_change):
    sampling = GREEDY.replace(
        logprobs=-1, frequency_penalty=1.0, repetition_penalty=1.5, min_tokens=4
    )
    prompt, outputs, drafts = [1, 2], [3, 4], [4, 5, 6]
    words = ((4, 5, 9), (5, 6, 8), (3, 4, 7))
    bench.admit(3, sampling, prompt, outputs, stop_ids=(0,), bad_words=words)
    logits = np.random.default_rng(8).normal(0, 1, (4, VOCAB)).astype(np.float32)
    extra = [np.array(drafts[:n], np.int32) for n in range(4)]
    found = processed(bench, [3] * 4, logits, positions=[4, 5, 6, 7], extra_history=extra)
    for n in range(4):
        before = outputs + drafts[:n]
        expected = naive_change(logits[n], sampling, prompt, before, (0,), words)
        floor = np.finfo(np.float32).min
        np.testing.assert_allclose(found[n], np.maximum(expected, floor), rtol=1e-5, atol=1e-5)


def test_what_lies_beyond_the_position_does_not_count(bench):
    # A rejected draft or a step in flight may have left tokens there.
    bench.admit(0, GREEDY.replace(logprobs=-1, presence_penalty=1.0), [1], [2, 3, 4])
    found = processed(bench, [0], np.zeros(VOCAB), positions=[3])
    assert found[0, :6].tolist() == [0, 0, -1, -1, 0, 0]


def test_prompt_ids_outside_the_vocabulary_are_no_harm(bench):
    bench.admit(0, GREEDY.replace(logprobs=-1, repetition_penalty=2.0), [500, -1, 2])
    assert processed(bench, [0], np.full(VOCAB, 4.0))[0, :4].tolist() == [4, 4, 2, 4]


def test_a_table_that_lacks_tokens_is_a_fault_of_ours(bench):
    bench.admit(0, GREEDY.replace(repetition_penalty=2.0), [1, 2])
    with pytest.raises(IntegrityError, match="5 known tokens"):
        bench.sample([0], np.zeros(VOCAB), positions=[5])
