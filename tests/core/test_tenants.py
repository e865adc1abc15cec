"""Tenants come and go by thousands; what is kept of them stays bounded, and fair."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.scheduling_policy import RequestArrays
from framework.core import fair_queueing
from framework.core.fair_queueing import FairOptions, FairQueueing
from framework.core.tenants import Tenants
from framework.testing.conformance.suites.policy_parts import take


def test_an_index_is_a_tenants_as_long_as_it_has_a_request():
    tenants = Tenants(idle=2)
    busy = tenants.enter("busy")
    tenants.enter("busy")
    tenants.leave(busy)
    for number in range(100):
        index = tenants.enter(str(number))
        assert tenants[index] == str(number)
        assert tenants.enter(str(number)) == index
        tenants.leave(index)
        tenants.leave(index)
    assert tenants[busy] == "busy"
    assert len(tenants) == 3
    assert tenants.enter("99") == index


def test_the_one_that_has_been_idle_longest_makes_room():
    tenants = Tenants(idle=2)
    for name in "ab":
        tenants.leave(tenants.enter(name))
    tenants.leave(tenants.enter("a"))
    assert tenants.enter("c") == 1
    assert list(tenants) == ["a", "c"]


@pytest.mark.parametrize("depth", [1, 2])
def test_thousands_of_tenants_leave_little_behind(engine, depth, monkeypatch):
    monkeypatch.setattr(fair_queueing, "MOST_DEBTS", 16)
    policy = FairQueueing()
    one = engine(policy=policy, max_num_seqs=4, loop_depth=depth)
    one.core._state.tenants._most_idle = 8
    for number in range(300):
        one.add(str(number), [number % 7] * 3, 2, tenant=str(number))
        one.step()
    assert {answer.reason for answer in one.run().values()} == {"length"}
    assert len(one.core._state.tenants) < 20
    assert len(policy._time) < 20
    assert 0 < len(policy._debts) <= 16


def arrays(names, tenant, known=10):
    count = np.zeros(1, np.int64)
    return RequestArrays(
        arrival=count,
        arrived_at=count.astype(float),
        priority=count,
        tenant=count + tenant,
        prompt=count + known,
        known=count + known,
        limit=count + 100,
        computed=count,
        now=0.0,
        tenant_names=names,
    )


def test_a_tenant_that_lost_its_index_is_as_far_ahead_as_it_was():
    policy = FairQueueing(FairOptions(weights={"b": 2.0}))
    names = ["a", "b"]
    for tenant in (0, 1):
        policy.keys(arrays(names, tenant))
    policy.served(arrays(names, 0), np.array([100]))
    names[0] = "other"
    assert policy.keys(arrays(names, 0)) == [0.0]
    names[0] = "a"
    assert policy.keys(arrays(names, 0)) == [100.0]
    names[0] = "b"
    assert policy._weight[0] == 1.0
    policy.keys(arrays(names, 0))
    assert policy._weight[0] == 2.0


@pytest.mark.parametrize("names", [["b", "a"], ["b", "c"]])
def test_a_tenant_at_anothers_index_is_as_far_ahead_as_it_was(names):
    """Its own index went to another that no policy has seen, or was seen in the same call."""
    policy = FairQueueing()
    for tenant in (0, 1):
        policy.keys(arrays(["a", "b"], tenant))
    policy.served(arrays(["a", "b"], 1), np.array([100]))
    both = take(arrays(names, 0), [0, 0])
    both.tenant[1] = 1
    assert policy.keys(both).tolist() == [100.0, 0.0]
    assert policy.keys(arrays(names, 0)) == [100.0]


def test_a_tenant_at_the_index_of_one_that_was_busy_has_no_credit():
    """It starts at the system's virtual time, as any that comes: 50, when the last step began."""
    policy, names = FairQueueing(), ["a", "b"]
    both = take(arrays(names, 0), [0, 0])
    both.tenant[1] = 1
    for _ in range(6):
        policy.keys(both)
        policy.served(both, np.array([10, 10]))
    names[0] = "new"
    assert policy.keys(both).tolist() == [50.0, 60.0]


def test_debts_are_bounded_and_the_largest_stay(monkeypatch):
    monkeypatch.setattr(fair_queueing, "MOST_DEBTS", 10)
    policy = FairQueueing()
    for number in range(100):
        names = [str(number)]
        policy.keys(arrays(names, 0))
        policy.served(arrays(names, 0), np.array([1000 - number]))
        policy._now = 0.0
    assert len(policy._debts) <= 10
    assert policy._debts["0"] == 1000.0


def test_a_policy_cannot_change_the_names():
    tenants = Tenants()
    tenants.enter("a")
    assert not hasattr(tenants, "append")
    with pytest.raises(TypeError):
        tenants[0] = "b"


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("tenants", [2, 5])
def test_tenants_whose_requests_do_not_fit_together_all_come_to_their_end(
    engine, alone, tenants, caching, depth
):
    """Each in turn is the one furthest ahead and loses its pages to the others: what it computes
    again brings it no further ahead, so that at last it gets beyond where it was."""
    one = engine(
        policy=FairQueueing(),
        runner={"num_pages": 10},
        loop_depth=depth,
        enable_prefix_caching=caching,
        max_num_batched_tokens=8,
        long_prefill_threshold="auto",
    )
    for index in range(tenants):
        one.add(str(index), [index] * 24, 8, tenant=str(index))
    answers = one.run(1000)
    assert one.core.stats.preemptions > 0
    for index in range(tenants):
        assert answers[str(index)].tokens == alone([index] * 24, 8).tokens


@pytest.mark.parametrize("depth", [1, 2])
def test_a_policy_hears_once_of_a_token_that_is_computed_twice(engine, depth):
    class Accounts(FairQueueing):
        def served(self, requests, tokens):
            super().served(requests, tokens)
            for arrival, count in zip(requests.arrival.tolist(), tokens.tolist(), strict=True):
                told[arrival] += count

    told = {1: 0, 2: 0, 3: 0}
    one = engine(
        policy=Accounts(),
        runner={"num_pages": 10},
        loop_depth=depth,
        enable_prefix_caching=False,
        max_num_batched_tokens=8,
    )
    for index in range(3):
        one.add(str(index), [index] * 16, 9, tenant=str(index))
    one.run(1000)
    assert one.core.stats.preemptions > 0
    assert sum(plan.num_tokens for plan in one.runner.plans) > 3 * 24
    assert told == {1: 24, 2: 24, 3: 24}


def test_a_policy_does_not_hear_of_tokens_that_were_hit(engine):
    told = []

    class Accounts(FairQueueing):
        def served(self, requests, tokens):
            super().served(requests, tokens)
            told.append(tokens.tolist())

    one = engine(policy=Accounts())
    for name in ("cold", "warm"):
        one.add(name, [1] * 17, 1)
        one.run()
    assert told == [[17], [1]]
