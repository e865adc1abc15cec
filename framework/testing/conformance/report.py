"""What a run found, as text, JSON and JUnit XML."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as ET

import framework
from framework.testing.conformance.outcomes import Outcome, Status

SKIPPED = (Status.UNDECLARED, Status.NO_DEVICE, Status.NOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """plugin: kind:name@distribution.  contract: "kind 1.0".  problems: what is wrong with the
    run itself.  stability: of the kind; the suite of a provisional one may be thin.
    unproven: what the plugin claims and no clause tries.
    slowness: by which all budgets in seconds were multiplied."""

    plugin: str
    version: str | None
    contract: str
    stability: str
    suite: str
    seed: int
    slowness: float
    capabilities: tuple[str, ...]
    unproven: tuple[str, ...]
    outcomes: Sequence[Outcome]
    problems: tuple[str, ...] = ()

    @property
    def failures(self) -> list[Outcome]:
        """Broken clauses, SHOULD among them."""
        return [o for o in self.outcomes if o.status is Status.FAILED]

    @property
    def conformant(self) -> bool:
        """No MUST failed, nothing was left out because a layer broke, and the run is in order."""
        broken = [o for o in self.failures if o.clause.required(framework.__version__)]
        return not broken and not self.problems

    def counts(self) -> dict[str, int]:
        """How often each status occurs."""
        return dict(Counter(outcome.status.value for outcome in self.outcomes))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "plugin": self.plugin,
            "version": self.version,
            "contract": self.contract,
            "stability": self.stability,
            "kit": framework.__version__,
            "suite": self.suite,
            "seed": self.seed,
            "slowness": self.slowness,
            "hardware": hardware(),
            "capabilities": list(self.capabilities),
            "unproven": list(self.unproven),
            "conformant": self.conformant,
            "counts": self.counts(),
            "problems": list(self.problems),
            "clauses": [outcome.as_dict(framework.__version__) for outcome in self.outcomes],
        }

    def text(self, *, verbose: bool = False) -> str:
        """Failures with their reproduction lines, what this machine lacks, and the counts.

        verbose: every clause.
        """
        slow = f", budgets times {self.slowness:g}" if self.slowness != 1 else ""
        lines = [
            f"{self.plugin} {self.version or ''} against {self.contract} "
            f"({self.stability}), kit {framework.__version__}, seed {self.seed}{slow}",
            f"capabilities: {', '.join(self.capabilities) or 'none'}",
        ]
        if self.unproven:
            lines.append(f"claimed, and tried by no clause: {', '.join(self.unproven)}")
        for outcome in self.outcomes:
            if outcome.status is Status.FAILED or verbose:
                lines += self._lines(outcome)
        lines += [f"problem: {problem}" for problem in self.problems]
        missing = Counter(o.message for o in self.outcomes if o.status is Status.NO_DEVICE)
        lines += [f"{count} clauses not checked here: {why}" for why, count in missing.items()]
        lines.append(", ".join(f"{count} {status}" for status, count in self.counts().items()))
        lines.append("conformant" if self.conformant else "NOT conformant")
        return "\n".join(lines)

    def _lines(self, outcome: Outcome) -> list[str]:
        level = "MUST" if outcome.clause.required(framework.__version__) else "SHOULD"
        head = f"{outcome.clause.id} {level} {outcome.status}: {outcome.clause.text}"
        told = outcome.status is not Status.PASSED and outcome.message
        lines = [head, *(f"    {line}" for line in outcome.message.splitlines() if told)]
        return [*lines, f"    {outcome.reproduce}"] if outcome.reproduce else lines

    def junit(self) -> str:
        """JUnit XML, one test case per clause."""
        suite = ET.Element(
            "testsuite",
            name=self.plugin,
            tests=str(len(self.outcomes)),
            failures=str(len(self.failures)),
            skipped=str(sum(o.status in SKIPPED for o in self.outcomes)),
        )
        for outcome in self.outcomes:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=self.plugin,
                name=f"{outcome.clause.id} {outcome.clause.text}",
                time=f"{outcome.seconds:.4f}",
            )
            if outcome.status is Status.FAILED:
                fault = ET.SubElement(case, "failure", message=_plain(outcome.message))
                fault.text = _plain(outcome.reproduce)
            elif outcome.status is not Status.PASSED:
                message = f"{outcome.status}: {outcome.message}"
                ET.SubElement(case, "skipped", message=_plain(message))
        return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _plain(text: str) -> str:
    """Without the control characters that XML 1.0 has no way to write."""
    return "".join(c for c in text if c in "\t\n" or c.isprintable())


def hardware() -> dict[str, object]:
    """Where the run took place."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
