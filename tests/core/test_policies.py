"""A scheduling policy decides on an order, and can break nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.fair_queueing import FairQueueing
from framework.core.policies import FirstComeFirstServed


class Odd(SchedulingPolicy):
    """Answers what it was made with."""

    def __init__(self, answer, fixed):
        super().__init__()
        self.plugin_id = "scheduling_policy:odd@its-distribution"
        self.answer, self.keys_are_fixed = answer, fixed

    def keys(self, requests):
        return self.answer(len(requests))


def _raise(error):
    raise error


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize(
    "answer",
    [
        lambda n: _raise(RuntimeError("boom")),
        lambda n: _raise(SystemExit(3)),
        lambda n: _raise(BaseException("a panic")),
        lambda n: np.full(n, np.nan),
        lambda n: np.full(n, -np.inf),
        lambda n: np.zeros(n + 1),
        lambda n: np.zeros((n, 2)),
        lambda n: None,
        lambda n: "text",
        lambda n: 5.0,
        lambda n: np.zeros(n, np.complex128),
    ],
)
def test_wrong_keys_mean_order_of_arrival_and_the_log_names_the_plugin(
    engine, alone, caplog, answer, fixed
):
    one = engine(policy=Odd(answer, fixed), max_num_seqs=1)
    for name in "abc":
        one.add(name, [1], max_tokens=3)
    answers = one.run()
    assert {name: answers[name].tokens for name in "abc"} == dict.fromkeys(
        "abc", alone([1], max_tokens=3).tokens
    )
    assert [r.request_id for p in one.runner.plans for r in p.admitted] == ["a", "b", "c"]
    told = [r for r in caplog.records if "scheduling_policy:odd@its-distribution" in r.message]
    assert len(told) == 1


@pytest.mark.parametrize("answer", [lambda n: [0.0] * n, lambda n: np.arange(n)])
def test_numbers_of_any_kind_are_keys(engine, caplog, answer):
    one = engine(policy=Odd(answer, False))
    one.add("a", [1], max_tokens=2)
    one.run()
    assert caplog.text == ""


def test_accounts_that_fail_are_logged_once(engine, caplog):
    class Accounts(SchedulingPolicy):
        def keys(self, requests):
            return np.zeros(len(requests))

        def served(self, requests, tokens):
            raise RuntimeError("boom")

    one = engine(policy=Accounts())
    one.add("a", [1], max_tokens=4)
    assert one.run()["a"].reason == "length"
    assert caplog.text.count("failed in served") == 1


@pytest.mark.parametrize("base", [FirstComeFirstServed, FairQueueing])
def test_a_policy_is_asked_as_often_however_many_requests_there_are(engine, base):
    """It sees arrays: no call is made for each request that runs or waits."""
    calls = {4: 0, 64: 0}
    for count in calls:

        class Counting(base):
            def keys(self, requests):
                calls[count] += 1  # noqa: B023
                return super().keys(requests)

        one = engine(policy=Counting(), runner={"num_pages": 600}, max_num_seqs=count // 2)
        for index in range(count):
            one.add(str(index), [index] * 5, 10)
        one.run()
    assert calls[64] == calls[4] > 0


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    "key",
    [
        lambda requests: requests.known,
        lambda requests: requests.computed,
        lambda requests: requests.known - requests.limit,
        lambda requests: requests.computed - requests.known,
    ],
)
def test_who_is_behind_comes_first_and_all_come_to_their_end(engine, alone, key, depth):
    """Of those that do not fit together the one that gets ahead is preempted, and would be again
    before it has what it had, for ever."""

    class Behind(SchedulingPolicy):
        def keys(self, requests):
            return key(requests).astype(np.float64)

    one = engine(
        policy=Behind(),
        runner={"num_pages": 16, "max_model_len": 56},
        loop_depth=depth,
        max_num_batched_tokens=8,
        enable_prefix_caching=False,
    )
    for number in range(4):
        one.add(str(number), [number] * 20, 30)
    answers = one.run(1500)
    assert one.core.stats.preemptions > 4
    for number in range(4):
        assert answers[str(number)].tokens == alone([number] * 20, 30).tokens


def test_a_policy_whose_keys_are_fixed_is_asked_once_for_each_request(engine):
    """Also when it was preempted, more than once in vain: else it would get ahead of its turn."""

    class Counted(FirstComeFirstServed):
        asked = 0

        def keys(self, requests):
            self.asked += len(requests.arrival)
            return super().keys(requests)

    policy = Counted()
    one = engine(policy=policy, runner={"num_pages": 12}, max_num_batched_tokens=6)
    for name in "abcd":
        one.add(name, [ord(name)] * 9, 12)
    one.run()
    assert one.core.stats.preemptions > 1
    assert policy.asked == 4
