"""The command line as a process: its streams, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from framework.engine.interrupt import kept_interrupt
from framework.testing.fake_model import MODEL, fake_plugins

PLUGINS = [p for key, value in fake_plugins().items() for p in ("--plugin", f"{key}={value}")]
ECHO = ["--model", MODEL, "--set", "executor=echo"]
FRAMEWORK = f"{sys.executable} -m framework"


def shell(line, *words, **env):
    """Run a line of sh in which "$@" are `words`."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )


def own(text):
    """Lines of stderr but those that tell of imports."""
    return [line for line in text.splitlines() if not line.startswith("framework: importing")]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["--version", "plugins list", "plugins list --json"])
def test_output_that_cannot_be_written_is_one_message(command):
    ended = shell(f"{FRAMEWORK} {command} >/dev/full")
    assert ended.returncode == 1
    assert own(ended.stderr) == ["error: the output cannot be written: No space left on device"]


@pytest.mark.parametrize(
    ("words", "closed", "out"),
    [
        (["chat"], "<&-", ""),
        (["generate", "hello"], ">&-", ""),
        (["generate", "hello"], "2>&-", "hello\n"),
    ],
)
def test_a_closed_stream_does_no_harm(words, closed, out):
    ended = shell(f'{FRAMEWORK} "$@" {closed}', *PLUGINS, *words, *ECHO)
    assert (ended.returncode, own(ended.stderr), ended.stdout) == (0, [], out)


def test_a_character_that_the_terminal_lacks_is_written_as_an_escape():
    words = [*PLUGINS, "generate", "\u00e9!", *ECHO]
    ended = shell(f'{FRAMEWORK} "$@"', *words, PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stdout) == (0, "\\xe9!\n")


class Swallows:
    """Sends Ctrl-C while it is collected, where Python drops the exception."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_ctrl_c_that_python_drops_is_raised_at_the_end():
    reached = []

    def load():
        with kept_interrupt():
            Swallows()
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        load()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_ctrl_c_during_the_start_acts_at_once():
    reached = []

    def load():
        with kept_interrupt():
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        load()
    assert not reached


def test_other_threads_and_handlers_are_left_alone():
    seen = []

    def inside():
        with kept_interrupt():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
