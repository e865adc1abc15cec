"""The suite of platforms: it catches broken ones, and finds no fault in ours."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from framework.contracts.platform import CacheBudget, Detection, DeviceFacts, Platform
from framework.errors import ConfigError
from framework.testing.conformance import Status, check
from framework.testing.conformance.suites.platform import PlatformSuite
from tests.conformance.fake_time import timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    assert_fails,
    breaks,
    leave_a_thread,
    mutants_of,
    uncovered,
    unpaired,
)
from tests.conformance.sites import put

MOST = 64 << 20


class Good(Platform):
    """The CPU, with 64 MiB for the cache."""

    def __init_subclass__(cls):
        cls.__doc__ = "Broken on purpose."

    def detect(self):
        return Detection(state="ready")

    def facts(self):
        return DeviceFacts(
            name=type(self).__name__, device="cpu", capability=None, dtypes=("float32", "bfloat16")
        )

    def prepare(self):
        return ("ready for work",)

    def cache_budget(self, needed, requested):
        if requested is not None and requested > MOST:
            raise ConfigError("too much", expected=MOST, found=requested)
        return CacheBudget(
            bytes=requested if requested is not None else min(needed, MOST), reason="64 MiB"
        )

    def ranking(self, kind):
        return ("sdpa",) if kind == "attention_backend" else ()


@breaks("PLAT-010")
class Undecided(Good):
    def detect(self):
        return Detection(state="perhaps")


@breaks("PLAT-011")
class ChangesItsMind(Good):
    asked = 0

    def detect(self):
        self.asked += 1
        return Detection(state="ready" if self.asked == 1 else "absent")


@breaks("PLAT-012")
class SaysNotWhy(Good):
    def detect(self):
        return Detection(state="broken")


@breaks("PLAT-020")
class CallsItselfCpu(Good):
    def facts(self):
        return replace(super().facts(), name="cpu")


@breaks("PLAT-021")
class HasANumberAsCapability(Good):
    def facts(self):
        return replace(super().facts(), capability=9.0)


@breaks("PLAT-022")
class ListsATypeTwice(Good):
    def facts(self):
        return replace(super().facts(), dtypes=("float32", "float32"))


@breaks("PLAT-023")
class ChangesItsFacts(Good):
    numbers = itertools.count()

    def facts(self):
        return replace(super().facts(), capability=(next(self.numbers), 0))


@breaks("PLAT-024")
class HasNoDevice(Good):
    def facts(self):
        return replace(super().facts(), device="nowhere")


@breaks("PLAT-025")
class AssumesAnother(Good):
    def assume(self, capability):
        return self  # whose facts have no capability


@breaks("PLAT-030")
class PreparesOneText(Good):
    def prepare(self):
        return ("first\nsecond",)


@breaks("PLAT-031")
class PreparesOnce(Good):
    done = False

    def prepare(self):
        if self.done:
            raise RuntimeError("prepared already")
        self.done = True
        return super().prepare()


@breaks("PLAT-032")
class MakesAllTensorsBfloat16(Good):
    def prepare(self):
        torch.set_default_dtype(torch.bfloat16)
        return super().prepare()


@breaks("PLAT-032")
class MakesAllTensorsOnADevice(Good):
    def prepare(self):
        torch.set_default_device("meta")
        return super().prepare()


@breaks("PLAT-032")
class SeedsTheProcess(Good):
    def prepare(self):
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True, warn_only=True)
        return super().prepare()


@breaks("PLAT-033")
class TakesThreadsUnsaid(Good):
    def prepare(self):
        torch.set_num_threads(5)
        return ("2 GiB of memory, 15 devices",)


@breaks("PLAT-034")
class RecordsOnce(Good):
    def graphs(self):
        class Device:
            count = 0

            def begin(self):
                self.count += 1

            def end(self):
                if self.count > 1:
                    raise RuntimeError("there is one graph already")
                return self

            def replay(self):
                return None

        return Device()


@breaks("PLAT-034")
class GivesNoGraph(Good):
    def graphs(self):
        return SimpleNamespace(begin=lambda: None, end=lambda: None)


@breaks("PLAT-040")
class GivesTooMuch(Good):
    def cache_budget(self, needed, requested):
        budget = super().cache_budget(needed, requested)
        return replace(budget, bytes=4096) if needed == 0 else budget


@breaks("PLAT-041")
class GivesNoReason(Good):
    def cache_budget(self, needed, requested):
        return replace(super().cache_budget(needed, requested), reason="")


@breaks("PLAT-042")
class GivesUp(Good):
    def cache_budget(self, needed, requested):
        budget = super().cache_budget(needed, requested)
        return replace(budget, bytes=0) if needed == 1 << 36 else budget


@breaks("PLAT-043")
class RoundsRequests(Good):
    def cache_budget(self, needed, requested):
        budget = super().cache_budget(needed, requested)
        return replace(budget, bytes=budget.bytes // 4096 * 4096) if requested else budget


@breaks("PLAT-044")
class GivesLessThanAskedFor(Good):
    def cache_budget(self, needed, requested):
        return super().cache_budget(needed, requested and min(requested, MOST))


@breaks("PLAT-045")
class GivesWhatIsNotThere(Good):
    def cache_budget(self, needed, requested):
        if requested is None:
            return CacheBudget(bytes=min(needed, 1 << 55), reason="plenty")
        return super().cache_budget(needed, requested)


@breaks("PLAT-046")
class HasMoreThanTheMachine(Good):
    def available_memory(self):
        return 1 << 55, "plenty"


@breaks("PLAT-050")
class RanksByOneName(Good):
    def ranking(self, kind):
        return "sdpa"


@breaks("ALL-030")
class SetsTheEnvironment(Good):
    def prepare(self):
        os.environ["OMP_NUM_THREADS"] = "3"
        return ("3 threads",)


@breaks("ALL-031")
class LeavesAThread(Good):
    def prepare(self):
        leave_a_thread()
        return ("watched",)


MUTANTS = mutants_of(list(globals().values()))


def test_a_good_platform_passes():
    report = check(Good, suite=PlatformSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__mutant__[1].clause)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, PlatformSuite)


DETECTS = '''
import time
from framework.contracts.platform import CacheBudget, Detection, DeviceFacts, Platform

class P(Platform):
    """The CPU."""

    def detect(self):
        {body}
        return Detection(state="ready")

    def facts(self):
        return DeviceFacts(name="p", device="cpu", capability=None, dtypes=("float32",))

    def prepare(self):
        return ()

    def cache_budget(self, needed, requested):
        return CacheBudget(bytes=min(needed, 1000), reason="1000 bytes")
'''


class StrictSuite(timed(PlatformSuite)):
    detection_budget = 0.01


@pytest.mark.parametrize(
    ("clause", "body"),
    [
        ("PLAT-001", "import sys, types; sys.modules['torch'] = types.ModuleType('torch')"),
        ("PLAT-002", "time.sleep(0.05)"),
    ],
)
def test_detection_that_is_heavy_or_slow_is_caught(monkeypatch, tmp_path, clause, body):
    name = put(monkeypatch, tmp_path, "platform", DETECTS.format(body=body))
    suite = StrictSuite if clause == "PLAT-002" else timed(PlatformSuite)
    assert_fails(check(name, suite=suite, only=("PLAT-001", "PLAT-002")), clause)


def test_what_is_not_there_is_skipped():
    class Elsewhere(Good):
        def detect(self):
            return Detection(state="absent")

    report = check(Elsewhere, suite=PlatformSuite)
    assert report.conformant, report.text()
    skipped = [o.clause.id for o in report.outcomes if o.status is Status.NO_DEVICE]
    assert len([name for name in skipped if name.startswith("PLAT-")]) == 17


def test_each_clause_has_a_mutant():
    assert uncovered(PlatformSuite, MUTANTS) == {"PLAT-001", "PLAT-002"}
    assert not unpaired(PlatformSuite)


def test_the_cpu_conforms():
    report = check("platform:cpu")
    assert report.conformant
    assert not report.failures, report.text()
