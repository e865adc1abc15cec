"""The waiting line: order of (key, arrival), whatever comes and leaves."""

from __future__ import annotations

import random

import numpy as np
import pytest

from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.core.line import FixedLine, MovingLine
from framework.core.queue import WaitingQueue
from framework.core.request import Request, Status


class ByPriority(SchedulingPolicy):
    """Notes what it saw.  With `turn` the order is turned round."""

    def __init__(self):
        super().__init__()
        self.turn, self.seen = 1, []

    def keys(self, requests):
        self.seen.append(requests)
        return self.turn * requests.priority.astype(float)


def request(number, priority=0, prompt=1, tenant=0, arrived_at=0.0, deadline=None):
    entry = EngineInput(
        request_id=str(number),
        tokens=np.ones(prompt, np.int32),
        sampling=SamplingParams(),
        seed=0,
        max_total=prompt + 7,
        priority=priority,
        deadline=deadline,
    )
    return Request(entry, number, arrived_at, tenant)


def drained(line):
    ids = []
    while (first := line.first()) is not None:
        ids.append(int(first.id))
        line.remove(first)
    return ids


LINES = [FixedLine, MovingLine]


@pytest.mark.parametrize("make", LINES)
@pytest.mark.parametrize("count", [5, 64, 65, 200])
def test_lower_keys_first_and_among_equals_who_came_first(make, count):
    line = make(ByPriority(), [])
    requests = [request(number, number * 7 % 3) for number in range(count)]
    for each in requests:
        line.add(each, 0.0)
    line.refresh(0.0)
    assert len(line) == count
    assert drained(line) == sorted(range(count), key=lambda n: (n * 7 % 3, n))
    assert (len(line), list(line), line.first()) == (0, [], None)


@pytest.mark.parametrize("make", LINES)
def test_any_order_of_coming_and_leaving_gives_the_order_of_a_sorted_list(make):
    chance, policy = random.Random(7), ByPriority()
    line, there, number = make(policy, []), [], 0
    for _ in range(600):
        for _ in range(chance.randrange(4)):
            there.append(request(number, chance.randrange(3)))
            line.add(there[-1], 0.0)
            number += 1
        for each in chance.sample(there, min(len(there), chance.randrange(5))):
            there.remove(each)
            line.remove(each)
        if make is MovingLine and chance.random() < 0.2:
            policy.turn = -policy.turn
        line.refresh(0.0)
        assert {each.id for each in line} == {each.id for each in there}
        order = sorted(there, key=lambda r: (policy.turn * r.input.priority, r.arrival))
        for each in order[: chance.randrange(3)]:
            assert line.first() is each
            assert each.key == policy.turn * each.input.priority
            line.remove(each)
            there.remove(each)
    assert number > 700


def test_rows_of_those_who_left_are_used_again():
    """A line that is short stays small, however many pass through it."""
    line = MovingLine(ByPriority(), [])
    for number in range(5000):
        line.add(request(number), 0.0)
        line.refresh(0.0)
        if number >= 10:
            line.remove(line.first())
    assert len(line) == 10
    assert len(line._rows) < 200
    assert len(line._columns.there) < 300


@pytest.mark.parametrize("make", LINES)
def test_a_policy_sees_the_numbers_of_each_request(make):
    policy = ByPriority()
    line = make(policy, ["x", "y"])
    for number in range(70):
        line.add(request(number, -number, 1 + number, number % 2, number / 2), 0.0)
    line.refresh(40.0)
    seen, all_ = policy.seen[-1], np.arange(70)
    assert (seen.now, list(seen.tenant_names)) == (40.0, ["x", "y"])
    for name, values in (
        ("arrival", all_),
        ("priority", -all_),
        ("tenant", all_ % 2),
        ("prompt", 1 + all_),
        ("known", 1 + all_),
        ("limit", 8 + all_),
        ("computed", 0 * all_),
        ("arrived_at", all_ / 2),
    ):
        assert getattr(seen, name).tolist() == values.tolist(), name


