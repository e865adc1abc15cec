"""What an import does to its process is seen, and cannot be hidden by accident."""

from __future__ import annotations

import functools
import os

import pytest

from framework.testing.conformance.forks import ForkServer
from framework.testing.conformance.probe import probe_import
from framework.testing.conformance.stopwatch import Stopwatch, delayed

WAYS = ["interpreter", "fork"] if hasattr(os, "pidfd_open") else ["interpreter"]


@pytest.fixture(scope="module")
def server():
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture(params=WAYS)
def tried(request, server):
    """`probe_import` in a new interpreter, and in a fork: both tell the same."""
    forks = server if request.param == "fork" else None
    return functools.partial(probe_import, forks=forks)


CHANGES = {
    "sys.path": "import sys; sys.path.insert(0, '/nowhere')",
    "a signal handler": "import signal; signal.signal(signal.SIGUSR1, lambda *a: None)",
    "the switch that turns logging off": "import logging; logging.disable(50)",
    "the level of the core's logger": "import logging; logging.getLogger('framework').level = 9",
    "sys.unraisablehook": "import sys; sys.unraisablehook = print",
    "threading.excepthook": "import threading; threading.excepthook = print",
    "sys.meta_path": "import sys; sys.meta_path.reverse()",
    "the recursion limit": "import sys; sys.setrecursionlimit(7777)",
    "the garbage collector": "import gc; gc.disable()",
    "the locale": "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "the umask": "import os; os.umask(0o070)",
    "filters for all warnings": "import warnings; warnings.simplefilter('ignore')",
    "builtins": "import builtins; builtins.answer = 42",
    "the default timeout of sockets": "import socket; socket.setdefaulttimeout(3)",
    "random numbers of Python": "import random; random.seed(0)",
    "what is called at the end of the process": "import atexit; atexit.register(print)",
    "the standard files": "import os; os.dup2(os.open('/dev/null', os.O_RDONLY), 2)",
    "files that are open": "# which the standard ones are, too",
    "what numpy does about errors": "import numpy; numpy.seterr(all='raise')",
    "random numbers of numpy": "import numpy; numpy.random.seed(0)",
    "decimal numbers": "import decimal; decimal.getcontext().prec = 6",
    "limits of the process": "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (99, 99))",
}
HARMLESS = (
    "import random, multiprocessing.util, socket, warnings, http.server, unittest.mock, asyncio\n"
    "import numpy.testing, pydantic, fastapi, yaml, framework.cli, framework.engine\n"
    "from framework.contracts.scheduling_policy import SchedulingPolicy\n"
    "class Mine(SchedulingPolicy): pass\n"
    "open(__file__)\n"
    "warnings.filterwarnings('ignore', category=DeprecationWarning, module='p')\n"
)


