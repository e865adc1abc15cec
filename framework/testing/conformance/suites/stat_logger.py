"""The suite of kind `stat_logger`: lives of an engine whose statistics are logged."""

from __future__ import annotations

import dataclasses
import functools
import gc
import statistics
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import ClassVar

from framework.contracts.stat_logger import Counter, Gauge, Histogram, Snapshot, StatLogger
from framework.engine.output_processor import Ended
from framework.stats.statistics import Statistics
from framework.testing.conformance import garbage
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.opened import opened, still_open
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.workload import Clock
from framework.testing.harness import Harness

LIFE = ("start", "log", "close")
FIELDS = tuple(field.name for field in dataclasses.fields(Snapshot))
ODD = 'a "label",\n with = {everything} \u4e2d \\'


class StatLoggerSuite(Suite):
    """log_budget: seconds that `log` may take, in the median.  periodic: it has a period, and
    hears more than the last snapshot."""

    kind = "stat_logger"
    ordinary = ("lives_are_logged", "the_last_statistics_are_logged")
    capabilities = ("periodic",)
    log_budget: ClassVar[float] = 0.05

    def declared(self) -> frozenset[str]:
        return frozenset(self.capabilities) if self.new().period is not None else frozenset()

    @clause("STAT-001", "period is a number of seconds above 0, or None")
    def period_is_a_time(self) -> None:
        period = self.new().period
        number = isinstance(period, int | float) and not isinstance(period, bool)
        fine = period is None or (number and 0 < period < threading.TIMEOUT_MAX)
        expect(fine, "a period that is none", expected="seconds > 0, or None", found=period)

    # Lives

    def snapshots(self, case: Case, requests: int) -> Iterator[Snapshot]:
        """Of an engine that serves so many requests, the last one final."""
        counted, one = Statistics(lambda: (), Clock()), Harness()
        counted.cache = {"page_tokens": "4", "num_pages": "64"}
        yield counted.snapshot()
        for number in range(requests):
            name = f"r{number}"
            one.add(name, [number] * int(case.rng.integers(1, 20)), 4)
            counted.added([one.core._state.requests[name].input])
            counted.stepped(one.step())
            yield counted.snapshot()
        while one.core.has_work():
            counted.stepped(one.step())
        names = [f"r{number}" for number in range(requests)]
        counted.ended(
            [Ended(request_id=name, reason="length", num_output_tokens=4) for name in names]
        )
        yield counted.snapshot(final=True)

    def life(self, case: Case, requests: int) -> Iterator[tuple[StatLogger, Snapshot]]:
        """A logger of a whole life, and what it has to log, one after the other; one without a
        period is shown the last snapshot only, as in an engine."""
        shown = list(self.snapshots(case, requests))
        made: StatLogger = self.new()
        made.start(lambda: shown[0])
        try:
            for snapshot in shown if made.period is not None else shown[-1:]:
                yield made, snapshot
        finally:
            made.close()

    def _log(self, case: Case, requests: int) -> None:
        for made, snapshot in self.life(case, requests):
            _in_a_thread(functools.partial(made.log, snapshot))

    @clause(
        "STAT-010",
        "one with a period takes the statistics of a whole life, in a thread of its own",
        needs="periodic",
        of=LIFE,
    )
    def lives_are_logged(self) -> None:
        for case in self.cases(3):
            self._log(case, int(case.rng.integers(1, 8)))

    @clause(
        "STAT-011",
        "one without a period takes the last statistics alone",
        lacks="periodic",
        of=LIFE,
    )
    def the_last_statistics_are_logged(self) -> None:
        for case in self.cases(2):
            self._log(case, 4)

    @clause("STAT-012", "an engine that served nobody is logged", of=LIFE)
    def idle_lives_are_logged(self) -> None:
        for case in self.cases(1):
            self._log(case, 0)

    @clause("STAT-013", "metrics and labels that it does not know are taken", of=("log",))
    def new_metrics_are_taken(self) -> None:
        for case in self.cases(1):
            labels = {"plugin": "hooks:mine@dist", "odd": ODD}
            more = (
                Counter(name="something_new", help=ODD, value=1e300, labels=labels),
                Gauge(name="something_small", help="", value=-1e-300, labels=labels),
                Histogram(
                    name="nothing_yet", help="", bounds=(1.0,), counts=(0, 0), sum=0, labels=labels
                ),
            )
            for made, snapshot in self.life(case, 2):
                made.log(dataclasses.replace(snapshot, metrics=(*snapshot.metrics, *more)))

    @clause(
        "STAT-014",
        "it may be closed without a start, without a log, and twice",
        of=("close",),
        explains=("ALL-022",),
    )
    def close_may_come_twice(self) -> None:
        for case in self.cases(1):
            snapshot = next(self.snapshots(case, 0))
            for started in (False, True):
                made: StatLogger = self.new()
                if started:
                    made.start(functools.partial(dataclasses.replace, snapshot))
                made.close()
                made.close()

    @clause("STAT-015", "what it is shown stays as it was", of=("log",))
    def snapshots_are_not_changed(self) -> None:
        for case in self.cases(1):
            for made, snapshot in self.life(case, 3):
                before = _frozen(snapshot)
                made.log(snapshot)
                expect(_frozen(snapshot) == before, "the snapshot was changed", expected=before)

    @clause("STAT-016", "threads that it starts end with close", of=("start", "close"))
    def threads_end(self) -> None:
        for case in self.cases(1):
            before = set(threading.enumerate())
            self._log(case, 2)
            left = [t.name for t in threading.enumerate() if t not in before and t.is_alive()]
            expect(not left, "threads go on after close", found=left)

    @clause("STAT-018", "loggers of two engines at one time do not meet", of=LIFE)
    def lives_are_apart(self) -> None:
        """In one process there may be several; the second began later, and ends first."""
        for case in self.cases(1):
            outer = self.life(case, 3)
            made, snapshot = next(outer)
            made.log(snapshot)
            self._log(case, 1)
            for made, snapshot in outer:
                made.log(snapshot)

    @clause("STAT-019", "files that it opens are closed with it", of=LIFE)
    def files_are_closed(self) -> None:
        """Of what is written in the thread that calls it; on Linux."""
        for case in self.cases(1):
            with opened() as found:
                for made, snapshot in self.life(case, 2):
                    made.log(snapshot)
            left = sorted(still_open(found.written))
            expect(not left, "files stay open after close", found=", ".join(left))

    @clause(
        "STAT-020",
        "of the snapshots that it has logged it keeps the last one, at most",
        needs="periodic",
        of=("log",),
    )
    def snapshots_are_let_go(self) -> None:
        for case in self.cases(1):
            made: StatLogger = self.new()
            first, *shown = self.snapshots(case, 6)
            made.start(functools.partial(dataclasses.replace, first))
            kept: list[weakref.ref[Snapshot]] = []
            with garbage.of_its_own():
                for snapshot in shown:
                    one = _Held(**{name: getattr(snapshot, name) for name in FIELDS})
                    kept.append(weakref.ref(one))
                    made.log(one)
                    del one
                gc.collect()
            left = sum(ref() is not None for ref in kept)
            made.close()
            expect(
                left <= 1,
                "snapshots are kept, and memory grows as long as the engine runs",
                expected="the last one, or none",
                found=f"{left} of {len(kept)}",
            )

    @clause("STAT-017", "log is quick", must=False, of=("log",))
    def logs_are_quick(self) -> None:
        for case in self.cases(1):
            seconds: list[float] = []
            for made, snapshot in self.life(case, 8):
                started = self.now()
                made.log(snapshot)
                seconds.append(self.now() - started)
            self.expect_quick(
                statistics.median(seconds),
                self.log_budget,
                "log takes long; what it has to say may be lost when the engine is closed",
            )


class _Held(Snapshot):
    """One of which can be told when it has gone."""

    __slots__ = ("__weakref__",)


def _in_a_thread(call: Callable[[], None]) -> None:
    """As the engine calls a logger; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)  # one that hangs keeps no process
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def _frozen(snapshot: Snapshot) -> list[object]:
    """The metrics as values that later changes do not reach; times are left out."""
    return [
        (type(metric).__name__, metric.name, dict(metric.labels), _value(metric))
        for metric in snapshot.metrics
    ]


def _value(metric: Counter | Gauge | Histogram) -> object:
    return metric.counts if isinstance(metric, Histogram) else metric.value
