"""What an import does to its process is seen, and cannot be hidden by accident."""

from __future__ import annotations

import pytest

from framework.testing.conformance.probe import probe_import
from framework.testing.conformance.stopwatch import Stopwatch, delayed

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


def test_whatever_an_import_changes_in_the_process_is_told(tmp_path, monkeypatch):
    (tmp_path / "changes_all.py").write_text("\n".join(CHANGES.values()) + "\nP = 1\n")
    (tmp_path / "changes_none.py").write_text(HARMLESS + "P = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = probe_import("changes_all:P")
    assert set(found.changes) == set(CHANGES)
    assert found.patches == ()
    harmless = probe_import("changes_none:P")
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


def test_whatever_an_import_replaces_is_told(tmp_path, monkeypatch):
    (tmp_path / "patches_all.py").write_text("\n".join(PATCHES.values()) + "\nP = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = probe_import("patches_all:P")
    assert set(found.patches) == set(PATCHES)
    assert found.changes == ()


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        ("import json; json.dumps = lambda *a, **k: '{}'", ""),
        ("import pathlib; pathlib.Path.write_text = lambda *a, **k: 0", "exit code"),
        (
            "import framework.testing.conformance.probe_child as c, sys\n"
            "sys.modules['__main__'].dumps = lambda found: '{}'",
            "keeps from telling",
        ),
    ],
)
def test_an_import_cannot_keep_silent_about_itself(tmp_path, monkeypatch, patch, error):
    (tmp_path / "silent.py").write_text(f"{patch}\nimport gc\ngc.disable()\nP = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = probe_import("silent:P")
    assert found.changes == (() if error else ("the garbage collector",))
    assert error in found.error


def test_an_error_without_a_text_is_told(tmp_path, monkeypatch):
    (tmp_path / "textless.py").write_text(
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert probe_import("textless:P").error == "Odd, whose text fails (RuntimeError)"


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
