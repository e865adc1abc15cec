"""A plugin that hangs, ends the process or prints takes nothing from its report."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest

from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.contracts.stat_logger import StatLogger
from framework.testing.conformance import Status, check
from framework.testing.conformance.bounds import Hanging, bounded, unending
from tests.conformance.mutants import IN_PROCESS

NOISY = '''
import os, subprocess, sys
from framework.contracts.scheduling_policy import SchedulingPolicy
print("{ on import")

class P(SchedulingPolicy):
    """By arrival."""

    def keys(self, requests):
        print("{ in a call")
        if len(requests) == 0:
            os.write(1, b"{ below Python\\n")
            subprocess.run([sys.executable, "-c", "print('{ in a child')"])
        return requests.arrival.astype(float)
'''


class Leaves(SchedulingPolicy):
    """Ends the process where it is asked about nobody."""

    def keys(self, requests):
        if len(requests) == 0:
            os._exit(0)
        return requests.arrival.astype(float)


def time_is_up():
    """The alarm as the clock would ring it, however slow the machine is."""
    signal.raise_signal(signal.SIGALRM)


class NeverDone(StatLogger):
    """Waits for what never comes."""

    def log(self, snapshot):
        time_is_up()


def test_a_plugin_that_ends_the_process_is_told_with_the_clause():
    report = check(Leaves, layers=IN_PROCESS)
    failed = {outcome.clause.id: outcome for outcome in report.failures}
    assert set(failed) == {"POL-003"}
    assert "os._exit(0)" in failed["POL-003"].message
    assert __file__ in failed["POL-003"].message
    assert "--clause POL-003" in failed["POL-003"].reproduce


def test_a_forked_process_ends_as_ever():
    with unending():
        child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_logger_that_hangs_is_told_and_keeps_no_process():
    before = set(threading.enumerate())
    report = check(NeverDone, only=["STAT-012"], layers=IN_PROCESS, budget=3600, slowness=1.0)
    (outcome,) = report.outcomes
    assert outcome.status is Status.FAILED
    assert "did not end within 3600 s" in outcome.message
    assert "bounds.py" not in outcome.message.replace("test_bounds.py", "")
    begun = set(threading.enumerate()) - before
    assert all(thread.daemon for thread in begun)  # another would keep the process from its end


@pytest.mark.parametrize("command", ["conform", "explain"])
def test_json_is_all_that_is_printed(command, tmp_path, monkeypatch, capfd):
    from framework.cli import main

    (tmp_path / "noisy_policy.py").write_text(NOISY)
    monkeypatch.syspath_prepend(str(tmp_path))
    chosen = "scheduling_policy:noisy"
    line = {
        "conform": ["conform", chosen, "--clause", "POL-003", "--json", "-", "--budget", "60"],
        "explain": ["explain", "scheduling_policy", "--choice", "noisy", "--json"],
    }[command]
    start = ["framework", "--plugin", f"{chosen}=noisy_policy:P", "plugins"]
    monkeypatch.setattr("sys.argv", [*start, *line])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr()
    assert not ended.value.code, said.err
    assert json.loads(said.out)
    if command == "conform":
        for words in ("on import", "in a call", "below Python", "in a child"):
            assert "{ " + words in said.err


def test_an_alarm_that_is_swallowed_rings_again():
    """Python drops it in a callback of the garbage collector; a plugin may catch everything."""
    swallowed = []

    def hang():
        try:
            time_is_up()
        except Hanging as alarm:
            swallowed.append(alarm)
        _, again = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, again, again)  # the first was an hour away
        time.sleep(3600)

    with pytest.raises(Hanging), bounded(3600):
        hang()
    assert len(swallowed) == 1


def test_the_clock_rings_the_alarm():
    with pytest.raises(Hanging, match=r"within 0\.01 s"), bounded(0.01):
        time.sleep(3600)
