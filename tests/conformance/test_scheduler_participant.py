"""One broken participant for each clause of its suite; sound ones of several families pass it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import ClassVar

import msgspec
import numpy as np
import pytest

from framework.contracts.participant import (
    READY,
    External,
    Hold,
    Refuse,
    SchedulerParticipant,
    Wait,
)
from framework.contracts.step import LateInputs
from framework.errors import InputError, UnsupportedError
from framework.testing.conformance import check
from framework.testing.conformance.suites.scheduler_participant import SchedulerParticipantSuite
from framework.testing.harness import Harness
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    leave_a_thread,
    mutants_of,
    uncovered,
    unpaired,
)

RUNS = ("PART-010", "PART-011", "PART-014", *(f"PART-02{number}" for number in range(6)))
ALL_RUNS = (*RUNS, "PART-026")


class Plain(SchedulerParticipant):
    """Does nothing, for those that name it."""


@breaks(
    "PART-001",
    "PART-002",
    "PART-003",
    "PART-004",
    "PART-005",
    "PART-006",
    "PART-007",
    "PART-008",
    *ALL_RUNS,
)
class SaysYes(Plain):
    """Not one of the three answers."""

    def admit(self, request):
        return True


@breaks("PART-002", *ALL_RUNS)
class AsksOnce(Plain):
    """Takes a request for another the second time."""

    def __init__(self, options=None):
        super().__init__(options)
        self.seen = set()

    def admit(self, request):
        if request.id in self.seen:
            return Wait("again", lambda: False)
        self.seen.add(request.id)
        return READY

    def release(self, request):
        self.seen.discard(request.id)


@breaks("PART-003", "PART-004", *ALL_RUNS)
class Halves(Plain):
    """Half a token."""

    def limit(self, request, start, tokens):
        return tokens / 2


@breaks("PART-004")
class UsesUp(Plain):
    """Spends its budget when asked, and not when the step is planned."""

    def __init__(self, options=None):
        super().__init__(options)
        self.left = 40

    def limit(self, request, start, tokens):
        self.left -= tokens
        return max(min(tokens, self.left), 1)


@breaks("PART-005", *ALL_RUNS)
class OffersLess(Plain):
    """What lies beyond the hit, also if that is behind it."""

    def external_prefix(self, request, local_hit):
        return External(min(4 - local_hit, 0))


@breaks("PART-006", *ALL_RUNS)
class NeedsARun(Plain):
    """Cleans up what `limit` prepared."""

    def __init__(self, options=None):
        super().__init__(options)
        self.started = {}

    def limit(self, request, start, tokens):
        self.started[request.id] = tokens
        return tokens

    def release(self, request):
        if request.input.seed < 100 and request.id in ("r4", "r7", "r11"):
            self.started.pop(request.id)
        else:
            self.started.pop(request.id, None)


@breaks("PART-007", "PART-023", "PART-022", "PART-024", "PART-026", "PART-014")
class KeepsNames(Plain):
    """A request that left cannot come back."""

    def __init__(self, options=None):
        super().__init__(options)
        self.gone = set()

    def admit(self, request):
        return Refuse("gone") if request.id in self.gone else READY

    def release(self, request):
        self.gone.add(request.id)


class Limit(SchedulerParticipant):
    """At most so many at a time."""

    most = 3

    def __init__(self, options=None):
        super().__init__(options)
        self.inside = set()

    def admit(self, request):
        if request.id in self.inside or len(self.inside) < self.most:
            self.inside.add(request.id)
            return READY
        return Wait("full", lambda: len(self.inside) < self.most)

    def release(self, request):
        self.inside.discard(request.id)


@breaks("PART-008", *RUNS)
class Shares(Limit):
    """One count for all instances."""

    everybody: ClassVar[set[str]] = set()
    most = 30

    def __init__(self, options=None):
        super().__init__(options)
        self.inside = self.everybody


@breaks("PART-009", *ALL_RUNS)
class NeedsArguments(Plain):
    """Attends all, and reads what only some bring."""

    attends_all: ClassVar[bool] = True

    def admit(self, request):
        assert request.input.extras["NeedsArguments"]
        return READY


@breaks("PART-010", *ALL_RUNS)
class TouchesOthers(Plain):
    """Works on all rows of a step."""

    def absorb(self, result, requests):
        result.token_ids[:] = 7


@breaks("PART-011")
class TrustsArguments(Plain):
    """Takes what a client passes for what it should pass."""

    def admit(self, request):
        wanted = msgspec.msgpack.decode(request.input.extras["TrustsArguments"])
        return READY if wanted.get("most", 1) else Refuse("nothing is wanted")


@breaks("PART-011")
class TrustsArgumentsLater(Plain):
    """Lets a request in, and looks at its arguments when it runs."""

    def limit(self, request, start, tokens):
        wanted = msgspec.msgpack.decode(request.input.extras["TrustsArgumentsLater"])
        return min(tokens, dict(wanted).get("most", tokens))


class Reader:
    """The half in the front end of `ReadsBadly`."""

    serves = frozenset()

    def read(self, sampling):
        given = (sampling.extra_args or {}).get("ReadsBadly", {})
        return str(given.get("most", 1)).encode()


@breaks("PART-011")
class ReadsBadly(Plain):
    """Its half in the front end does not look."""

    def front_half(self, context):
        return Reader()


@breaks("PART-012")
class ClosesOnce(Plain):
    """Ends what `start` has begun, as often as it is told to."""

    def start(self, context):
        self.things = [context.vocab_size]

    def close(self):
        if hasattr(self, "things"):
            self.things.pop()


# Its half in the front end is never started, and closed.
@breaks(
    "PART-012",
    *(f"PART-00{number}" for number in range(1, 9)),
    "PART-011",
    *ALL_RUNS,
)
class ClosesWhatIsNotThere(Plain):
    """Has nothing to end unless it was started."""

    def start(self, context):
        self.things = [context.vocab_size]

    def close(self):
        self.things.clear()


@breaks("PART-020", *ALL_RUNS)
class AttachesText(Plain):
    """Bytes are expected."""

    def attach(self, plan, requests):
        return "text"


@breaks("PART-020", *ALL_RUNS)
class AllowsNothing(Plain):
    """Its grammar has come to a dead end."""

    def late(self, plan, requests):
        rows = np.array(list(requests), np.int32)
        mask = np.zeros((len(rows), -(-1000 // 32)), np.uint32)
        return LateInputs(bitmask=mask, bitmask_rows=rows)


@breaks("PART-021", *ALL_RUNS)
class TakesTurns(Plain):
    """Expects each step's result before the next step."""

    attached = 0

    def attach(self, plan, requests):
        if self.attached and plan.num_rows:
            raise RuntimeError("the result of the step before is missing")
        self.attached += any(slot in requests for slot in plan.slots.tolist())

    def absorb(self, result, requests):
        self.attached = 0


