"""One broken plugin for each clause that holds for all kinds."""

from __future__ import annotations

import asyncio
import csv
import decimal
import gc
import itertools
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from pydantic import BaseModel, Field

from framework.contracts.hooks import HookSpecs, hookimpl
from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import (
    Layer,
    NoDevice,
    Status,
    Suite,
    check,
    clause,
    clauses_of,
    common,
    imported,
)
from framework.testing.conformance.process import read
from framework.testing.conformance.suites.place import shared_rows
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    assert_fails,
    breaks,
    leave_a_thread,
    mutants_of,
    uncovered,
)

GOOD = '''
from framework.contracts.scheduling_policy import SchedulingPolicy

class P(SchedulingPolicy):
    """By arrival."""

    def keys(self, requests):
        return requests.arrival.astype(float)
'''
MANIFEST = """schema = 1
[[plugin]]
kind = "scheduling_policy"
name = "p"
contract = "{contract}"
"""
COUNTER = itertools.count()
STATIC = (Layer.STATIC,)
IN_TWO = (Layer.STATIC, Layer.IMPORT)


class StrictSuite(timed(Suite)):
    load_budget = 0.01


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A distribution with the policy `p` as a folder on sys.path."""
    made = []

    def put(code=GOOD, manifest=MANIFEST, requires="framework>=0.1", value="{}:P", name=None):
        package = f"conform_{next(COUNTER)}"
        name = name or f"dist-{package}"
        site = tmp_path / package
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text(code)
        if manifest:
            text = manifest.format(contract=">=1.0,<2")
            (site / package / "framework-plugin.toml").write_text(text)
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
        )
        entry = value.format(package)
        (info / "entry_points.txt").write_text(f"[framework.scheduling_policies]\np = {entry}\n")
        monkeypatch.syspath_prepend(str(site))
        made.append(package)
        return f"scheduling_policy:p@{name}"

    yield put
    for package in made:
        sys.modules.pop(package, None)


def test_a_good_plugin_passes_every_layer(install):
    report = check(install(), suite=timed(Suite))
    assert report.conformant
    assert not report.failures, report.text()
    assert report.counts() == {"passed": len(clauses_of(Suite))}


STATIC_FAULTS = {
    "ALL-001": {"value": "{}.P"},
    "ALL-003": {"manifest": ""},
    "ALL-004": {"manifest": MANIFEST.replace("{contract}", ">=2.0")},
    "ALL-005": {"requires": ""},
}


@pytest.mark.parametrize("clause", STATIC_FAULTS)
def test_static_mutants_are_caught(install, clause):
    report = check(install(**STATIC_FAULTS[clause]), suite=Suite, layers=STATIC)
    # Of an entry point that cannot be read no facts can be found, either.
    assert_fails(report, clause, also=("ALL-003",) if clause == "ALL-001" else ())


def test_an_upper_end_is_caught(install):
    report = check(install(requires="framework>=0.1,<0.2"), suite=Suite, layers=STATIC)
    assert_fails(report, "ALL-005")
    assert "framework<0.2" in report.failures[0].message


def test_a_broken_manifest_is_caught(install):
    report = check(install(manifest="schema = 1\n[[plugin"), suite=Suite, layers=STATIC)
    assert_fails(report, "ALL-004")  # and not that there is none


@pytest.mark.parametrize(
    ("told", "in_the_class"), [("rank = 3", "rank = 5"), ('before = ["a"]', 'before = ("b",)')]
)
def test_a_manifest_that_tells_of_another_class_is_caught(install, told, in_the_class):
    code = GOOD.replace("    def keys", f"    {in_the_class}\n\n    def keys")
    layers = (Layer.STATIC, Layer.CONSTRUCT)
    report = check(install(code, MANIFEST + told + "\n"), suite=Suite, layers=layers)
    assert_fails(report, "ALL-028")
    assert f"{told.split()[0]} = " in report.failures[0].message
    same = code.replace(in_the_class, told)
    report = check(install(same, MANIFEST + told + "\n", name="same"), suite=Suite, layers=layers)
    assert {failed.clause.id for failed in report.failures} == {"ALL-002"}  # two are installed


def test_two_claims_are_caught(install):
    install()
    second = install(name="another")
    report = check(second, suite=Suite, layers=STATIC)
    assert_fails(report, "ALL-002")
    assert "another" in report.failures[0].message


HEAVY = "import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
IMPORT_FAULTS = {
    "ALL-010": "raise RuntimeError('no')\n",
    "ALL-011": "import time; time.sleep(0.05)\n",
    "ALL-012": HEAVY,
    "ALL-013": "import socket\ntry:\n    socket.getaddrinfo('localhost', 80)\nexcept OSError:\n"
    "    pass\n",
    "ALL-014": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True)"
    ".start()\n",
    "ALL-015": "import os; os.environ['CONFORM_MUTANT'] = '1'\n",
    "ALL-016": "import framework.core.policies as p, framework.contracts.base as b\n"
    "b.Query.newer_than = lambda self, version: {}\n",
    "ALL-017": "print('hello')\n",
}


@pytest.mark.parametrize("clause", IMPORT_FAULTS)
def test_import_mutants_are_caught(install, clause):
    suite = StrictSuite if clause == "ALL-011" else timed(Suite)
    report = check(install(IMPORT_FAULTS[clause] + GOOD), suite=suite, layers=IN_TWO)
    assert_fails(report, clause)


def test_an_import_that_ends_the_process_is_told(install):
    report = check(install("import os; os._exit(3)\n"), suite=Suite, layers=IN_TWO)
    assert_fails(report, "ALL-010")
    assert "ended the process with exit code 3" in report.failures[0].message


def test_an_import_that_hangs_is_told(install, monkeypatch, tmp_path):
    monkeypatch.setattr(imported, "IMPORT_BUDGET", 1.5)
    tries = tmp_path / "tries"
    code = f"open({str(tries)!r}, 'a').write('1')\nimport time; time.sleep(3600)\n"
    report = check(install(code), suite=timed(Suite), layers=IN_TWO)
    assert_fails(report, "ALL-010")
    assert "did not end within 1.5 s" in report.failures[0].message
    assert_told_once(report)
    assert not tries.exists() or tries.read_text() == "1"


def test_an_import_that_outlasts_its_clause_is_tried_once(install, monkeypatch):
    tries = []

    def probe(value, **more):
        tries.append(value)
        signal.raise_signal(signal.SIGALRM)  # as the clock would ring

    monkeypatch.setattr(imported, "probe_import", probe)
    report = check(install(), suite=Suite, layers=IN_TWO, budget=7.0, slowness=1.0)
    assert_fails(report, "ALL-010")
    assert "did not end within 7 s" in report.failures[0].message
    assert_told_once(report)
    assert len(tries) == 1


def test_what_a_failed_import_did_before_is_told_too(install):
    report = check(install("import socket\nsocket.create_connection(('::1', 80))\n"), suite=Suite)
    assert [outcome.clause.id for outcome in report.failures] == ["ALL-010", "ALL-013"]


def assert_told_once(report):
    """Whoever asks what an import did that did not end gets no answer, and no "passed"."""
    others = [o for o in report.outcomes if "ALL-010" < o.clause.id < "ALL-020"]
    assert len(others) == 7
    assert {(o.status, o.message) for o in others} == {(Status.NOT_RUN, imported.NO_END)}


class Good(SchedulingPolicy):
    """By arrival."""

    def keys(self, requests):
        return requests.arrival.astype(float)


@breaks("ALL-021")
class TakesMore(Good):
    """By arrival."""

    def keys(self, requests, more):
        return requests.arrival.astype(float)


class TakesLess(HookSpecs):
    """A hook that wants to know only that a request came."""

    @hookimpl
    def request_added(self):
        pass


class OnAnotherMachine(Suite):
    @clause("ODD-001", "it works on the device")
    def device(self):
        raise NoDevice("there is no device; plug one in")

    @clause("ODD-002", "it is quick on the device")
    def quick(self):
        raise NoDevice("there is no device; plug one in")


def test_what_was_not_checked_for_want_of_a_device_is_said_with_the_mend():
    text = check(Good, suite=OnAnotherMachine, layers=IN_PROCESS).text()
    assert "2 clauses not checked here: there is no device; plug one in\n" in text
    assert "2 skipped (no device)" in text


def test_a_hook_may_take_less_than_its_specification_gives():
    report = check(TakesLess, suite=Suite, layers=(Layer.CONSTRUCT,), only=("ALL-021",))
    assert report.conformant, report.text()


@breaks("ALL-022")
class CannotBeMade(Good):
    """By arrival."""

    def __init__(self, options=None):
        raise RuntimeError("no")


@breaks("ALL-023")
class SlowToMake(Good):
    """By arrival."""

    def __init__(self, options=None):
        spend(1.0)


@breaks("ALL-024")
class RaisesAtTheEnd(Good):
    """By arrival."""

    def __del__(self):
        raise RuntimeError("not yet")


class Needs(BaseModel):
    size: int = Field(description="how many")


@breaks("ALL-025", "ALL-022")
class NeedsAnOption(Good):
    """By arrival."""

    Options = Needs


@breaks("ALL-026")
class Undescribed(Good):
    pass


class Unspoken(BaseModel):
    size: int = 1


@breaks("ALL-027")
class UndescribedOption(Good):
    """By arrival."""

    Options = Unspoken


@breaks("ALL-030")
class SetsTheEnvironment(Good):
    """By arrival."""

    def __init__(self, options=None):
        os.environ["KMP_BLOCKTIME"] = "0"


@breaks("ALL-030")
class SeedsAllRandomNumbers(Good):
    """By arrival."""

    def __init__(self, options=None):
        random.seed(0)


@breaks("ALL-031")
class FlushesInAThread(Good):
    """By arrival."""

    def close(self):
        leave_a_thread()


@breaks("ALL-032")
class Talks(Good):
    """By arrival."""

    def close(self):
        print("closed")


class DrawsLots(Good):
    """By arrival."""

    def __init__(self, options=None):
        self.name = random.random()


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_construction_mutants_are_caught(mutant):
    assert_caught(mutant, Suite)


def test_a_thread_of_a_constructor_is_caught():
    class StartsAThread(Good):
        """By arrival."""

        def __init__(self, options=None):
            self.stop = threading.Event()
            threading.Thread(target=self.stop.wait, daemon=True).start()

        def close(self):
            self.stop.set()

    report = check(StartsAThread, suite=timed(Suite))
    assert_fails(report, "ALL-023")


def test_a_class_that_is_none_is_caught(install):
    code = GOOD.replace("def keys", "def key")
    report = check(install(code), suite=Suite)
    assert_fails(report, "ALL-020")
    others = [o for o in report.outcomes if "ALL-020" < o.clause.id < "ALL-030"]
    assert {(o.status, o.message) for o in others} == {(Status.NOT_RUN, common.NO_CLASS)}


def test_every_common_clause_has_a_mutant():
    others = {*STATIC_FAULTS, *IMPORT_FAULTS, "ALL-002", "ALL-020", "ALL-028"}
    assert uncovered(Suite, MUTANTS) == others


def test_a_library_may_keep_a_thread_from_its_first_use_on():
    class UsesALibrary(Good):
        """By arrival."""

        def close(self):
            if not over:
                over.append(threading.Event())
                threading.Thread(target=over[0].wait, daemon=True).start()

    over = []
    report = check(UsesALibrary, suite=timed(Suite), layers=IN_PROCESS)
    try:
        assert not report.failures, report.text()
        assert over
    finally:
        over[0].set()


def test_random_numbers_may_be_drawn():
    report = check(DrawsLots, suite=timed(Suite), layers=IN_PROCESS)
    assert not report.failures, report.text()


class OwnLogger(logging.Logger):
    """Of a plugin."""


def repr_of(value, **options):
    return repr(value)


CHANGES = {
    "the environment": lambda: os.environ.pop("PATH", None),
    "the working directory": lambda: os.chdir("/"),
    "the umask": lambda: os.umask(0o123),
    "the locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8"),
    "a signal handler": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "sys.excepthook": lambda: setattr(sys, "excepthook", print),
    "the recursion limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 1),
    "the garbage collector": gc.disable,
    "handlers of the root logger": lambda: logging.getLogger().addHandler(logging.NullHandler()),
    "the level of the root logger": lambda: logging.getLogger().setLevel(7),
    "the switch that turns logging off": lambda: logging.disable(logging.INFO),
    "filters for all warnings": lambda: warnings.simplefilter("ignore"),
    "the default timeout of sockets": lambda: socket.setdefaulttimeout(3.0),
    "random numbers of numpy": lambda: np.random.seed(0),
    "what numpy does about errors": lambda: np.seterr(all="raise"),
    "what numpy calls for errors": lambda: np.seterrcall(print),
    "how numpy prints": lambda: np.set_printoptions(precision=3),
    "sys.argv": lambda: sys.argv.append("--more"),
    "sys.displayhook": lambda: setattr(sys, "displayhook", print),
    "threading.excepthook": lambda: setattr(threading, "excepthook", print),
    "the longest number in a text": lambda: sys.set_int_max_str_digits(0),
    "the longest field of a CSV file": lambda: csv.field_size_limit(1 << 30),
    "thresholds of the garbage collector": lambda: gc.set_threshold(9, 9, 9),
    "callbacks of the garbage collector": lambda: gc.callbacks.append(len),
    "the class of loggers": lambda: logging.setLoggerClass(OwnLogger),
    "whether the core's logger tells the root": lambda: setattr(
        logging.getLogger("framework"), "propagate", False
    ),
    "how warnings are shown": lambda: setattr(warnings, "showwarning", print),
    "the start method of multiprocessing": lambda: multiprocessing.set_start_method(
        "forkserver", force=True
    ),
    "the policy of asyncio": lambda: asyncio.set_event_loop_policy(
        asyncio.DefaultEventLoopPolicy()
    ),
    "decimal numbers": lambda: setattr(decimal.getcontext(), "prec", 5),
    "limits of the process": lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    ),
    "signals that are held back": lambda: signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGUSR2}
    ),
    "json.dumps": lambda: setattr(json, "dumps", repr_of),
    "random numbers of torch": lambda: torch.manual_seed(0),
    "dtype of torch": lambda: torch.set_default_dtype(torch.float64),
    "threads of torch": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_process_is_named_and_undone(what, monkeypatch):
    locale_before = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C")
    monkeypatch.setenv("PATH", "here")
    change = CHANGES[what]

    class Changes(Good):
        """By arrival."""

        def close(self):
            change()

    rows = shared_rows(PluginRegistry(policy=Policy()), "torch")
    before = read(rows)
    try:
        report = check(Changes, suite=timed(Suite), layers=IN_PROCESS)
        after = read(rows)
    finally:
        locale.setlocale(locale.LC_ALL, locale_before)
    assert_fails(report, "ALL-030")
    assert f"found:    {what}: " in report.text()
    assert after == before
