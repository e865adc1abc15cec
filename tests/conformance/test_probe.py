"""What an import does to its process is seen, and cannot be hidden by accident."""

from __future__ import annotations

import pytest

from framework.testing.conformance.probe import probe_import
from framework.testing.conformance.stopwatch import Stopwatch, delayed

CHANGES = {
    "sys.path": "import sys; sys.path.insert(0, '/nowhere')",
    "a signal handler": "import signal; signal.signal(signal.SIGUSR1, lambda *a: None)",
    "a switch that turns logging off": "import logging; logging.disable(50)",
    "the level of a logger of the core": "import logging; logging.getLogger('framework').level = 9",
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
    "the random state": "import random; random.seed(0)",
    "what is called at the end of the process": "import atexit; atexit.register(print)",
    "files that are open": "import os; os.dup2(os.open('/dev/null', os.O_RDONLY), 2)",
}
HARMLESS = (
    "import random, multiprocessing.util, socket, warnings\n"
    "open(__file__)\n"
    "warnings.filterwarnings('ignore', category=DeprecationWarning, module='p')\n"
)


def test_whatever_an_import_changes_in_the_process_is_told(tmp_path, monkeypatch):
    (tmp_path / "changes_all.py").write_text("\n".join(CHANGES.values()) + "\nP = 1\n")
    (tmp_path / "changes_none.py").write_text(HARMLESS + "P = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = probe_import("changes_all:P")
    assert set(found.changes) == set(CHANGES)
    assert probe_import("changes_none:P").changes == ()


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