@breaks("PART-022", *ALL_RUNS)
class ForNewcomers(Plain):
    """Does not know what to do with a request that comes back."""

    def admit(self, request):
        if request.preempted:
            raise RuntimeError("it has been here")
        return READY


@breaks("PART-023", "PART-011", "PART-014")
class Leaks(Limit):
    """Counts arrivals and forgets to count who leaves, save for a few."""

    most = 12

    def release(self, request):
        if request.id in ("r0", "r1", "r2", "r3"):
            self.inside.discard(request.id)


@breaks("PART-024")
class Marks(Plain):
    """Notes something in the request."""

    def absorb(self, result, requests):
        for request in requests.values():
            request.waits_since = 0.0


@breaks("PART-025")
class Slow(Plain):
    """Works in the engine's thread."""

    def attach(self, plan, requests):
        spend(1.0)


@breaks("PART-026", *RUNS)
class HoldsForEver(Plain):
    """Waits for something that does not come."""

    def release(self, request):
        return Hold(lambda: False)


@breaks("ALL-031")
class LeavesAThread(Plain):
    """Asks others in a thread, which nobody ends."""

    def admit(self, request):
        leave_a_thread()
        return super().admit(request)


@breaks("PART-014")
class NeverForgets(Plain):
    """Counts by the name of the request."""

    def __init__(self, options=None):
        super().__init__(options)
        self.asked = {}

    def admit(self, request):
        self.asked[request.id] = self.asked.get(request.id, 0) + 1
        return READY


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, SchedulerParticipantSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(SchedulerParticipantSuite, MUTANTS) == set()
    assert unpaired(SchedulerParticipantSuite) == set()


# Sound ones


