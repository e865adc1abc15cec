"""What became of a clause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from framework.testing.conformance.clauses import Clause


class Status(StrEnum):
    """undeclared: it is about a capability that the plugin has not, or has.  not_run: an
    earlier layer broke, another clause failed without which there is no answer, or only others
    were asked for."""

    PASSED = "passed"
    FAILED = "failed"
    EXPECTED_FAILURE = "expected failure"
    UNDECLARED = "skipped (undeclared)"
    NO_DEVICE = "skipped (no device)"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """message: why.  reproduce: the command that shows a failure again."""

    clause: Clause
    status: Status
    message: str = ""
    reproduce: str = ""
    seconds: float = 0.0

    def as_dict(self, release: str) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "clause": self.clause.id,
            "text": self.clause.text,
            "level": "MUST" if self.clause.required(release) else "SHOULD",
            "layer": self.clause.layer.name.lower(),
            "since": self.clause.since,
            "status": self.status.value,
            "message": self.message,
            "reproduce": self.reproduce,
            "seconds": round(self.seconds, 4),
        }


class Violation(AssertionError):
    """The plugin breaks a promise."""


class Unanswered(Exception):
    """A clause that has no answer, since what it asks about did not come to its end; the message
    names the clause that says so."""


class NoDevice(Exception):
    """A clause that needs hardware that is not here; the message says which."""
