"""Reads a configuration key by key, and collects why it cannot be built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from framework.contracts.base import Rejected, Rejection
from framework_torch.models.families import Family

LARGEST = 2**31 - 1
CORRECT = "correct the model's config.json"
OTHER = "let another definition serve it"


class Reader:
    """Typed keys; a wrong one is noted and a harmless value stands in for it, so that all
    reasons are known at once.

    There are two sorts: what this decoder does not know but another definition may, and what is
    wrong whoever reads it.  One of the second sort makes the whole answer final.
    """

    def __init__(self, family: Family, config: Mapping[str, Any]) -> None:
        self.family = family
        self.config = config
        self.strange: list[Rejection] = []
        self.faults: list[Rejection] = []

    def get(self, key: str, default: Any = None) -> Any:
        return self.config.get(key, self.family.defaults.get(key, default))

    def reject(self, key: str, found: object, needed: object, remedy: str) -> None:
        """Another definition may serve this."""
        self.strange.append(_rejection(key, found, needed, remedy))

    def fault(self, key: str, found: object, needed: object, remedy: str = CORRECT) -> None:
        """Nobody can serve this."""
        self.faults.append(_rejection(key, found, needed, remedy))

    def rejected(self) -> Rejected | None:
        """The answer, if there is a reason against; faults alone where there are some."""
        if self.faults:
            return Rejected(tuple(self.faults), final=True)
        return Rejected(tuple(self.strange)) if self.strange else None

    def size(self, key: str, default: int | None = None, most: int = LARGEST) -> int:
        """An integer in [1, most]; 1 stands in after a rejection."""
        value = self.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            self.fault(key, value, f"an integer in [1, {most}]")
            return 1
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            self.fault(key, value, "true or false")
            return default
        return value

    def number(self, key: str, default: float, *, zero: bool = False) -> float:
        """A finite number above zero, or zero too."""
        value = self.get(key, default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not (0 < value < math.inf or (zero and value == 0)):
            self.fault(key, value, f"a finite number {'>=' if zero else '>'} 0")
            return default
        return float(value)

    def optional_number(self, key: str) -> float | None:
        return None if self.get(key) is None else self.number(key, 1.0)

    def bias(self, rule: str, key: str) -> bool:
        return self.flag(key) if rule == "config" else rule == "always"


def _rejection(key: str, found: object, needed: object, remedy: str) -> Rejection:
    return Rejection(code=key, field=f"config.{key}", found=found, needed=needed, remedy=remedy)
