"""What of a step may be a graph, by the operator's word and by what attention can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from framework.contracts.graphs import SUPPORT
from framework.contracts.kernel_sets import KernelSet
from framework.errors import ConfigError

GraphModeName = Literal[
    "auto", "none", "piecewise", "full", "full_decode_only", "full_and_piecewise"
]


class Mode(IntEnum):
    """NONE: operator by operator.  PIECEWISE: what lies between two calls of attention is a graph.
    FULL: all of a forward pass is one."""

    NONE = 0
    PIECEWISE = 1
    FULL = 2


@dataclass(frozen=True, slots=True)
class Modes:
    """mixed: of steps whose rows have any number of tokens.  uniform: of those in which each row
    has the same.  Where FULL cannot serve a step, PIECEWISE does if it was captured."""

    mixed: Mode
    uniform: Mode

    @property
    def all(self) -> frozenset[Mode]:
        """Those that graphs are captured for."""
        return frozenset((self.mixed, self.uniform)) - {Mode.NONE}


MODES: Mapping[str, Modes] = {
    "none": Modes(Mode.NONE, Mode.NONE),
    "piecewise": Modes(Mode.PIECEWISE, Mode.PIECEWISE),
    "full": Modes(Mode.FULL, Mode.FULL),
    "full_decode_only": Modes(Mode.NONE, Mode.FULL),
    "full_and_piecewise": Modes(Mode.PIECEWISE, Mode.FULL),
}
OF_SET: Mapping[KernelSet, str] = {
    "plain": "none",
    "fused": "piecewise",
    "best": "full_and_piecewise",
}
"""Kernel set -> mode where the operator names none: -O0 is operator by operator."""


def least(supports: Iterable[str]) -> str:
    """What all groups of layers can do: a model whose layers differ takes the least."""
    return min(supports, key=SUPPORT.index, default="always")


def wanted(named: GraphModeName, kernel_set: KernelSet, *, eager: bool, able: bool) -> str:
    """The mode to try.  able: whether the platform records graphs at all.

    Raises ConfigError for a mode that was named and cannot be.
    """
    if named in ("auto", "none"):
        return OF_SET[kernel_set] if named == "auto" and able and not eager else "none"
    if eager or not able:
        raise ConfigError(
            f"graph_mode={named!r} cannot be had",
            expected="a platform that records graphs, and no enforce_eager",
            found="enforce_eager" if eager else "a platform that records none",
            mend="leave out model_runner.torch.graph_mode",
        )
    return named


def agreed(mode: str, support: str, *, named: bool) -> tuple[str, str]:
    """(the mode that attention can keep up with, why it is another; empty if it is not).

    support: see `framework.contracts.graphs.SUPPORT`.  Raises ConfigError where the mode was named
    by the operator and attention cannot.
    """
    asked = MODES[mode]
    needed = "always" if asked.mixed is Mode.FULL else "decode"
    if Mode.FULL not in asked.all or SUPPORT.index(support) >= SUPPORT.index(needed):
        return mode, ""
    if named:
        raise ConfigError(
            f"graph_mode={mode!r} needs attention that can be part of a graph",
            expected=f"backends whose `graphs` is at least {needed!r}",
            found=support,
            mend="choose graph_mode=piecewise, or another attention backend",
        )
    return "piecewise", f"attention can be part of a graph: {support}"
