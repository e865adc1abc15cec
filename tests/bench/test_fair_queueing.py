"""Weighted fair queueing: the policy alone, and in the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from framework.bench.cost import StepCost
from framework.bench.measure import latencies
from framework.bench.simulate import SimulationConfig, simulate
from framework.bench.trace import Trace
from framework.contracts.scheduling_policy import RequestArrays
from framework.core.fair_queueing import FairOptions, FairQueueing
from framework.core.policies import FirstComeFirstServed
from framework.errors import PluginError
from framework.plugins.registry import PluginRegistry

NAMES = ("a", "b", "c")


def arrays(tenant, arrival, known, computed=0):
    n = len(tenant)
    return RequestArrays(
        arrival=np.array(arrival, np.int64),
        arrived_at=np.zeros(n),
        priority=np.zeros(n, np.int64),
        tenant=np.array([NAMES.index(t) for t in tenant], np.int64),
        prompt=np.array(known, np.int64),
        known=np.array(known, np.int64),
        limit=np.array(known, np.int64) + 100,
        computed=np.zeros(n, np.int64) + computed,
        now=0.0,
        tenant_names=NAMES,
    )


def serve(policy, tenant, tokens):
    """One step that computes `tokens` of one request of each of the tenants."""
    requests = arrays(tenant, range(len(tenant)), tokens)
    policy.keys(requests)
    policy.served(requests, np.array(tokens, np.int64))


def test_requests_of_one_tenant_are_spaced_by_the_cost_of_those_before_them():
    keys = FairQueueing().keys(arrays("abaa", [4, 2, 1, 3], [10, 7, 20, 5]))
    assert keys.tolist() == [25, 0, 0, 20]


def test_a_running_request_costs_what_is_not_computed_yet():
    keys = FairQueueing().keys(arrays("aaa", [1, 2, 3], [100, 50, 9], computed=[99, 20, 0]))
    assert keys.tolist() == [0, 1, 31]


def test_tokens_count_by_weight():
    policy = FairQueueing(FairOptions(weights={"b": 4}))
    serve(policy, "ab", [100, 100])
    assert policy.keys(arrays("ab", [1, 2], [8, 8])).tolist() == [100, 25]
    assert policy.keys(arrays("bb", [1, 2], [8, 8])).tolist() == [25, 27]


def test_who_idles_gets_no_credit():
    policy = FairQueueing()
    serve(policy, "ab", [10, 10])
    for _ in range(5):
        serve(policy, "a", [100])
    # b and c both start where a was when its last step began.
    assert policy.keys(arrays("abc", [1, 2, 3], [1, 1, 1])).tolist() == [510, 410, 410]


def test_who_is_ahead_remains_ahead_after_a_pause():
    policy = FairQueueing()
    serve(policy, "ab", [1000, 10])
    serve(policy, "b", [10])
    assert policy.keys(arrays("ab", [1, 2], [1, 1])).tolist() == [1000, 20]


def test_a_tenant_that_waits_keeps_its_place():
    policy = FairQueueing()
    waiting = arrays("b", [1], [50])
    for _ in range(3):
        policy.keys(waiting)
        serve(policy, "a", [100])
    assert policy.keys(waiting).tolist() == [0]


@pytest.mark.parametrize("weight", [1e-9, 1.0, 1e9])
def test_a_token_is_charged_however_much_was_computed_before(weight):
    """By whomever, at whatever weight: sums of floats lose what is small beside them."""
    policy = FairQueueing(FairOptions(weights={"a": 1e-9, "b": weight, "c": weight}))
    for _ in range(1000):
        serve(policy, "a", [2**20])
    serve(policy, "bc", [1, 0])
    first, second = policy.keys(arrays("bc", [1, 2], [5, 5])).tolist()
    assert first - second == pytest.approx(1 / weight)
    serve(policy, "bc", [0, 2])
    first, second = policy.keys(arrays("bc", [1, 2], [5, 5])).tolist()
    assert second - first == pytest.approx(1 / weight)


def test_who_is_ahead_remains_so_when_time_is_counted_anew():
    policy = FairQueueing()
    serve(policy, "ab", [3 * 2**20, 2**20])
    serve(policy, "b", [2**20])  # a has nothing to do
    serve(policy, "b", [1])
    first, second = policy.keys(arrays("ab", [1, 2], [5, 5])).tolist()
    assert first - second == 2**20 - 1


def test_tenants_may_come_later_than_the_policy():
    policy = FairQueueing(FairOptions(weights={"c": 2}))
    early = arrays("a", [1], [10])
    object.__setattr__(early, "tenant_names", ("a",))
    policy.keys(early)
    policy.served(early, np.array([10]))
    assert policy.keys(arrays("cc", [2, 3], [10, 10])).tolist() == [0, 5]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("weights", {"a": 0}, "greater than or equal to 0.000000001"),
        ("weights", {"a": 1e308}, "less than or equal to"),
        ("weights", '{"a": "x"}', "weights.a"),
        ("weights", "{", "weights"),
        ("weight", {}, "did you mean 'weights'"),
        ("default_weight", -1, "greater than or equal to 0.000000001"),
    ],
)
def test_wrong_weights_are_an_error(key, value, words):
    registry = PluginRegistry(options={"scheduling_policy": {"fair": {key: value}}})
    with pytest.raises(PluginError, match=words):
        registry.create("scheduling_policy", "fair")


def test_weights_may_be_text():
    registry = PluginRegistry(options={"scheduling_policy": {"fair": {"weights": '{"b": 4}'}}})
    policy = registry.create("scheduling_policy", "fair")
    assert policy.keys(arrays("bb", [1, 2], [8, 8])).tolist() == [0, 2]


# In the simulator

CONFIG = SimulationConfig(cost=StepCost(), max_num_seqs=32, num_pages=4096)


def trace(*parts):
    """parts: (tenant, arrivals).  Prompts of 128 tokens, outputs of 16 to 64."""
    rng = np.random.default_rng(0)
    arrival = np.concatenate([np.array(times, float) for _, times in parts])
    order = np.argsort(arrival, kind="stable")
    tenant = np.repeat(np.arange(len(parts)), [len(times) for _, times in parts])
    n = len(arrival)
    return Trace(
        arrival=arrival[order],
        prompt=np.full(n, 128),
        output=rng.integers(16, 65, n),
        tenant=tenant[order],
        priority=np.zeros(n, np.int64),
        tenant_names=tuple(name for name, _ in parts),
    )


def ttft_p99(made, policy, tenant="small"):
    found = latencies(made, simulate(made, policy, CONFIG))
    mine = made.tenant == made.tenant_names.index(tenant)
    return np.percentile(found.ttft[mine], 99)


def test_a_flood_of_one_tenant_does_not_drown_a_small_one():
    """Under fair queueing the small tenant's TTFT stays within a small factor of what it is
    alone; in order of arrival it waits for the whole flood."""
    small = ("small", np.arange(60) / 6)
    flood = ("big", np.full(600, 1.0))
    alone = ttft_p99(trace(small), FirstComeFirstServed())
    fair = ttft_p99(trace(small, flood), FairQueueing())
    unfair = ttft_p99(trace(small, flood), FirstComeFirstServed())
    assert fair < 6 * alone
    assert unfair > 60 * alone


def test_throughput_under_saturation_follows_the_weights():
    """With weights 1:3 and both tenants always waiting, tokens come out at 1:3."""
    made = trace(("a", np.zeros(300)), ("b", np.zeros(300)))
    policy = FairQueueing(FairOptions(weights={"a": 1, "b": 3}))
    timeline = simulate(made, policy, CONFIG)
    tenant = made.tenant[timeline.request]
    both = timeline.time < timeline.time[tenant == 1].max() * 0.9
    tokens = np.bincount(tenant[both])
    assert tokens[1] / tokens[0] == pytest.approx(3, rel=0.1)
