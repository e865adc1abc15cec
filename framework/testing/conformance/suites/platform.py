"""The suite for platforms: detection, facts, start-up lines, the budget of the cache."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

from framework.contracts.kv_cache_spec import DTYPE_BYTES
from framework.contracts.platform import CacheBudget, Detection
from framework.errors import ConfigError
from framework.plugins.kinds import KINDS
from framework.testing.conformance.cases import expect, expect_raises
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.outcomes import NoDevice
from framework.testing.conformance.probe import IMPORT_BUDGET, Probe, probe_import
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.place import bridge_to

MIB = 1 << 20
TOO_MUCH = 1 << 60
"""Bytes that no machine has."""


def detect(platform: Any) -> None:
    """Look for the hardware; for the process that watches what that does."""
    platform.detect()


class PlatformSuite(Suite):
    """What is said of a ready platform is checked where it is ready, and skipped elsewhere.

    Class attributes, beside those of `Suite`:
        detection_budget: seconds that `detect` may take.
        tensor_api: whose tensors to try on its device.
        slack: by how much the budget may fall between two calls, since others use memory too.
    """

    kind = "platform"
    detection_budget: ClassVar[float] = 1.0
    tensor_api: ClassVar[str] = "torch"
    slack: ClassVar[float] = 0.3

    def watched(self) -> Probe:
        """What detection does, in a process of its own; asked once."""
        memo = self.target.memo
        if "detection" not in memo:
            memo["detection"] = self._watch()
        found: Probe = memo["detection"]
        return found

    def _watch(self) -> Probe:
        return probe_import(
            self.target.record.value,
            exercise=f"{__name__}:{detect.__name__}",
            options=dict(self.target.options),
            budget=IMPORT_BUDGET * self.slowness,
        )

    def ready(self) -> Any:
        """A new instance; NoDevice where it is not ready."""
        platform = self.new()
        found = platform.detect()
        if found.state != "ready":
            reasons = "; ".join(found.reasons)
            raise NoDevice(f"it is {found.state} here{': ' if reasons else ''}{reasons}")
        return platform

    @clause(
        "PLAT-001",
        "detection loads no heavy library, and starts nothing",
        layer=Layer.IMPORT,
        of=("detect",),
    )
    def detection_is_light(self) -> None:
        seen = self.watched()
        expect(not seen.error, f"detection fails: {seen.error}")
        expect(
            not seen.heavy,
            "detection loads heavy libraries, and may make a device context",
            expected="files, or find_spec",
            found=", ".join(seen.heavy),
        )
        started = seen.threads + seen.network + seen.changes
        expect(not started, "detection changes the process", found="; ".join(started))

    @clause("PLAT-002", "detection is quick", layer=Layer.IMPORT, of=("detect",))
    def detection_is_quick(self) -> None:
        first = [self.watched().seconds]
        seconds = self.quickest(
            lambda: first.pop() if first else self._watch().seconds, self.detection_budget
        )
        self.expect_quick(seconds, self.detection_budget, "detection is slow")

    @clause("PLAT-010", "detection finds absent, broken or ready", of=("detect",))
    def detection_has_a_state(self) -> None:
        found = self.new().detect()
        expect(isinstance(found, Detection), "no Detection", found=found)
        known = ("absent", "broken", "ready")
        expect(found.state in known, "unknown state", expected=known, found=found.state)

    @clause("PLAT-011", "detection finds the same again", of=("detect",))
    def detection_is_stable(self) -> None:
        own = self.new()
        states = [own.detect().state, own.detect().state, self.new().detect().state]
        expect(len(set(states)) == 1, "detection changes its mind", found=states)

    @clause("PLAT-012", "what is broken says why", of=("detect",))
    def broken_ones_say_why(self) -> None:
        found = self.new().detect()
        expect(isinstance(found.reasons, tuple), "reasons are no tuple", found=found.reasons)
        if found.state == "broken":
            expect(found.reasons, "it is broken and says no reason")
        for reason in found.reasons:
            expect(isinstance(reason, str) and reason.strip(), "an empty reason", found=reason)

    @clause("PLAT-020", "facts name the platform itself", of=("facts",))
    def facts_have_its_name(self) -> None:
        found, name = self.ready().facts().name, self.target.record.name
        expect(found == name, "its facts are of another platform", expected=name, found=found)

    @clause("PLAT-021", "facts name a device and a capability", of=("facts",))
    def facts_have_a_device(self) -> None:
        facts = self.ready().facts()
        good = isinstance(facts.device, str) and facts.device.strip()
        expect(good, "no device", expected='as torch writes it ("cpu")', found=facts.device)
        capability = facts.capability
        pair = isinstance(capability, tuple) and len(capability) == 2
        expect(
            capability is None or (pair and all(type(part) is int for part in capability)),
            "a capability that is none",
            expected="(major, minor) or None",
            found=capability,
        )

    @clause("PLAT-022", "facts name element types, each once", of=("facts",))
    def facts_have_types(self) -> None:
        dtypes = self.ready().facts().dtypes
        expect(isinstance(dtypes, tuple) and dtypes, "no element types", found=dtypes)
        expect(len(set(dtypes)) == len(dtypes), "an element type comes twice", found=dtypes)
        unknown = [name for name in dtypes if name not in DTYPE_BYTES]
        expect(not unknown, "unknown types", expected=", ".join(DTYPE_BYTES), found=unknown)

    @clause("PLAT-023", "facts stay", of=("facts",))
    def facts_are_stable(self) -> None:
        own = self.ready()
        first = own.facts()
        expect(own.facts() == first, "facts change", expected=first, found=own.facts())
        expect(self.new().facts() == first, "instances differ in their facts", expected=first)

    @clause(
        "PLAT-024",
        "tensors of its element types can be made on its device",
        layer=Layer.DEVICE,
        of=("facts",),
    )
    def device_is_there(self) -> None:
        facts = self.ready().facts()
        bridge = bridge_to(self.target.registry, self.tensor_api)
        values = np.array([0.0, 1.0, -2.0])
        for dtype in facts.dtypes:
            expect(dtype in bridge.dtypes(facts.device), f"there are no tensors of {dtype}")
            found = bridge.array(bridge.tensor(values, dtype, facts.device)).astype(float)
            expect(np.array_equal(found, values), f"{dtype} loses values", found=found)

    @clause("PLAT-030", "preparing gives lines for the start-up log", of=("prepare",))
    def preparing_gives_lines(self) -> None:
        lines = self.ready().prepare()
        expect(isinstance(lines, tuple), "the lines are no tuple", found=lines)
        for line in lines:
            good = isinstance(line, str) and line.strip() and "\n" not in line
            expect(good, "a line that is none", found=repr(line))

    @clause("PLAT-031", "it can be prepared again", of=("prepare",))
    def preparing_can_be_repeated(self) -> None:
        own = self.ready()
        first = own.prepare()
        expect(len(own.prepare()) == len(first), "it says something else the second time")
        self.ready().prepare()

    @clause("PLAT-040", "a budget is a number of bytes, at most those needed", of=("cache_budget",))
    def budgets_are_bounded_by_need(self) -> None:
        own = self.ready()
        for needed in (0, 1, MIB, 64 * MIB, TOO_MUCH):
            budget = own.cache_budget(needed, None)
            expect(isinstance(budget, CacheBudget), "no CacheBudget", found=budget)
            good = type(budget.bytes) is int and 0 <= budget.bytes <= needed
            expect(good, "a wrong budget", expected=f"0 to {needed} bytes", found=budget)

    @clause("PLAT-041", "a budget says how it was chosen", of=("cache_budget",))
    def budgets_have_reasons(self) -> None:
        own = self.ready()
        for requested in (None, MIB):
            for needed in (MIB // 2, 2 * MIB):
                reason = own.cache_budget(needed, requested).reason
                good = isinstance(reason, str) and reason.strip() and "\n" not in reason
                expect(good, "no reason", expected="one sentence", found=repr(reason))

    @clause("PLAT-042", "who needs more is not given less", of=("cache_budget",))
    def budgets_rise_with_need(self) -> None:
        own = self.ready()
        before, given = 0, 0
        for needed in (MIB, 16 * MIB, 1 << 28, 1 << 32, 1 << 36, 1 << 50):
            more = own.cache_budget(needed, None).bytes
            expect(
                more >= given * (1 - self.slack),
                f"for {needed} bytes it gives less than for {before}",
                expected=f"at least {given}",
                found=more,
            )
            before, given = needed, more

    @clause("PLAT-043", "what is asked for is given, and no other number", of=("cache_budget",))
    def requests_are_honoured(self) -> None:
        own = self.ready()
        for needed, requested in ((1, MIB), (TOO_MUCH, MIB), (MIB, 3 * MIB + 7)):
            found = own.cache_budget(needed, requested).bytes
            expect(found == requested, "another number", expected=requested, found=found)

    @clause("PLAT-044", "what cannot be given is a ConfigError", of=("cache_budget",))
    def too_much_is_refused(self) -> None:
        with expect_raises(ConfigError, f"asking for {TOO_MUCH} bytes"):
            self.ready().cache_budget(MIB, TOO_MUCH)

    @clause("PLAT-045", "a budget is never more than there is", of=("cache_budget",))
    def budgets_are_bounded_by_memory(self) -> None:
        own = self.ready()
        given = own.cache_budget(TOO_MUCH, None).bytes
        there = _host_bytes() if own.facts().device == "cpu" else TOO_MUCH - 1
        expect(given <= there, "more than the device has", expected=there, found=given)
        half = given // 2
        found = own.cache_budget(TOO_MUCH, half).bytes
        expect(found == half, "it would not give what it chose itself", found=found)

    @clause(
        "PLAT-046",
        "memory of the host is a number of bytes and whose limit it is, or not known",
        of=("available_memory",),
    )
    def memory_is_known_or_not(self) -> None:
        found = self.ready().available_memory()
        if found is None:
            return
        good = isinstance(found, tuple) and len(found) == 2 and type(found[0]) is int
        expect(good, "no pair of bytes and a source", expected="(bytes, source)", found=found)
        available, source = found
        there = 0 <= available <= _host_bytes()
        expect(there, "a wrong number", expected=f"0 to {_host_bytes()}", found=available)
        expect(isinstance(source, str) and source.strip(), "no source", found=repr(source))

    @clause("PLAT-050", "rankings are names, each once", of=("ranking",))
    def rankings_are_names(self) -> None:
        own = self.new()
        for name in [*(kind.name for kind in KINDS), "a_kind_to_come"]:
            ranking = own.ranking(name)
            expect(not isinstance(ranking, str), f"ranking of {name} is a string", found=ranking)
            listed = list(ranking)
            good = all(isinstance(entry, str) and entry for entry in listed)
            expect(good, f"ranking of {name} is not of names", found=listed)
            expect(len(set(listed)) == len(listed), f"{name} has a name twice", found=listed)
            expect(list(own.ranking(name)) == listed, f"ranking of {name} changes", found=listed)


def _host_bytes() -> int:
    """Memory of the machine, or more than any has where the system does not tell."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return TOO_MUCH - 1
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
