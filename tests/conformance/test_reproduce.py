"""The line that shows a failure again says all that it takes, and no secret."""

from __future__ import annotations

import sysconfig

from pydantic import BaseModel, SecretStr

from framework.contracts.scheduling_policy import SchedulingPolicy
from framework.plugins import tied
from framework.testing.conformance import check
from framework.testing.conformance.places import innermost, stack_of
from framework.testing.conformance.suites.scheduling_policy import SchedulingPolicySuite
from tests.conformance.mutants import IN_PROCESS

HERE = f"{__name__}:Refused"


class Keys(BaseModel):
    token: SecretStr
    depth: int = 1


class Refused(SchedulingPolicy):
    """Fails where it is asked about nobody."""

    Options = Keys

    def keys(self, requests):
        if len(requests) == 0:
            raise OSError(f"token {self.options.token.get_secret_value()} of depth 7")
        return requests.arrival.astype(float)


class Mine(SchedulingPolicySuite):
    slowness = 3.0


def test_a_line_for_the_shell_has_options_suite_and_budgets_and_no_secret():
    options = {"token": "hush", "depth": "7"}
    more = {"options": options, "only": ["POL-003"], "layers": IN_PROCESS}
    (outcome,) = check(Refused, suite=Mine, budget=77, **more).outcomes
    assert "token ********** of depth 7" in outcome.message
    assert outcome.reproduce == (
        f"reproduce: framework --plugin scheduling_policy:Refused={HERE} "
        "--plugin-option scheduling_policy.Refused.token=... "
        "--plugin-option scheduling_policy.Refused.depth=7 "
        "plugins conform scheduling_policy:Refused --clause POL-003 "
        f"--suite {__name__}:Mine --budget 77 --slowness 3.0"
    )


def test_a_class_that_no_other_process_can_import_is_shown_again_from_python():
    class Local(SchedulingPolicy):
        """Keys of another type."""

        def keys(self, requests):
            return requests.arrival

    report = check(Local, only=["POL-001"], layers=IN_PROCESS, seed=5, slowness=20.0)
    (outcome,) = report.outcomes
    line, _, case = outcome.reproduce.partition("   # ")
    assert line == "reproduce: check(Local, only=['POL-001'], seed=5, only_case=0)"
    assert case.startswith("requests=")


def test_the_place_that_is_told_is_outside_of_the_standard_library():
    library = sysconfig.get_path("stdlib")
    own, packaged = ("/home/me/mine.py", 3), (f"{library}/site-packages/theirs.py", 4)
    standard, frozen = (f"{library}/ctypes/__init__.py", 519), ("<frozen importlib>", 1)
    assert innermost([own, packaged, standard, frozen]) == f" in {packaged[0]}:4"
    assert innermost([packaged, own, standard]) == " in /home/me/mine.py:3"
    assert innermost([standard]) == f" in {standard[0]}:519"
    assert innermost([]) == ""


def test_the_place_that_is_told_is_outside_of_the_core():
    """An author changes nothing there."""
    core, own = (tied.__file__, 5), ("/home/me/mine.py", 3)
    waits = (f"{sysconfig.get_path('stdlib')}/subprocess.py", 7)
    assert innermost([core, own, core]) == " in /home/me/mine.py:3"
    assert innermost([core, core, waits]) == ""


def test_a_stack_of_the_fault_handler_is_read_outermost_first():
    text = (
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/a b/inner.py", line 7 in string_at\n'
        '  File "/outer.py", line 9 in <module>\n'
    )
    assert stack_of(text) == [("/outer.py", 9), ("/a b/inner.py", 7)]
    assert stack_of("") == []
