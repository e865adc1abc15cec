"""Rows that want the largest logit and nothing else go past every stage."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framework.contracts.sampling import SamplingParams
from framework_torch.sampler import chain
from framework_torch.sampler.pick import largest

from .conftest import Bench

GREEDY = SamplingParams(temperature=0.0)
INF, NAN = float("inf"), float("nan")


@pytest.fixture
def no_stages(monkeypatch):
    """Every stage behind the pick of the largest, and before it, fails."""

    def fail(*arguments, **more):
        raise AssertionError("a stage ran")

    for name in ("allow_only", "ban_words", "delay_stop", "add_bias"):
        monkeypatch.setattr(chain.masks, name, fail)
    for name in ("scale", "weigh", "keep_best", "keep_min_p"):
        monkeypatch.setattr(chain.filters, name, fail)
    monkeypatch.setattr(chain, "apply_penalties", fail)
    monkeypatch.setattr(chain, "History", fail)
    for name in ("sort", "topk", "softmax", "cumsum"):
        monkeypatch.setattr(torch.Tensor, name, fail)


def test_a_greedy_batch_never_sorts_and_never_enters_the_chain(no_stages) -> None:
    bench = Bench(50)
    for slot in range(4):
        bench.admit(slot, GREEDY)
    logits = np.random.default_rng(0).normal(size=(4, 50)).astype(np.float32)
    found = bench.sample([2, 0, 3, 1], logits)
    assert found.token_ids.tolist() == logits.argmax(1).tolist()
    assert found.token_ids.dtype == np.int32
    assert found.logprobs is None


@pytest.mark.parametrize(
    "wish",
    [
        {"temperature": 1.0},
        {"logprobs": 0},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"repetition_penalty": 1.5},
        {"logit_bias": {1: 2.0}},
        {"allowed_token_ids": [1, 2]},
        {"min_tokens": 1, "max_tokens": 4},
    ],
)
def test_one_row_with_a_wish_takes_the_whole_batch_through_the_chain(no_stages, wish) -> None:
    bench = Bench(50)
    bench.admit(0, GREEDY)
    bench.admit(1, SamplingParams(**{"temperature": 0.0, **wish}), stop_ids=(3,))
    with pytest.raises(AssertionError, match="a stage ran"):
        bench.sample([0, 1], np.zeros((2, 50)))
    bench.admit(1, GREEDY)  # the next owner of the slot
    assert len(bench.sample([0, 1], np.zeros((2, 50))).token_ids) == 2


def test_a_bitmask_and_bad_words_go_through_the_chain(no_stages) -> None:
    bench = Bench(50)
    bench.admit(0, GREEDY, bad_words=((1, 2),))
    bench.admit(1, GREEDY)
    with pytest.raises(AssertionError, match="a stage ran"):
        bench.sample([0], np.zeros((1, 50)))
    mask, rows = np.full((1, 2), 2**32 - 1, np.uint32), np.array([0], np.int32)
    with pytest.raises(AssertionError, match="a stage ran"):
        bench.sample([1], np.zeros((1, 50)), bitmask=mask, bitmask_rows=rows)


def test_rows_that_are_no_numbers_end_alone_and_as_in_the_chain() -> None:
    rows = np.zeros((5, 50), np.float32)
    rows[0, 7] = rows[1, 9] = 1.0
    rows[2, 3], rows[3, 4], rows[4] = NAN, INF, -INF
    plain, whole = Bench(50), Bench(50)
    for slot in range(5):
        plain.admit(slot, GREEDY)
        whole.admit(slot, GREEDY)
    whole.admit(5, SamplingParams(temperature=0.0, logit_bias={0: 1.0}))
    found = plain.sample(range(5), rows)
    other = whole.sample(range(6), np.concatenate([rows, rows[:1]]))
    assert found.token_ids.tolist() == [7, 9, 0, 0, 0] == other.token_ids[:5].tolist()
    assert found.errors == {row: text for row, text in other.errors.items() if row < 5}
    assert set(found.errors) == {2, 3, 4}


@pytest.mark.parametrize("width", [1, 7, 64, 1000])
def test_the_first_of_equal_logits_is_the_largest(width) -> None:
    logits = torch.randint(0, 5, (33, width), generator=torch.Generator().manual_seed(1)).float()
    index, value = largest(logits)
    for row, at, best in zip(logits.tolist(), index.tolist(), value.tolist(), strict=True):
        assert (at, best) == (row.index(max(row)), max(row))
