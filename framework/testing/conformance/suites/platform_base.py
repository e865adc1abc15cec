"""What the clauses for platforms share: one that is ready, watched and prepared apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from framework.testing.conformance.outcomes import NoDevice
from framework.testing.conformance.probe import Probe
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.place import bridge_to, keeping_defaults


def detect(platform: Any) -> None:
    """Look for the hardware; for the process that watches what that does."""
    platform.detect()


class Preparation(NamedTuple):
    """lines: what `prepare` answered.  before, after: defaults of the process around it."""

    lines: Any
    before: Mapping[str, object]
    after: Mapping[str, object]


class PlatformBase(Suite):
    """What is said of a ready platform is checked where it is ready, and skipped elsewhere.

    Class attributes, beside those of `Suite`:
        detection_budget: seconds that `detect` may take.
        tensor_api: whose tensors to try on its device.
        slack: by how much the budget may fall between two calls, since others use memory too.
    """

    kind = "platform"
    ordinary = ("facts_are_stable", "preparing_can_be_repeated")
    may_set = ("threads of",)
    detection_budget: ClassVar[float] = 1.0
    tensor_api: ClassVar[str] = "torch"
    slack: ClassVar[float] = 0.3

    def watched(self) -> Probe:
        """What detection does, in a process of its own; asked once."""
        memo = self.target.memo
        if "detection" not in memo:
            memo["detection"] = self.trial(detect)
        found: Probe = memo["detection"]
        return found

    def ready(self) -> Any:
        """A new instance; NoDevice where it is not ready."""
        platform = self.new()
        found = platform.detect()
        if found.state != "ready":
            reasons = "; ".join(found.reasons)
            raise NoDevice(f"it is {found.state} here{': ' if reasons else ''}{reasons}")
        return platform

    def prepare(self, platform: Any, **defaults: object) -> Preparation:
        """Prepare it among these defaults of the process, which are then put back as they were."""
        try:
            bridge = bridge_to(self.target.registry, self.tensor_api)
        except NoDevice:  # what it says can be checked all the same
            return Preparation(platform.prepare(), {}, {})
        with keeping_defaults(bridge):
            bridge.restore(defaults)
            before = bridge.defaults()
            return Preparation(platform.prepare(), before, bridge.defaults())