def test_a_preempted_request_is_ahead_of_all_that_came_later_without_being_asked_for_again():
    policy = ByPriority()
    line = FixedLine(policy, [])
    requests = [request(number) for number in range(3)]
    for each in requests:
        line.add(each, 0.0)
    line.refresh(0.0)
    line.remove(requests[0])
    requests[0].preempted = 1
    line.add(requests[0], 0.0)
    line.refresh(0.0)
    assert len(policy.seen) == 1
    assert drained(line) == [0, 1, 2]


def test_both_limits_that_pass_at_one_time_end_a_request_once():
    queue = WaitingQueue(ByPriority(), [], 5.0)
    late = request(1, deadline=4.0)
    queue.add(late, 0.0)
    queue.watch(late)
    ((found, why),) = queue.overdue(9.0)
    assert found is late
    assert "deadline" in why
    assert queue.overdue(9.0) == []


def test_a_deadline_is_met_up_to_the_moment_at_which_a_request_stops_running():
    """Preempted at 4, it ran until then; what passes later finds it waiting."""
    queue = WaitingQueue(ByPriority(), [], None)
    requests = [request(number, deadline=deadline) for number, deadline in enumerate((4.0, 4.5))]
    for each in requests:
        queue.watch(each)
        each.waits_since = 4.0
    assert queue.overdue(4.0) == []
    assert [each for each, _ in queue.overdue(4.5)] == requests[1:]


def test_to_watch_one_more_costs_no_look_at_each_of_those_that_wait():
    class Watched(Request):
        __slots__, looks = (), 0

        def __getattribute__(self, name):
            Watched.looks += name == "status"
            return super().__getattribute__(name)

    queue = WaitingQueue(ByPriority(), [], 5.0)
    for number in range(2000):
        each = request(number)
        each.__class__ = Watched
        queue.watch(each)
    assert 0 < Watched.looks < 4 * 2000


@pytest.mark.parametrize("depth", [1, 2])
def test_an_engine_lives_on_when_both_limits_pass_at_one_time(engine, depth):
    one = engine(max_num_seqs=1, queue_timeout=0, loop_depth=depth)
    one.add("late", [2], deadline=0.0)
    assert one.run()["late"].reason == "error"


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_none_blocks_no_other(odd):
    queue = WaitingQueue(ByPriority(), [], None)
    requests = [request(number, deadline=deadline) for number, deadline in enumerate((odd, 4.0))]
    for each in requests:
        queue.add(each, 0.0)
        queue.watch(each)
    assert [each for each, _ in queue.overdue(5.0)] == requests[1:]


def test_ended_requests_are_not_kept_until_their_deadline():
    queue = WaitingQueue(ByPriority(), [], 3600.0)
    waits = request(0)
    queue.watch(waits)
    for number in range(1, 1000):
        each = request(number, deadline=7200.0)
        queue.watch(each)
        each.status = Status.FINISHED
    assert len(queue._deadlines) < 150
    assert [each for each, _ in queue.overdue(3601.0)] == [waits]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("make", LINES)
def test_leaving_the_line_costs_no_look_at_each_of_the_others(make, keyed):
    class Watched(Request):
        __slots__, looks = (), 0

        def __eq__(self, other):
            Watched.looks += 1
            return self is other

        __hash__ = Request.__hash__

    line = make(ByPriority(), [])
    requests = [request(number, number % 3) for number in range(400)]
    for each in requests:
        each.__class__ = Watched
        line.add(each, 0.0)
    if keyed:
        line.refresh(0.0)
    for each in requests[::-2]:
        line.remove(each)
    line.refresh(0.0)
    assert Watched.looks < 4000
    assert drained(line) == sorted(range(0, 400, 2), key=lambda n: (n % 3, n))


def test_a_policy_is_not_asked_about_those_who_left():
    policy = ByPriority()
    line = MovingLine(policy, [])
    requests = [request(number) for number in range(5)]
    for each in requests:
        line.add(each, 0.0)
    line.remove(requests[1])
    line.remove(requests[4])
    line.refresh(0.0)
    assert policy.seen[-1].arrival.tolist() == [0, 2, 3]