class Connector(SchedulerParticipant):
    """Tokens from elsewhere: at once, or later, all of them or fewer; a load that is cut off
    holds its pages for a while."""

    attends_all: ClassVar[bool] = True

    def __init__(self, options=None):
        super().__init__(options)
        self.loads = {}

    def external_prefix(self, request, local_hit):
        self.loads.pop(request.id, None)
        there = 10 - local_hit
        if there <= 0:
            return External(0)
        if request.arrival % 3 == 0:
            return External(there)
        load = self.loads[request.id] = [3]

        def arrived():
            load[0] -= 1
            if load[0] > 0:
                return None
            del self.loads[request.id]
            return there // (1 + request.arrival % 2)

        return External(there, arrived)

    def release(self, request):
        load = self.loads.pop(request.id, None)
        return None if load is None else Hold(lambda: self.over(load))

    @staticmethod
    def over(load):
        load[0] -= 1
        return load[0] <= 0


class Grammar(SchedulerParticipant):
    """Compiles for some looks, then masks each row; refuses one in eight."""

    def __init__(self, options=None):
        super().__init__(options)
        self.compiled = {}

    def admit(self, request):
        if request.arrival % 8 == 7:
            return Refuse("the grammar does not compile")
        left = self.compiled.setdefault(request.arrival % 3, [4])
        if left[0] <= 0:
            return READY

        def look():
            left[0] -= 1
            return left[0] <= 0

        return Wait("compiling", look)

    def late(self, plan, requests):
        rows = np.array(list(requests), np.int32)
        mask = np.full((len(rows), -(-1000 // 32)), 2**32 - 1, np.uint32)
        return LateInputs(bitmask=mask, bitmask_rows=rows)


class InThreads(SchedulerParticipant):
    """Ready after some looks, sooner at one time than at another."""

    looks: ClassVar[Iterator[int]] = itertools.cycle([0, 3, 1])

    def __init__(self, options=None):
        super().__init__(options)
        self.left = {}

    def admit(self, request):
        left = self.left.setdefault(request.id, [next(self.looks)])
        if not left[0]:
            return READY

        def look():
            left[0] = max(left[0] - 1, 0)
            return not left[0]

        return Wait("a thread works", look)

    def release(self, request):
        self.left.pop(request.id, None)


class Ranges(SchedulerParticipant):
    """Looks at its arguments, and says no in each way that there is."""

    def admit(self, request):
        wanted = msgspec.msgpack.decode(request.input.extras["Ranges"])
        if not isinstance(wanted, dict):
            raise InputError("no mapping", parameter="extra_args")
        if wanted:
            return Refuse("there is nothing to say")
        return READY

    def external_prefix(self, request, local_hit):
        if request.arrival % 5 == 4:
            raise UnsupportedError("not today")
        return External(0)


class Sevens(SchedulerParticipant):
    """Allows two tokens, and expects one of them."""

    def late(self, plan, requests):
        rows = np.array(list(requests), np.int32)
        mask = np.zeros((len(rows), -(-1000 // 32)), np.uint32)
        mask[:, 0] = 1 << 7
        mask[:, -1] = 1 << 5
        return LateInputs(bitmask=mask, bitmask_rows=rows)

    def absorb(self, result, requests):
        for row in requests:
            first, last = result.token_offsets[row : row + 2]
            assert set(result.token_ids[first:last].tolist()) <= {7, 31 * 32 + 5}


class Budget(SchedulerParticipant):
    """At most 5 tokens a step for all that it attends, settled when the step is planned."""

    def __init__(self, options=None):
        super().__init__(options)
        self.noted = {}

    def limit(self, request, start, tokens):
        others = sum(count for name, count in self.noted.items() if name != request.id)
        self.noted[request.id] = max(min(tokens, 5 - others), 0)
        return self.noted[request.id]

    def attach(self, plan, requests):
        self.noted.clear()
        return b"settled"

    def release(self, request):
        self.noted.pop(request.id, None)


@pytest.mark.parametrize(
    "participant", [Plain, Limit, Connector, Grammar, InThreads, Ranges, Sevens, Budget]
)
def test_sound_participants_conform(participant):
    report = check(participant, suite=timed(SchedulerParticipantSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()


def test_the_runs_are_under_the_pressure_that_their_clauses_speak_of(monkeypatch):
    stats, reasons = [], set()
    empty = Harness.check_empty

    def look(one):
        empty(one)
        stats.append(one.core.stats.preemptions)
        reasons.update(answer.reason for answer in one.answers.values())

    monkeypatch.setattr(Harness, "check_empty", look)
    suite = SchedulerParticipantSuite
    report = check(Plain, suite=suite, only=("PART-022",), layers=IN_PROCESS)
    assert report.conformant
    assert reasons == {"length", "abort"}
    assert sum(count > 0 for count in stats) >= 2