def test_whatever_an_import_changes_in_the_process_is_told(tried, tmp_path, monkeypatch):
    (tmp_path / "changes_all.py").write_text("\n".join(CHANGES.values()) + "\nP = 1\n")
    (tmp_path / "changes_none.py").write_text(HARMLESS + "P = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = tried("changes_all:P")
    assert set(found.changes) == set(CHANGES)
    assert found.patches == ()
    harmless = tried("changes_none:P")
    assert (harmless.changes, harmless.patches) == ((), ())


PATCHES = {
    "json.dumps": "import json; json.dumps = lambda *a, **k: '{}'",
    "json.loads": "import functools; json.loads = functools.partial(json.loads, parse_float=str)",
    "pathlib.Path.exists": "import pathlib; pathlib.Path.exists = lambda self: True",
    "socket.socket": "import socket\nclass Mine(socket.socket): pass\nsocket.socket = Mine",
    "framework.contracts.base.Contract.tenant": "import framework.contracts.base as b\n"
    "b.Contract.tenant = 'mine'",
    "framework.contracts.base.Contract.Options": "b.Contract.Options = dict",
    "framework.contracts.base.Supported": "b.Supported = dict",
    "framework.contracts.stat_logger.StatLogger.close": "import framework.contracts.stat_logger "
    "as s\ndel s.StatLogger.close",
}


def test_whatever_an_import_replaces_is_told(tried, tmp_path, monkeypatch):
    (tmp_path / "patches_all.py").write_text("\n".join(PATCHES.values()) + "\nP = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = tried("patches_all:P")
    assert set(found.patches) == set(PATCHES)
    assert found.changes == ()


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ("import json; json.dumps = lambda *a, **k: '{}'", ""),
        ("import pathlib; pathlib.Path.write_text = lambda *a, **k: 0", "exit code"),
        (
            "import framework.testing.conformance.probe_child as c, sys\n"
            "sys.modules['__main__'].dumps = c.dumps = lambda found: '{}'",
            "keeps from telling",
        ),
    ],
)
def test_an_import_cannot_keep_silent_about_itself(tried, tmp_path, monkeypatch, patch, error):
    (tmp_path / "silent.py").write_text(f"{patch}\nimport gc\ngc.disable()\nP = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = tried("silent:P")
    assert found.changes == (() if error else ("the garbage collector",))
    assert error in found.error


def test_an_error_without_a_text_is_told(tried, tmp_path, monkeypatch):
    (tmp_path / "textless.py").write_text(
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tried("textless:P").error == "Odd, whose text fails (RuntimeError)"


ENDS = {
    "os._exit": ("import os; os._exit(7)", "exit code 7"),
    "abort": ("import os, sys; print('x', file=sys.stderr, flush=True); os.abort()", "SIGABRT; it"),
    "kill of its group": ("import os, signal; os.killpg(0, signal.SIGTERM)", "SIGTERM"),
}


@pytest.mark.parametrize("way", ENDS)
def test_how_an_import_ends_its_process_is_told(tried, tmp_path, monkeypatch, way):
    code, told = ENDS[way]
    (tmp_path / "ends.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = tried("ends:P")
    assert found.ended
    assert told in found.error


def test_what_an_import_leaves_ends_with_it(tried, tmp_path, monkeypatch):
    """It holds one side of a pipe, whose reader sees the end."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "stays.py").write_text(
        "import os, subprocess, sys\n"
        f"pipe = os.open({str(tmp_path / 'pipe')!r}, os.O_WRONLY)\n"
        "os.write(pipe, b'held')\n"
        "command = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "subprocess.Popen(command, pass_fds=(pipe,))\n"
        "os._exit(0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert tried("stays:P").ended
    os.set_blocking(reader, True)
    with open(reader, "rb") as pipe:
        assert pipe.read() == b"held"


@pytest.mark.skipif("fork" not in WAYS, reason="only Linux can wait for a process by its handle")
def test_a_server_that_was_ended_is_told_and_replaced(server, tmp_path, monkeypatch):
    (tmp_path / "ends_all.py").write_text("import os; os.kill(os.getppid(), 9)")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = probe_import("ends_all:P", forks=server)
    assert found.error == "the import ended the process that had started it"
    assert found.ended
    assert not probe_import("json:loads", forks=server).error


def test_time_in_which_others_had_the_processor_does_not_count():
    now, waited = [100.0], [7.0]
    watch = Stopwatch(clock=lambda: now[0], delay=lambda: waited[0])
    now[0], waited[0] = 105.0, 11.5  # half a second of work or sleep in five
    assert watch.seconds() == 0.5


@pytest.mark.parametrize("text", ["", "12", "a b c"])
def test_where_the_system_does_not_tell_all_time_counts(tmp_path, text):
    (tmp_path / "told").write_text(text)
    assert delayed(tmp_path / "told") == 0.0
    assert delayed(tmp_path / "nothing") == 0.0


def test_the_time_without_a_processor_is_the_second_number(tmp_path):
    (tmp_path / "told").write_text("5000000000 250000000 17\n")
    assert delayed(tmp_path / "told") == 0.25
