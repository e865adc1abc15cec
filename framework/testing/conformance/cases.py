"""Random cases that a line can bring back, and checks that say what was expected."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from framework.shown import shown
from framework.testing.conformance.outcomes import Violation


class Case:
    """One random case: `rng`, and what to say of it when it fails."""

    def __init__(self, clause: str, seed: int, index: int) -> None:
        self.index = index
        self.rng = np.random.default_rng([seed, zlib.crc32(clause.encode()), index])
        self._notes: dict[str, object] = {}

    def note(self, **facts: object) -> None:
        """Shapes, dtypes and choices of the case, for the line that reproduces it."""
        self._notes.update(facts)

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self._notes.items())


def expect(
    condition: object, message: str, *, expected: object = None, found: object = None
) -> None:
    """Raise Violation unless `condition` holds; works where asserts are switched off."""
    if condition:
        return
    parts = [message]
    if expected is not None:
        parts.append(f"  expected: {_text(expected)}")
    if found is not None:
        parts.append(f"  found:    {_text(found)}")
    raise Violation("\n".join(parts))


def _text(value: object) -> str:
    """Of what a plugin gave there may be none."""
    try:
        return f"{value}"
    except Exception:
        return shown(value)


@contextmanager
def expect_raises(kind: type[BaseException], doing: str) -> Iterator[None]:
    """Raise Violation unless the block raises `kind`; any other error passes through."""
    try:
        yield
    except kind:
        return
    raise Violation(f"{doing}: expected {kind.__name__}, and nothing was raised")


TOLERANCES = {
    "float64": (1e-9, 1e-9),
    "float32": (2e-4, 2e-5),
    "float16": (1e-2, 2e-3),
    "bfloat16": (3e-2, 1.6e-2),
    "float8_e4m3": (1.5e-1, 1e-1),
    "float8_e5m2": (3e-1, 2e-1),
}
"""(relative, absolute) by the least precise element type on the way."""


def expect_close(
    found: np.ndarray, reference: np.ndarray, dtype: str, what: str, *, scale: float = 1.0
) -> None:
    """Compare with a reference in float64 under the kit's tolerance for `dtype`.

    scale: of the values, where they are not about 1.  Raises Violation with the worst element.
    """
    expect(
        found.shape == reference.shape,
        f"{what} has the wrong shape",
        expected=reference.shape,
        found=found.shape,
    )
    relative, absolute = TOLERANCES[dtype]
    wide = np.asarray(found, np.float64)
    bound = absolute * scale + relative * np.abs(reference)
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(wide - reference) <= bound)  # NaN is wrong, too
        both = np.isinf(reference) & (wide == reference)
    wrong &= ~both
    if not wrong.any():
        return
    excess = np.where(wrong, np.nan_to_num(np.abs(wide - reference), nan=np.inf), -1.0)
    worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
    place = tuple(int(i) for i in worst)
    raise Violation(
        f"{what} is wrong in {int(wrong.sum())} of {wrong.size} elements for {dtype}\n"
        f"  expected: {reference[worst]:.8g} at {place}, within {bound[worst]:.2g}\n"
        f"  found:    {wide[worst]:.8g}"
    )
