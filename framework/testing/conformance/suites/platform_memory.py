"""Clauses for the memory that a platform gives to the cache, and what it knows of the host's."""

from __future__ import annotations

import os

from framework.contracts.platform import CacheBudget
from framework.errors import ConfigError
from framework.testing.conformance.cases import expect, expect_raises
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.platform_base import PlatformBase

MIB = 1 << 20
TOO_MUCH = 1 << 60
"""Bytes that no machine has."""


class PlatformMemory(PlatformBase):
    """Of a platform that is ready."""

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


def _host_bytes() -> int:
    """Memory of the machine, or more than any has where the system does not tell."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return TOO_MUCH - 1
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
