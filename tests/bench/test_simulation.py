"""The simulator: exact times on a virtual clock, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest

from framework.bench.cost import StepCost
from framework.bench.distributions import MOST, Lengths
from framework.bench.measure import Objective, figures, latencies
from framework.bench.null_runner import NullRunner
from framework.bench.simulate import SimulationConfig, simulate
from framework.bench.trace import Arrivals, Flood, Trace
from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.policies import FirstComeFirstServed
from framework.errors import ConfigError

SECOND = StepCost(base_us=1e6, token_us=0, row_us=0, context_us=0)


def trace(*rows):
    """rows: (arrival, prompt, output, tenant)."""
    arrival, prompt, output, tenant = zip(*rows, strict=True)
    names = tuple(dict.fromkeys(tenant))
    return Trace(
        arrival=np.array(arrival, float),
        prompt=np.array(prompt),
        output=np.array(output),
        tenant=np.array([names.index(name) for name in tenant]),
        priority=np.zeros(len(rows), np.int64),
        tenant_names=names,
    )


def play(made, policy=None, **config):
    config = SimulationConfig(**{"cost": SECOND, "num_pages": 64, "page_size": 4, **config})
    return simulate(made, policy or FirstComeFirstServed(), config)


@pytest.mark.parametrize("depth", [1, 2])
def test_tokens_come_when_steps_end(depth):
    """A request that comes during a step joins the next one; the clock jumps over idle time."""
    made = trace((0, 4, 3, "a"), (0.5, 4, 1, "a"), (10, 4, 2, "b"))
    timeline = play(made, loop_depth=depth)
    by_request = [timeline.time[timeline.request == i].tolist() for i in range(3)]
    # At depth 2 the second step has been planned already when request 1 comes.
    assert by_request == [[1, 2, 3], [2 if depth == 1 else 3], [11, 12]]
    assert timeline.end == 12
    assert timeline.steps == 5


def test_a_step_costs_what_the_model_says():
    cost = StepCost.parse("base_us=1000, token_us=100, row_us=10, context_us=1")
    timeline = play(trace((0, 8, 2, "a"), (0, 4, 1, "a")), cost=cost)
    first = 1000 + 12 * 100 + 2 * 10 + 12
    second = 1000 + 1 * 100 + 10 + 9
    assert timeline.time == pytest.approx([first * 1e-6] * 2 + [(first + second) * 1e-6])


def test_latencies_are_measured_from_the_arrival():
    made = trace((0.25, 4, 3, "a"), (0.5, 4, 1, "b"))
    timeline = play(made)
    found = latencies(made, timeline)
    assert found.ttft.tolist() == [1.0, 1.75]
    assert found.e2e.tolist() == [3.0, 1.75]
    assert found.mean_itl[0] == 1.0
    assert np.isnan(found.mean_itl[1])
    assert (found.gaps.tolist(), found.gap_request.tolist()) == ([1.0, 1.0], [0, 0])


def test_goodput_counts_requests_that_met_both_objectives():
    made = trace((0, 4, 3, "a"), (0.5, 4, 3, "b"), (0.5, 4, 1, "b"))
    timeline = play(made)
    found = latencies(made, timeline)

    def attained(**objective):
        return [f.attained for f in figures(made, timeline, found, Objective(**objective)).values()]

    assert attained() == [1, 1, 1]
    assert attained(ttft=1.2) == [pytest.approx(1 / 3), 1, 0]
    assert attained(itl=0.9) == [pytest.approx(1 / 3), 0, 0.5]
    assert attained(ttft=1.2, itl=0.9) == [0, 0, 0]
    everyone = figures(made, timeline, found, Objective(ttft=1.2))[None]
    assert everyone.goodput == pytest.approx(1 / 4)
    assert everyone.throughput == pytest.approx(3 / 4)
    assert everyone.tokens_per_second == pytest.approx(7 / 4)


def test_preemptions_are_counted_for_their_request():
    """Two requests outgrow a cache of 5 pages of 4 tokens: the later one is preempted."""
    made = trace((0, 8, 8, "a"), (0, 8, 8, "b"))
    timeline = play(made, num_pages=6)
    assert timeline.preemptions[0] == 0
    assert timeline.preemptions[1] >= 1
    assert np.bincount(timeline.request).tolist() == [8, 8]


def test_a_policy_decides_who_comes_first():
    class LastComeFirstServed(SchedulingPolicy):
        keys_are_fixed = True

        def keys(self, requests):
            return -requests.arrival.astype(float)

    timeline = play(trace(*[(0, 4, 1, "a")] * 3), LastComeFirstServed(), max_num_seqs=1)
    assert timeline.request.tolist() == [2, 1, 0]


def test_the_policy_sees_the_virtual_clock_and_true_arrivals():
    seen = []

    class Watch(FirstComeFirstServed):
        def keys(self, requests):
            seen.append((requests.now, requests.arrived_at.tolist()))
            return super().keys(requests)

    play(trace((0.25, 4, 3, "a"), (0.5, 4, 1, "b")), Watch())
    first, last = seen[0], seen[-1]
    assert first == (0.25, [0.25])
    assert last[1] == [0.5]
    assert last[0] in (0.5, 1.25)  # asked when it comes, or with the step that follows


def test_a_request_beyond_the_cache_is_an_error():
    with pytest.raises(ConfigError, match="does not fit"):
        play(trace((0, 300, 3, "a")))


# Made-up arrivals


def arrivals(**changes):
    lengths = {"": Lengths.parse("uniform:10:20", "")}
    usual = {"rate": 5.0, "num_requests": 2000, "shares": {"a": 1, "b": 3}}
    return Arrivals(**{**usual, "prompt": lengths, "output": lengths, **changes})


def test_a_poisson_process_has_its_rate_and_shares():
    made = arrivals().make(0)
    gaps = np.diff(made.arrival)
    assert gaps.mean() == pytest.approx(1 / 5, rel=0.1)
    assert gaps.std() == pytest.approx(1 / 5, rel=0.1)
    assert np.bincount(made.tenant)[1] / 2000 == pytest.approx(0.75, abs=0.05)
    assert (made.prompt.min(), made.prompt.max()) == (10, 20)


def test_burstiness_spreads_the_gaps_and_keeps_the_rate():
    gaps = np.diff(arrivals(burstiness=0.25).make(0).arrival)
    assert gaps.mean() == pytest.approx(1 / 5, rel=0.15)
    assert gaps.std() == pytest.approx(2 / 5, rel=0.15)


def test_the_same_seed_makes_the_same_trace():
    one, same, other = (arrivals().make(seed) for seed in (1, 1, 2))
    assert np.array_equal(one.arrival, same.arrival)
    assert np.array_equal(one.output, same.output)
    assert not np.array_equal(one.arrival, other.arrival)


def test_a_flood_comes_all_at_once_beside_the_others():
    flood = Flood(tenant="c", count=7, at=1.0)
    made = arrivals(num_requests=10, floods=(flood,), rate=float("inf")).make(0)
    assert made.tenant_names == ("a", "b", "c")
    assert made.arrival.tolist() == [0.0] * 10 + [1.0] * 7
    assert (made.tenant[10:] == 2).all()


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("7", 7),
        ("fixed:7", 7),
        ("uniform:1:9", 5),
        ("normal:50:5", 50),
        ("lognormal:100:0.5", 100 * np.exp(0.125)),
        ("exponential:100", 100),
    ],
)
def test_distributions_have_their_mean(text, mean):
    drawn = Lengths.parse(text, "--prompt-len").draw(np.random.default_rng(0), 20_000)
    assert drawn.mean() == pytest.approx(mean, rel=0.05)


def test_lengths_stay_within_bounds():
    rng = np.random.default_rng(0)
    assert Lengths.parse("normal:1:100", "").draw(rng, 1000).min() == 1
    assert Lengths.parse("lognormal:1000000:9", "").draw(rng, 1000).max() == MOST


def test_steps_that_equal_the_one_before_are_told_with_its_arrays():
    """Of tens of thousands of steps most are such: they are not counted out anew."""
    seen = []

    class Noting(NullRunner):
        def finish(self, ticket, late):
            seen.append(super().finish(ticket, late))
            return seen[-1]

    runner = Noting(num_pages=64, page_tokens=64, clock=None)
    config = CoreConfig(max_model_len=60, num_pages=64, enable_prefix_caching=False)
    core = EngineCore(runner, runner.info(), config, policy=FirstComeFirstServed())
    for name in "ab":
        core.add(
            EngineInput(
                request_id=name,
                tokens=np.zeros(4, np.int32),
                sampling=SamplingParams(max_tokens=None),
                seed=0,
                max_total=40,
            )
        )
    while core.has_work():
        core.step()
    assert [len(result.token_ids) for result in seen] == [2] * 36
    for name in ("token_offsets", "token_ids"):
        assert len({id(getattr(result, name)) for result in seen}) <= 4
