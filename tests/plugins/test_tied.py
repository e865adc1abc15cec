"""Programs that try plugins end with whoever started them, and take along what they started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from framework.plugins import tied as tied_module
from framework.plugins.tied import ending, ends, hold_on, order, tied

PATIENCE = 120.0
STAYS = """
import itertools, os

def stay():
    "Tell a pipe who is here, then hold the interpreter's lock for good."
    pipe = os.open(os.environ["TIED_PIPE"], os.O_WRONLY)
    os.write(pipe, b"%d " % os.getpid())
    if os.fork() == 0:  # it keeps the pipe open, too
        os.read(os.pipe()[0], 1)
    os.write(pipe, b"here.")
    all(itertools.repeat(1))
"""
POLICY = """
from framework.contracts.scheduling_policy import SchedulingPolicy

class P(SchedulingPolicy):
    def keys(self, requests):
        return requests.arrival.astype(float)
"""
SUITE = """
import stays
from framework.testing.conformance import Suite, clause

class Staying(Suite):
    @clause("ODD-001", "it stays")
    def first(self): stays.stay()
"""
CONFORM = "plugins", "conform", "p"
WAYS = {
    "import, conform": ("import stays; stays.stay()", CONFORM),
    "clause": (POLICY, (*CONFORM, "--clause", "ODD-001", "--suite", "suite_that_stays:Staying")),
    "import, doctor": ("import stays; stays.stay()", ("plugins", "doctor", "--budget", "600")),
}

OTHERS = "*@framework-plugin-*"
"""The doctor need not try these."""


@pytest.fixture
def pipe(tmp_path, monkeypatch):
    """Reads what is written to TIED_PIPE: all there is now, and b"" when all writers are gone."""
    name = tmp_path / "pipe"
    os.mkfifo(name)
    monkeypatch.setenv("TIED_PIPE", str(name))
    reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    seen = []

    def read():
        assert select.select([reader], [], [], PATIENCE)[0], f"nothing after {seen}"
        seen.append(os.read(reader, 1 << 16))
        return seen[-1]

    yield read
    os.close(reader)
    if seen and seen[-1]:  # nobody ended it: that is a failure, and burns a processor
        with contextlib.suppress(ProcessLookupError, ValueError):
            group = os.getpgid(int(seen[0].split()[0]))
            if group != os.getpgrp():
                os.killpg(group, signal.SIGKILL)


@pytest.mark.parametrize("way", WAYS)
def test_it_ends_with_a_parent_that_is_killed(way, pipe, tmp_path):
    plugin, arguments = WAYS[way]
    for name, text in {"stays": STAYS, "policy_p": plugin, "suite_that_stays": SUITE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    parent = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "framework",
            "--plugin",
            "scheduling_policy:p=policy_p:P",
            *arguments,
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "FRAMEWORK_PLUGINS_DENY": OTHERS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    said = pipe()
    while b"here." not in said:
        said += pipe()
    assert parent.poll() is None
    parent.kill()
    parent.wait()
    assert pipe() == b""


def test_what_it_left_behind_ends_with_the_block(pipe, tmp_path):
    (tmp_path / "leaves.py").write_text(
        "import os\nfrom framework.plugins.tied import orders\nassert orders() == [1, 2]\n"
        "pipe = os.open(os.environ['TIED_PIPE'], os.O_WRONLY)\nos.write(pipe, b'here.')\n"
        "if os.fork() == 0: os.read(os.pipe()[0], 1)\nos._exit(3)\n"
    )
    with tied("leaves", path=[str(tmp_path), *sys.path]) as process:
        order(process, [1, 2])
        assert ends(process, PATIENCE)
        assert pipe() == b"here."
    assert pipe() == b""
    assert process.returncode == 3


def test_where_the_kernel_sends_no_signal_a_thread_looks(monkeypatch):
    """The same, in a process that nothing must kill: this one."""
    ended = threading.Event()
    read, write = os.pipe()
    stdin = os.dup(0)
    os.dup2(read, 0)

    def unavailable(lifeline):
        raise OSError("no such signal")

    monkeypatch.setattr(tied_module, "_by_signal", unavailable)
    monkeypatch.setattr(os, "killpg", lambda group, number: ended.set())
    try:
        hold_on()
        assert os.read(0, 1) == b""
    finally:
        os.dup2(stdin, 0)
    assert not ended.is_set()
    os.close(write)
    assert ended.wait(PATIENCE)
    os.close(read)
    os.close(stdin)


def test_ends_are_told_by_name():
    assert [ending(3), ending(-signal.SIGSEGV), ending(-40)] == [
        "exit code 3",
        "SIGSEGV",
        "signal 40",
    ]
