"""At most so many adapters at one time, and none waits for ever."""

import random

from framework_lora.turns import Turns


def test_so_many_adapters_and_any_number_of_requests_of_them():
    turns = Turns(2)
    assert turns.take(1, "a", 1)
    assert turns.take(2, "b", 2)
    assert turns.take(1, "c", 3)
    assert not turns.take(3, "d", 4)
    wake = turns.wake(3, 4)
    assert not wake()
    turns.leave(1, "a")
    assert not wake()
    turns.leave(1, "c")
    assert wake()
    assert turns.take(3, "d", 4)
    assert turns.take(3, "d", 4)  # asked again, as pages were lacking


def test_who_waits_longest_is_next():
    turns = Turns(1)
    assert turns.take(1, "a", 1)
    assert not turns.take(2, "b", 2)
    assert not turns.take(3, "c", 3)
    turns.leave(1, "a")
    assert not turns.wake(3, 3)()
    assert not turns.take(3, "c", 3)
    assert turns.take(2, "b", 2)
    turns.leave(2, "b")
    assert turns.take(3, "c", 3)


def test_others_may_join_so_often_and_then_whoever_waits_is_next():
    turns = Turns(1, patience=3)
    assert turns.take(1, "r0", 0)
    assert not turns.take(2, "waits", 1)
    joined = [turns.take(1, f"r{n}", 1 + n) for n in range(1, 6)]
    assert joined == [True, True, True, False, False]
    for n in range(4):
        assert not turns.wake(2, 1)()
        turns.leave(1, f"r{n}")
    assert turns.wake(2, 1)()
    assert turns.take(2, "waits", 1)
    turns.leave(2, "waits")
    assert turns.take(1, "r4", 5)


def test_who_gives_up_waiting_holds_nobody_back():
    turns = Turns(1)
    assert turns.take(1, "a", 1)
    assert not turns.take(2, "b", 2)
    assert not turns.take(3, "c", 3)
    turns.leave(2, "b")
    turns.leave(1, "a")
    assert turns.take(3, "c", 3)


def test_all_come_to_an_end_whatever_the_order():
    """A random crowd: never too many adapters, and nobody is left over."""
    for seed in range(50):
        chance = random.Random(seed)
        most = chance.randint(1, 3)
        turns, running, waiting = Turns(most, patience=chance.randint(0, 4)), {}, []
        to_come = [(f"r{n}", chance.randint(1, 6), n) for n in range(60)]
        for _ in range(2000):
            asking = [one for one in waiting if turns.wake(one[1], one[2])()]
            if to_come and chance.random() < 0.5:
                asking.append(to_come.pop(0))
            for request in asking:
                name, adapter, arrival = request
                if turns.take(adapter, name, arrival):
                    running[name] = adapter
                    waiting = [one for one in waiting if one != request]
                elif request not in waiting:
                    waiting.append(request)
            assert len(set(running.values())) <= most
            if running and chance.random() < 0.7:
                name = chance.choice(sorted(running))
                turns.leave(running.pop(name), name)
            if not (to_come or waiting or running):
                break
        assert [to_come, waiting, running] == [[], [], {}], seed
