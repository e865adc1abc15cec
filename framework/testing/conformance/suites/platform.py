"""The suite for platforms: detection, facts, start-up lines, the budget of the cache."""

from __future__ import annotations

import re

import numpy as np

from framework.contracts.kv_cache_spec import DTYPE_BYTES
from framework.contracts.platform import Detection
from framework.plugins.kinds import KINDS
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.suites.place import bridge_to, changes
from framework.testing.conformance.suites.platform_base import detect
from framework.testing.conformance.suites.platform_memory import PlatformMemory


class PlatformSuite(PlatformMemory):
    """See `PlatformBase` for what a subclass may set."""

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
            lambda: first.pop() if first else self.trial(detect).seconds, self.detection_budget
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

    @clause(
        "PLAT-025",
        "facts of a device that need not be there name the platform and its capability",
        of=("assume",),
    )
    def assumed_devices_have_facts(self) -> None:
        for capability in ((9, 0), (7, 5)):
            own = self.new().assume(capability)
            if own is None:
                continue
            facts, name = own.facts(), self.target.record.name
            expect(facts.name == name, "another platform", expected=name, found=facts.name)
            found = facts.capability
            expect(found == capability, "another capability", expected=capability, found=found)
            expect(facts.dtypes, "no element types", found=facts.dtypes)
            names = own.ranking("attention_backend")
            expect(len(set(names)) == len(names), "a name comes twice", found=names)

    @clause("PLAT-030", "preparing gives lines for the start-up log", of=("prepare",))
    def preparing_gives_lines(self) -> None:
        lines = self.prepare(self.ready()).lines
        expect(isinstance(lines, tuple), "the lines are no tuple", found=lines)
        for line in lines:
            good = isinstance(line, str) and line.strip() and "\n" not in line
            expect(good, "a line that is none", found=repr(line))

    @clause("PLAT-031", "it can be prepared again", of=("prepare",))
    def preparing_can_be_repeated(self) -> None:
        own = self.ready()
        first, second = (self.prepare(own).lines for _ in range(2))
        expect(len(first) == len(second), "it says something else the second time")
        self.prepare(self.ready())

    @clause(
        "PLAT-032",
        "preparing changes no default of tensors but the number of threads",
        layer=Layer.DEVICE,
        of=("prepare",),
    )
    def defaults_stay(self) -> None:
        """Whatever else computes in the process would compute in another way."""
        own = self.ready()
        bridge_to(self.target.registry, self.tensor_api)
        found = self.prepare(own)
        changed = changes(found.before, found.after, but=("threads",))
        expect(not changed, "preparing changes defaults", found="; ".join(changed))

    @clause(
        "PLAT-033",
        "a number of threads that it sets stands in a line of the start-up log",
        layer=Layer.DEVICE,
        of=("prepare",),
    )
    def threads_are_told(self) -> None:
        own = self.ready()
        bridge_to(self.target.registry, self.tensor_api)
        for there in (2, 3):
            found = self.prepare(own, threads=there)
            now = found.after.get("threads", there)
            told = any(re.search(rf"\b{now}\b", line) for line in found.lines)
            expect(now == there or told, f"it sets {now} threads unsaid", found=found.lines)

    @clause(
        "PLAT-034",
        "what records graphs records turn by turn, and each graph can be replayed",
        layer=Layer.DEVICE,
        of=("graphs",),
    )
    def graphs_are_recorded(self) -> None:
        """What they compute is for tests on the device; no tensor library is known here."""
        own = self.ready()
        self.prepare(own)
        device = own.graphs()
        if device is None:
            return
        graphs = []
        for _ in range(2):
            device.begin()
            graphs.append(device.end())
        for graph in (*graphs, *reversed(graphs)):
            expect(graph.replay() is None, "a replay gives something back", found=graph)

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
