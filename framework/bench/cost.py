"""What a step of a model takes: a linear model."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.errors import ConfigError
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    from framework.contracts.step import StepPlan


@dataclass(frozen=True, slots=True)
class StepCost:
    """Microseconds: of a step (reading the weights), per token computed, per row (sampling),
    and per token of context that is read.  The defaults resemble a model of 8e9 parameters
    in 16 bits on one large accelerator.
    """

    base_us: float = 6000.0
    token_us: float = 30.0
    row_us: float = 3.0
    context_us: float = 0.04

    @classmethod
    def parse(cls, text: str) -> StepCost:
        """Read "base_us=6000, token_us=30, ..."; what is left out keeps its default.

        Raises ConfigError.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        values: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, number = (piece.strip() for piece in part.partition("="))
            if name not in known or name in values:
                raise ConfigError(
                    f"--cost: {name!r} is unknown or given twice{did_you_mean(name, known)}",
                    expected=", ".join(f"{each}=NUMBER" for each in known),
                    found=repr(text),
                )
            values[name] = _number(number, name)
        cost = cls(**values)
        if not any(dataclasses.astuple(cost)):
            raise ConfigError("--cost: a step must take some time", found=repr(text))
        return cost

    def seconds(self, plan: StepPlan) -> float:
        """What this step takes."""
        tokens = int(plan.num_new.sum())
        context = int(plan.computed.sum()) + tokens
        return 1e-6 * (
            self.base_us
            + self.token_us * tokens
            + self.row_us * plan.num_rows
            + self.context_us * context
        )


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e9:
        raise ConfigError(
            f"--cost: {name} is invalid", expected="microseconds in [0, 1e9]", found=repr(text)
        )
    return value
