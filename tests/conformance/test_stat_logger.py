"""One broken stat logger for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from framework.contracts.stat_logger import StatLogger
from framework.testing.conformance import Status, check
from framework.testing.conformance.suites.stat_logger import StatLoggerSuite
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)

LIVES = (*(f"STAT-01{n}" for n in (0, 2, 3, 5, 6, 7, 8, 9)), "STAT-020")


class Plain(StatLogger):
    """Keeps a line for each snapshot."""

    def __init__(self, options=None):
        super().__init__(options)
        self.lines = None

    def start(self, snapshot):
        self.lines = [snapshot().time]

    def log(self, snapshot):
        self.lines.append(snapshot.value("num_requests_running"))

    def close(self):
        self.lines = None


@breaks("STAT-001")
class NoTime(Plain):
    """Logs all the time."""

    period = 0


@breaks("STAT-010", *LIVES)
class OnlyWork(Plain):
    """Expects that something happened since it was asked last."""

    def log(self, snapshot):
        super().log(snapshot)
        assert snapshot.final or snapshot.value("prompt_tokens") > 0


@breaks("STAT-010", "STAT-012", "STAT-016", "STAT-018")
class OneThread(Plain):
    """Belongs to the thread that started it, as a connection to SQLite does."""

    def start(self, snapshot):
        super().start(snapshot)
        self.thread = threading.get_ident()

    def log(self, snapshot):
        super().log(snapshot)
        assert threading.get_ident() == self.thread


@breaks("STAT-011", *LIVES)
class NeedsTwo(Plain):
    """Rates, of which the last snapshot alone says nothing."""

    period = None

    def log(self, snapshot):
        super().log(snapshot)
        assert len(self.lines) > 2


@breaks("STAT-012")
class Divides(Plain):
    """Tokens of each request."""

    def log(self, snapshot):
        super().log(snapshot)
        ended = snapshot.value("request_success", finished_reason="length")
        assert not snapshot.final or snapshot.value("generation_tokens") / ended


@breaks("STAT-013")
class KnowsAll(Plain):
    """A table of the metrics of this release."""

    def log(self, snapshot):
        super().log(snapshot)
        assert not any(metric.name.startswith("something") for metric in snapshot.metrics)


@breaks("STAT-014", *LIVES)
class ClosesOnce(Plain):
    """Has nothing left to give back."""

    started = False

    def start(self, snapshot):
        super().start(snapshot)
        self.started = True

    def close(self):
        assert self.lines is not None or not self.started
        super().close()


@breaks("STAT-015")
class AddsLabels(Plain):
    """Says of each metric where it comes from."""

    def log(self, snapshot):
        super().log(snapshot)
        for metric in snapshot.metrics:
            metric.labels["host"] = "here"


@breaks("STAT-016", "ALL-031")
class LeavesAThread(Plain):
    """Sends in a thread that nobody ends."""

    def start(self, snapshot):
        super().start(snapshot)
        self.over = threading.Event()
        threading.Thread(target=self.over.wait, args=(60,), daemon=True).start()


@breaks("STAT-017")
class Waits(Plain):
    """For a disk that is slow."""

    def log(self, snapshot):
        super().log(snapshot)
        spend(1.0)


@breaks("ALL-030")
class IsInAHurry(Plain):
    """Its collector has to answer at once, and everybody else's hub with it."""

    def log(self, snapshot):
        socket.setdefaulttimeout(1.0)
        super().log(snapshot)


@breaks("STAT-018")
class OwnsAPort(Plain):
    """The same for each."""

    taken: ClassVar[list[bool]] = []

    def start(self, snapshot):
        if self.taken:
            raise OSError("address in use")
        self.taken.append(True)
        super().start(snapshot)

    def close(self):
        self.taken.clear()
        super().close()


@breaks("STAT-019")
class LeavesItsFile(Plain):
    """Opens it once more for each line."""

    def start(self, snapshot):
        super().start(snapshot)
        self.folder = tempfile.TemporaryDirectory()

    def log(self, snapshot):
        self.file = (Path(self.folder.name) / "lines").open("a")
        super().log(snapshot)


@breaks("STAT-020")
class KeepsItsSnapshots(Plain):
    """For a rate over all of them."""

    def start(self, snapshot):
        super().start(snapshot)
        self.seen = []

    def log(self, snapshot):
        super().log(snapshot)
        self.seen.append(snapshot)


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, StatLoggerSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(StatLoggerSuite, MUTANTS) == set()
    assert unpaired(StatLoggerSuite) == set()


def test_what_a_clause_of_a_later_layer_says_more_precisely_is_said_too():
    """Made and closed is also: closed without a start."""

    class EndsItsThread(Plain):
        """Which there is once it was started."""

        def close(self):
            self.thread.join()

    report = check(EndsItsThread, suite=timed(StatLoggerSuite), layers=IN_PROCESS)
    failed = [outcome.clause.id for outcome in report.failures]
    assert failed == ["ALL-022", "STAT-014"], report.text()
    assert all("no attribute 'thread'" in outcome.message for outcome in report.failures)
    (other,) = [o for o in report.outcomes if o.clause.id == "STAT-013"]
    assert other.status is Status.NOT_RUN


def test_a_sound_logger_conforms():
    report = check(Plain, suite=timed(StatLoggerSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("name", ["log", "json_lines", "prometheus"])
def test_the_built_in_loggers_conform(name, tmp_path):
    options = {"path": tmp_path / "stats.jsonl"} if name == "json_lines" else {}
    report = check(f"stat_logger:{name}", options=options)
    assert not report.failures, report.text()
