"""One broken hooks plugin for each clause of the suite; a sound one passes it."""

from __future__ import annotations

import logging
from collections import Counter
from typing import ClassVar

import pytest

from framework.contracts.hooks import HookSpecs, hookimpl
from framework.testing.conformance import check
from framework.testing.conformance.suites.hooks import EVENTS, HooksSuite
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

LIVES = tuple(f"HOOK-01{n}" for n in range(8))


class Plain(HookSpecs):
    """Counts what runs and what ended; takes fewer arguments than it could."""

    def __init__(self, options=None):
        super().__init__(options)
        self.running, self.ended = set(), Counter()

    @hookimpl
    def engine_started(self):
        self.ended.clear()

    @hookimpl
    def request_added(self, request):
        self.running.add(request.request_id)

    @hookimpl
    def request_finished(self, reason, request_id):
        self.running.remove(request_id)
        self.ended[reason] += 1

    @hookimpl
    def engine_closed(self):
        assert not self.running

    def helper(self):
        """Is no hook, and is not marked."""


@breaks("HOOK-001")
class Mistyped(Plain):
    """Waits for an event that never comes."""

    @hookimpl
    def request_ended(self, request_id):
        self.running.remove(request_id)


@breaks("HOOK-002")
class Unmarked(Plain):
    """A hook without its mark."""

    def request_first_token(self, request_id):
        return


@breaks("HOOK-003", *LIVES)
class TakesMore(Plain):
    """Wants to know what it is not told."""

    @hookimpl
    def request_first_token(self, request_id, seconds):
        return


@breaks("HOOK-004")
class Wraps(Plain):
    """Around the hooks of others."""

    @hookimpl(wrapper=True)
    def request_first_token(self, request_id):
        return (yield)


@breaks("HOOK-005")
class HasNone(HookSpecs):
    """Does nothing."""


@breaks("HOOK-010", "HOOK-012", "HOOK-013", "HOOK-014", "HOOK-015", "HOOK-016", "HOOK-017")
class OneAtATime(Plain):
    """As if requests never ran beside each other."""

    @hookimpl
    def request_added(self, request):
        super().request_added(request)
        assert len(self.running) < 4


@breaks("HOOK-010", *(each for each in LIVES if each != "HOOK-011"))
class WantsATrace(Plain):
    """Takes for granted what a client may send."""

    @hookimpl
    def request_added(self, request):
        super().request_added(request)
        assert request.trace_headers["traceparent"]


@breaks("HOOK-010", *(each for each in LIVES if each != "HOOK-011"))
class CountsOnALimit(Plain):
    """Which a client may leave to the model's length."""

    @hookimpl
    def request_added(self, request):
        super().request_added(request)
        assert request.sampling.max_tokens > 0


@breaks("HOOK-010", *(each for each in LIVES if each != "HOOK-011"))
class WritesAscii(Plain):
    """Puts the name of a tenant into a header."""

    @hookimpl
    def request_added(self, request):
        super().request_added(request)
        request.tenant.encode("ascii")


@breaks("HOOK-017")
class SharesItsState(Plain):
    """As if there were one engine in a process."""

    everywhere: ClassVar[set[str]] = set()

    def __init__(self, options=None):
        super().__init__(options)
        self.running = self.everywhere


@breaks("HOOK-011")
class NeedsRequests(Plain):
    """Divides by their number."""

    @hookimpl
    def engine_closed(self):
        assert 1 / sum(self.ended.values())


@breaks("HOOK-012")
class NeedsATokenEach(Plain):
    """Takes the first token for granted."""

    @hookimpl
    def request_finished(self, request_id, reason, num_output_tokens):
        super().request_finished(reason, request_id)
        assert 1 / num_output_tokens


@breaks("HOOK-013")
class Rewrites(Plain):
    """Marks the requests that it has seen."""

    @hookimpl
    def request_added(self, request):
        super().request_added(request)
        request.extras["seen"] = b"1"


@breaks("HOOK-014")
class Answers(Plain):
    """Has an opinion."""

    @hookimpl
    def request_first_token(self, request_id):
        return request_id


@breaks("HOOK-014")
class Waits(Plain):
    """Is never awaited."""

    @hookimpl
    async def request_first_token(self, request_id):
        return


@breaks("HOOK-015")
class Slow(Plain):
    """Does its work on the spot."""

    added = 0

    @hookimpl
    def request_first_token(self, request_id):
        self.added += 1
        if self.added < 50:
            spend(1.0)


@breaks("HOOK-016")
class Hoards(Plain):
    """Keeps every id."""

    def __init__(self, options=None):
        super().__init__(options)
        self.ids = []

    @hookimpl
    def request_first_token(self, request_id):
        self.ids.append(str(request_id) + " has come")


@breaks("ALL-031")
class LeavesAThread(Plain):
    """Sends what it has to say from a thread, which nobody ends."""

    @hookimpl
    def engine_started(self):
        leave_a_thread()


@breaks("ALL-030")
class Silences(Plain):
    """Finds the log too loud."""

    @hookimpl
    def engine_started(self):
        logging.disable(logging.WARNING)


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, HooksSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(HooksSuite, MUTANTS) == set()
    assert unpaired(HooksSuite) == set()


def test_a_sound_plugin_conforms():
    report = check(Plain, suite=timed(HooksSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()


def test_the_suite_knows_every_event():
    specified = [name for name, value in vars(HookSpecs).items() if callable(value)]
    assert set(EVENTS) == {name for name in specified if not name.startswith("_")}
