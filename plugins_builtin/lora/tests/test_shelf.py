"""Which adapters are in memory, against a runner that only keeps books."""

import pytest

from framework.contracts.lora import AdapterLimits
from framework.errors import InputError
from framework_lora.shelf import FAILED, LOADING, READY, Shelf


class Runner:
    """Loads when it is told to; `there` is what it holds."""

    def __init__(self):
        self.there = {}
        self.contents = {}

    def control(self, op, arguments):
        assert op == "adapters"
        number = arguments["id"]
        match arguments["action"]:
            case "load":
                self.there[number] = {"state": LOADING, "root": arguments["root"]}
            case "drop":
                del self.there[number]
        return self.there.get(number, {"state": "absent"})

    def finish(self, number):
        root = self.there[number]["root"]
        digest = self.contents.get(root, root).encode()
        self.there[number] |= {"state": READY, "digest": digest, "rank": 1, "num_bytes": 1}

    def fail(self, number):
        self.there[number] |= {"state": FAILED, "reason": "damaged"}


@pytest.fixture
def runner():
    return Runner()


@pytest.fixture
def shelf(runner):
    return Shelf(AdapterLimits(in_step=1, kept=2, rank=8), runner.control)


def ready(shelf, runner, number):
    kept = shelf.want(number, f"/{number}")
    runner.finish(number)
    assert shelf.find(number).state == READY
    return kept


def test_who_was_used_least_lately_makes_place(shelf, runner):
    one, two = ready(shelf, runner, 1), ready(shelf, runner, 2)
    for kept, name in ((one, "a"), (two, "b"), (one, "c")):
        shelf.use(kept, name)
        shelf.leave(kept.number, name)
    shelf.want(3, "/3")
    assert set(runner.there) == {1, 3}


def test_who_is_used_is_loading_or_is_pinned_stays(shelf, runner):
    one = ready(shelf, runner, 1)
    shelf.use(one, "a")
    assert shelf.want(2, "/2").state == LOADING
    assert shelf.want(3, "/3") is None
    assert not shelf.room()
    runner.finish(2)
    shelf.find(2)
    assert shelf.room()
    shelf.pin(2, True)
    assert not shelf.room()
    assert shelf.want(3, "/3") is None
    shelf.leave(1, "a")
    assert shelf.want(3, "/3") is not None
    assert set(runner.there) == {2, 3}
    with pytest.raises(InputError, match="no place would be left"):
        shelf.pin(3, True)


def test_a_pin_counts_wherever_its_adapter_is(shelf, runner):
    """Else all places could be pinned, and requests of other adapters would wait for ever."""
    shelf.pin(1, True)
    with pytest.raises(InputError, match="no place would be left"):
        shelf.pin(2, True)
    assert shelf.want(1, "/1").pinned
    # What requests say that were accepted before counts less than what the operator said since.
    assert not shelf.want(2, "/2", pinned=True).pinned
    shelf.pin(1, False)
    for number in (1, 2):
        runner.finish(number)
        shelf.find(number)
    shelf.want(3, "/3", pinned=True)
    shelf.want(4, "/4")
    assert set(runner.there) == {3, 4}
    shelf.unload(3)
    assert not shelf.want(3, "/3", pinned=True).pinned
    shelf.pin(3, True)  # of one that is gone
    shelf.pin(4, True)


def test_an_unloaded_one_goes_with_its_last_user(shelf, runner):
    one = ready(shelf, runner, 1)
    shelf.use(one, "a")
    shelf.unload(1)
    assert 1 in runner.there
    shelf.leave(1, "a")
    assert runner.there == {}
    shelf.unload(7)  # never loaded here
    # Requests that were accepted before get it, and it goes again with the last of them.
    for number in (1, 7):
        again = shelf.want(number, f"/{number}", pinned=True)
        for name in "bc":
            shelf.use(again, name)
        runner.finish(number)
        assert shelf.find(number).state == READY
        shelf.leave(number, "b")
        assert number in runner.there
        shelf.leave(number, "c")
        assert runner.there == {}


def test_other_weights_under_one_load_id_are_a_failure(shelf, runner):
    one = ready(shelf, runner, 1)
    shelf.forget(one)
    ready(shelf, runner, 1)
    shelf.forget(shelf.find(1))
    runner.contents["/1"] = "other weights"
    kept = shelf.want(1, "/1")
    runner.finish(1)
    assert shelf.find(1) is kept
    assert kept.state == FAILED
    assert "load it again" in kept.reason


def test_a_failure_is_told_with_its_reason(shelf, runner):
    kept = shelf.want(1, "/1")
    runner.fail(1)
    assert (shelf.find(1).state, kept.reason) == (FAILED, "damaged")
    lost = shelf.want(2, "/2")
    runner.there.clear()
    assert (shelf.find(2).state, lost.reason) == (FAILED, "the runner lost it")
