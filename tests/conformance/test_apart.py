"""Clauses in a process of their own: whatever ends it, the report names the clause."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import pytest

from framework.testing.conformance import Status, Suite, apart, check
from framework.testing.conformance.apart import check_apart

POLICY = '''
from framework.contracts.scheduling_policy import SchedulingPolicy

class P(SchedulingPolicy):
    """By arrival."""

    def keys(self, requests):
        return requests.arrival.astype(float)
'''
SUITE = """
import os, signal, time
from os import _exit
from framework.testing.conformance import Suite, clause

class Odd(Suite):
    expected_failures = {"ODD-005": "it is known"}

    @clause("ODD-001", "it holds")
    def first(self): pass

    @clause("ODD-002", "it crashes")
    def second(self):
        if os.fork() == 0:  # its end of the pipe stays open
            time.sleep(60)
            _exit(0)
        signal.raise_signal(signal.SIGSEGV)

    @clause("ODD-003", "it holds behind a crash")
    def third(self): pass

    @clause("ODD-004", "it ends the process past what holds that back")
    def fourth(self): _exit(7)

    @clause("ODD-005", "it is killed")
    def fifth(self): os.kill(os.getpid(), signal.SIGKILL)

class Deaf(Suite):
    @clause("ODD-001", "it hears no alarm")
    def first(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        open("FLAG", "w").close()
        while True:
            time.sleep(3600)

class Halves(Suite):
    @clause("ODD-001", "it imports something large, and hangs in that")
    def first(self): import hangs_once

    @clause("ODD-002", "it imports the same")
    def second(self): assert __import__("hangs_once").THERE

class Dies(Suite):
    def declared(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""
PLUGIN = "scheduling_policy:p"
AD_HOC = {PLUGIN: "apart_policy:P"}


class LeavesWhenAsked(Suite):
    def declared(self):
        raise SystemExit(3)


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """A policy and suites that other processes can import."""
    (tmp_path / "apart_policy.py").write_text(POLICY)
    flag = str(tmp_path / "flag")
    (tmp_path / "apart_suites.py").write_text(SUITE.replace("FLAG", flag))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_crash_is_told_with_the_clause_and_the_others_are_run(tmp_path):
    names = [f"ODD-00{number}" for number in range(1, 6)]
    report = check_apart(PLUGIN, suite="apart_suites:Odd", ad_hoc=AD_HOC, only=names, slowness=20.0)
    found = {outcome.clause.id: outcome for outcome in report.outcomes}
    assert [found[name].status for name in names] == [
        Status.PASSED,
        Status.FAILED,
        Status.PASSED,
        Status.FAILED,
        Status.EXPECTED_FAILURE,
    ]
    place = f"{tmp_path / 'apart_suites.py'}:17"
    assert found["ODD-002"].message == f"it ends the process with SIGSEGV in {place}"
    assert found["ODD-004"].message == "it ends the process with exit code 7"
    assert found["ODD-005"].message == "it is known (it ends the process with SIGKILL)"
    assert found["ODD-002"].reproduce == (
        "reproduce: framework --plugin scheduling_policy:p=apart_policy:P plugins conform "
        "scheduling_policy:p --clause ODD-002 --suite apart_suites:Odd"
    )
    assert not report.conformant
    assert not report.problems


def test_one_that_hears_no_alarm_is_ended_and_told(tmp_path, monkeypatch):
    """The clock stands still until it hangs, then each look at it takes 100 s."""
    flag, ticks = tmp_path / "flag", itertools.count(0, 100)
    clock = SimpleNamespace(monotonic=lambda: next(ticks) if flag.exists() else 0)
    monkeypatch.setattr(apart, "time", clock)
    report = check_apart(
        PLUGIN, suite="apart_suites:Deaf", ad_hoc=AD_HOC, only=["ODD-001"], budget=100, slowness=2.0
    )
    (outcome,) = report.outcomes
    assert outcome.status is Status.FAILED
    assert outcome.message == "it did not end within 200 s, and heard no alarm"
    assert outcome.reproduce.endswith(
        "--clause ODD-001 --suite apart_suites:Deaf --budget 100 --slowness 2.0"
    )


def test_behind_a_clause_that_was_broken_off_another_process_goes_on(tmp_path):
    """Half an import would be all that the next clause finds of a module."""
    flag = str(tmp_path / "begun")
    (tmp_path / "hangs_once.py").write_text(
        "import os, signal, sys\n"
        f"first = not os.path.exists({flag!r})\n"
        f"open({flag!r}, 'w').close()\n"
        "if first:\n"
        "    sys.modules['hangs_once_part'] = sys\n"
        "    signal.raise_signal(signal.SIGALRM)  # as the clock would ring\n"
        "if 'hangs_once_part' in sys.modules:\n"
        "    raise ImportError('cannot be loaded more than once per process')\n"
        "THERE = True\n"
    )
    names = ["ODD-001", "ODD-002"]
    report = check_apart(PLUGIN, suite="apart_suites:Halves", ad_hoc=AD_HOC, only=names)
    found = [(o.status, o.message.partition(" within")[0]) for o in report.outcomes]
    assert found == [
        (Status.FAILED, f"Hanging in {tmp_path / 'hangs_once.py'}:6: it did not end"),
        (Status.PASSED, ""),
    ]


def test_an_end_outside_of_all_clauses_breaks_the_run_off():
    report = check_apart(PLUGIN, suite="apart_suites:Dies", ad_hoc=AD_HOC, only=["ALL-001"])
    assert report.problems == ("it ends the process with SIGKILL, and no clause was being run",)
    assert not report.conformant
    (outcome,) = report.outcomes
    assert outcome.status is Status.PASSED


def test_a_process_that_cannot_be_started_is_told(monkeypatch):
    monkeypatch.setattr("sys.executable", "false")
    report = check_apart(PLUGIN, ad_hoc=AD_HOC, only=["ALL-001", "ALL-002"])
    assert report.problems == ("it ends the process with exit code 1, and no clause was being run",)
    assert report.counts() == {"not run": 2}
    assert not report.conformant


def test_an_end_where_capabilities_are_asked_for_takes_nothing_with_it():
    report = check(PLUGIN, suite=LeavesWhenAsked, ad_hoc=AD_HOC, only=["ALL-001"])
    assert report.capabilities == ()
    assert report.counts() == {"passed": 1}


def test_the_command_writes_its_reports_after_a_crash(tmp_path, monkeypatch, capfd):
    from framework.cli import main

    junit, chosen = tmp_path / "junit.xml", ["--clause", "ODD-004", "--suite", "apart_suites:Odd"]
    start = ["framework", "--plugin", f"{PLUGIN}=apart_policy:P", "plugins", "conform", "p"]
    files = ["--json", "-", "--junit", str(junit)]
    monkeypatch.setattr("sys.argv", [*start, *chosen, *files])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    (row,) = json.loads(capfd.readouterr().out)["clauses"]
    assert (row["clause"], row["status"]) == ("ODD-004", "failed")
    assert "exit code 7" in junit.read_text()
