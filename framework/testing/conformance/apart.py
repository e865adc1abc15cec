"""`check` in a process of its own, which a plugin may crash: the report still names the clause.

The child says which clause is next before it runs it.  A child that ends without having
finished has failed that clause; another one goes on behind it.  So it does behind a clause that
was broken off, which may have left half an import, a lock or a thread.
"""

from __future__ import annotations

import os
import pickle
import selectors
import struct
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.plugins.tied import LOOK, ending, ends, order, tied
from framework.testing.conformance.catalogue import load_suite
from framework.testing.conformance.check import prepare, report_of
from framework.testing.conformance.outcomes import Outcome, Status
from framework.testing.conformance.places import innermost, stack_of
from framework.testing.conformance.report import Report
from framework.testing.conformance.run import CLAUSE_BUDGET, Run

GRACE_SECONDS = 60.0
"""Beyond its budget, for a clause that hears no alarm, and for the start of a child."""

AGAIN = ""
"""The last message of a child that leaves the rest to another one.  No clause has this name."""

LENGTH = struct.Struct(">Q")
"""Before each message."""


@dataclass(kw_only=True)
class Order:
    """What the child is to do.  suite: "module:Class".  known: outcomes of other children.
    crash: a file for the stack of a crash.  Others: as for `check`."""

    plugin: str
    suite: str | None
    options: Mapping[str, Any]
    ad_hoc: Mapping[str, str]
    only: Collection[str]
    more: Mapping[str, Any]
    crash: str
    known: dict[str, Outcome] = field(default_factory=dict)


def check_apart(
    plugin: str,
    *,
    suite: str | None = None,
    options: Mapping[str, Any] | None = None,
    ad_hoc: Mapping[str, str] | None = None,
    seed: int | None = None,
    only: Collection[str] = (),
    only_case: int | None = None,
    budget: float = CLAUSE_BUDGET,
    slowness: float | None = None,
) -> Report:
    """`check`, with the clauses run in another process; see there for arguments and errors.

    suite: "module:Class".  Raises ImportError, AttributeError and TypeError for one that is none.
    """
    more: dict[str, Any] = {
        "seed": seed,
        "only_case": only_case,
        "budget": budget,
        "slowness": slowness,
    }
    run = prepare(
        plugin,
        suite=load_suite(suite) if suite else None,
        options=options,
        ad_hoc=ad_hoc,
        only=only,
        **more,
    )
    with tempfile.TemporaryDirectory() as folder:
        order = Order(
            plugin=plugin,
            suite=suite,
            options=options or {},
            ad_hoc=ad_hoc or {},
            only=only,
            more=more,
            crash=str(Path(folder) / "crash"),
        )
        while True:
            child = _Child(order, run)
            report = child.watch()
            if report is not None:
                return report
            if child.again:
                continue
            if child.current is None:
                return _broken_off(run, order, f"{child.ending}, and no clause was being run")
            order.known[child.current] = run.ended(child.current, child.ending)


def _broken_off(run: Run, order: Order, problem: str) -> Report:
    """A report of what is known, where it makes no sense to go on."""
    wanted = [c for c in run.clauses if not order.only or c.id in order.only]
    lost = "the run broke off"
    outcomes = [
        order.known.get(c.id) or Outcome(clause=c, status=Status.NOT_RUN, message=lost)
        for c in wanted
    ]
    return report_of(run, outcomes, problems=(problem,))


class _Child:
    """One process.  current: the clause that it runs.  ending: how it ended.  again: it wants
    another one to go on."""

    def __init__(self, order: Order, run: Run) -> None:
        self._order = order
        self._limit = run.limit
        self._report: Report | None = None
        self.current: str | None = None
        self.again = False
        self.ending = ""

    def watch(self) -> Report | None:
        """Wait for its report; None if it ended without one."""
        read, write = os.pipe()
        with (
            os.fdopen(read, "rb", buffering=0) as messages,
            tied(f"{__package__}.apart_child", str(write), pass_fds=(write,)) as process,
        ):
            os.close(write)
            order(process, self._order)
            hangs = self._listen(process, messages.fileno())
        self.ending = self._told(hangs, process.returncode)
        return self._report

    def _listen(self, process: subprocess.Popen[bytes], messages: int) -> bool:
        """Take messages until the last; True if the child was silent for too long."""
        data = b""
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(messages, selectors.EVENT_READ)
            while self._report is None:
                # Whoever a plugin forked may keep the pipe open: its end is not the child's.
                ended = process.poll() is not None
                if selector.select(0 if ended else LOOK):
                    part = os.read(messages, 1 << 16)
                    if not part:
                        return not ends(process, self._limit + GRACE_SECONDS)
                    data, heard = self._take(data + part), time.monotonic()
                elif ended:
                    return False
                elif time.monotonic() - heard > self._limit + GRACE_SECONDS:
                    return True
        return False

    def _take(self, data: bytes) -> bytes:
        """Take the messages that are whole; returns the rest."""
        while len(data) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(data)[0]
            if len(data) < end:
                break
            self._hear(pickle.loads(data[LENGTH.size : end]))
            data = data[end:]
        return data

    def _hear(self, message: object) -> None:
        match message:
            case str() if message == AGAIN:
                self.again = True
            case str():
                self.current = message
            case Report():
                self._report = message
            case Outcome():
                self._order.known[message.clause.id] = message
                self.current = None

    def _told(self, hangs: bool, code: int) -> str:
        if hangs:
            return f"it did not end within {self._limit:g} s, and heard no alarm"
        return f"it ends the process with {ending(code)}{self._place()}"

    def _place(self) -> str:
        """Where it was when it crashed, as the fault handler wrote it down."""
        try:
            text = Path(self._order.crash).read_text("utf-8", "replace")
        except OSError:
            return ""
        return innermost(stack_of(text))
