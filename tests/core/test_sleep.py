"""A core that gives its memory back for a while: no request is lost, no token is another."""

from __future__ import annotations

import pytest

from framework.contracts.participant import External, SchedulerParticipant
from framework.errors import InputError, OverloadedError, PluginError, UnsupportedError
from framework.testing.scripts import expected_tokens


def by_position(request, position, before):
    """The token at a position is its number, up to 49."""
    return position % 50


def filled(engine, **more):
    """Four requests of twelve tokens: the numbers from 9 on."""
    one = engine(max_num_batched_tokens=13, runner={"script": by_position}, **more)
    for number in range(4):
        one.add(str(number), [number] * 9, 12)
    return one


def check(one):
    answers = one.run()
    assert all(answers[str(n)].tokens == list(range(9, 21)) for n in range(4))
    one.core.check_integrity()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("when", [0, 1, 3, 6])
def test_requests_go_on_after_sleep_with_the_tokens_they_would_have_had(engine, depth, level, when):
    """The runner compares what lies in the cache with what it put there; it is empty now."""
    one = filled(engine, loop_depth=depth)
    for _ in range(when):
        one.step()
    one.core.sleep(level)
    one.core.check_integrity()
    assert (one.core.sleeping, one.runner.asleep) == (level, level)
    assert one.core.paused
    steps = one.runner.steps
    for _ in range(4):
        one.step()
    one.core.resume()
    one.step()
    assert one.runner.steps == steps, "it computed in its sleep"
    one.core.wake_up()
    assert (one.core.sleeping, one.runner.asleep) == (0, 0)
    check(one)


def test_what_was_in_flight_is_told_and_is_not_computed_again(engine):
    one = filled(engine, loop_depth=2)
    one.step()
    known = one.runner.steps
    one.core.sleep()
    assert one.runner.steps == known
    assert one.core.has_work()
    check_landed = one.core.step()
    assert check_landed.step_id == known
    one.absorb(check_landed)
    one.core.wake_up()
    check(one)


def test_the_id_of_one_whose_end_is_still_to_be_told_is_in_use(engine):
    """Its last token would be taken for the first of the new one."""
    one = engine(loop_depth=2)
    one.add("a", [1, 2], 2)
    one.step()
    one.core.sleep()
    with pytest.raises(InputError, match="'a' is in use"):
        one.add("a", [5, 5, 5], 3)
    one.core.wake_up()
    assert one.run()["a"].tokens == expected_tokens([1, 2], 2)
    one.add("a", [5, 5, 5], 3)
    assert one.run()["a"].tokens == expected_tokens([5, 5, 5], 3)


@pytest.mark.parametrize("depth", [1, 2])
def test_one_whose_pages_were_on_their_way_asks_for_them_again(engine, depth):
    """They would arrive in a cache that is no longer there."""

    class Later(SchedulerParticipant):
        asked = 0
        there = False

        def external_prefix(self, request, local_hit):
            self.asked += 1
            return External(8, self.arrived)

        def arrived(self):
            if not self.there:
                return None
            one.runner.fill("a", 0, 8)
            return 8

    later = Later()
    one = engine(participants={"later": later}, loop_depth=depth)
    one.add("a", [1] * 12, 5, extras={"later": b""})
    one.step()
    assert (one.core.stats.loading, later.asked) == (1, 1)
    one.core.sleep()
    one.core.check_integrity()
    stats = one.core.stats
    assert (stats.loading, stats.waiting, stats.pages_used) == (0, 1, 0)
    one.core.wake_up()
    for _ in range(3):
        one.step()
    assert one.runner.holds("a")
    later.there = True
    assert one.run()["a"].tokens == expected_tokens([1] * 12, 5)
    assert later.asked == 2


def test_no_prefix_from_before_is_hit(engine):
    one = engine(enable_kv_events=True)
    key, _ = one.core.pin_prefix([1] * 20)
    one.add("a", [1] * 20, 2)
    one.run()
    one.core.sleep(1)
    assert one.core.take_kv_events()[-1].kind == "cleared"
    one.core.wake_up()
    one.add("b", [1] * 20, 2)
    assert one.run()["b"].cached == 0
    one.add("c", [1] * 20, 2)
    assert one.run()["c"].cached == 16
    assert not one.core.unpin_prefix(key + 1)
    one.core.check_integrity()


def test_requests_come_and_go_while_it_sleeps(engine):
    one = filled(engine)
    one.core.sleep(2)
    one.add("late", [7] * 9, 12)
    one.core.abort(["1"])
    assert one.core.has_work()
    one.step()
    one.core.wake_up()
    answers = one.run()
    assert answers["late"].tokens == answers["0"].tokens == list(range(9, 21))
    assert answers["1"].reason == "abort"


def test_sleep_only_gets_deeper_and_waking_twice_is_nothing(engine):
    one = filled(engine)
    one.core.wake_up()
    for level, reached in ((1, 1), (2, 2), (1, 2), (2, 2)):
        one.core.sleep(level)
        assert one.core.sleeping == one.runner.asleep == reached
    one.core.wake_up()
    one.core.wake_up()
    check(one)


@pytest.mark.parametrize("level", [0, 3, -1, True, "1", None, 2.0])
def test_another_level_is_refused_and_nothing_happens(engine, level):
    one = filled(engine)
    one.step()
    with pytest.raises(InputError, match="level"):
        one.core.sleep(level)
    assert one.core.sleeping == 0
    check(one)


def test_a_runner_that_cannot_sleep_is_named_before_anything_happens(engine, monkeypatch):
    one = filled(engine)
    monkeypatch.setattr(one.core._sleeper, "_ops", frozenset(("health",)))
    with pytest.raises(UnsupportedError, match="cannot sleep"):
        one.core.sleep()
    check(one)


@pytest.mark.parametrize("op", ["sleep", "wake"])
def test_where_the_runner_fails_the_core_stays_as_it_was(engine, monkeypatch, op):
    one = filled(engine)
    one.step()
    true = one.runner.control

    def broken(name, arguments):
        if name == op:
            raise RuntimeError("no memory")
        return true(name, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(one.runner, "control", broken)
        if op == "wake":
            one.core.sleep()
        with pytest.raises(PluginError, match="no memory"):
            one.core.sleep() if op == "sleep" else one.core.wake_up()
        assert one.core.sleeping == (op == "wake")
    one.core.wake_up()
    check(one)


def test_pages_that_a_participant_still_reads_keep_it_awake(engine):
    one = filled(engine)
    one.step()
    held = one.core._state.kv.pool.allocate(1)
    reads = [True]
    one.core._state.fence.hold([lambda: not reads], held)
    with pytest.raises(OverloadedError, match="participant"):
        one.core.sleep()
    assert one.core.sleeping == 0
    reads.clear()
    one.core.sleep()
    one.core.wake_up()
    check(one)
