"""What the clauses for logits processors are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import I32, AdmittedRequest
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.place import bridge_to

F32 = npt.NDArray[np.float32]
PROMPT: I32 = np.arange(3, dtype=np.int32)
NOTHING: I32 = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of a call: whose it is, its logits, what has been generated."""

    slot: int
    logits: F32
    output: I32


def check_same(found: F32, expected: F32, what: str) -> None:
    """Violation unless the bits are equal."""
    equal = np.array_equal(found.view(np.uint32), expected.view(np.uint32))
    if not equal:
        wrong = np.flatnonzero(found != expected)
        raise Violation(
            f"{what} differs at {len(wrong)} tokens, the first {wrong[:5]}\n"
            f"  expected: {expected[wrong[:5]]}\n  found:    {found[wrong[:5]]}"
        )


class LogitsSuite(Suite):
    """Arguments are the `examples` of the class, passed under the name of the plugin.

    Class attributes, beside those of `Suite`:
        vocab_size: of the logits; larger than the token ids in the examples.
        tensor_api: whose tensors the logits are.  device: where they lie.
        apply_budget: seconds that a call may take for one row with a long output.
    """

    kind = "logits_processor"
    ordinary = ("valid_arguments_work",)
    capabilities = ("keeps_argmax",)
    vocab_size: ClassVar[int] = 300
    tensor_api: ClassVar[str] = "torch"
    device: ClassVar[str] = "cpu"
    apply_budget: ClassVar[float] = 0.01

    def declared(self) -> frozenset[str]:
        """`keeps_argmax`: `changes_argmax` is False."""
        return frozenset(() if self.new().changes_argmax else ("keeps_argmax",))

    @property
    def examples(self) -> tuple[Any, ...]:
        """Arguments that the class calls valid.  Raises Violation if there are none."""
        found: tuple[Any, ...] = self.new().examples
        expect(found, "no clause can be checked without `examples` of arguments")
        return found

    def sampling(self, argument: Any) -> SamplingParams:
        """A request's parameters with an argument for the plugin."""
        return SamplingParams(extra_args={self.target.record.name: argument})

    def admit(self, own: Any, slot: int, sampling: SamplingParams, output: I32 = NOTHING) -> None:
        """A request with a prompt of three tokens, and some that it generated before."""
        own.admit(
            AdmittedRequest(
                slot=slot,
                generation=1,
                request_id=f"request-{slot}",
                tokens=np.concatenate([PROMPT, output]),
                num_prompt=len(PROMPT),
                sampling=sampling,
                seed=7,
            )
        )

    def apply(self, own: Any, rows: Sequence[Row], slots: I32 | None = None) -> list[F32]:
        """The logits of the rows after one call."""
        bridge = bridge_to(self.target.registry, self.tensor_api)
        logits = bridge.tensor(
            np.array([row.logits for row in rows], np.float32).reshape(len(rows), self.vocab_size),
            "float32",
            self.device,
        )
        if slots is None:
            slots = np.array([row.slot for row in rows], np.int32)
        own.apply(logits, slots, tuple(row.output for row in rows))
        return list(bridge.array(logits))

    def row(self, case: Case, slot: int) -> Row:
        """A random one; some logits are minus infinity, as forbidden tokens are."""
        logits = (case.rng.normal(size=self.vocab_size) * 4).astype(np.float32)
        logits[case.rng.random(self.vocab_size) < 0.05] = -np.inf
        length = int(case.rng.integers(0, 12))
        # Few different tokens, so that they come again, and an example may be among them.
        ids = case.rng.integers(0, case.rng.choice([4, 20, self.vocab_size]), length)
        return Row(slot, logits, ids.astype(np.int32))

    def open_row(self, case: Case) -> Row:
        """One whose best tokens are close, and of low ids, as those in examples are.  In half of
        the cases the best is what was generated last, which what minds the past lowers."""
        row = self.row(case, 2)
        low = row.logits[: min(32, self.vocab_size)]
        low[:] = 20 + case.rng.random(len(low)).astype(np.float32)
        if case.index % 2:
            row.logits[row.output[-1:]] = 21.5
        return row

    def fresh(self, argument: Any, row: Row) -> F32:
        """The row alone, of a new instance: what it must be wherever it comes."""
        own = self.new()
        self.admit(own, row.slot, self.sampling(argument), row.output)
        return self.apply(own, [row])[0]

    def pick(self, case: Case, rows: int = 1) -> list[Any]:
        """Random examples."""
        examples = self.examples
        found = [examples[int(case.rng.integers(len(examples)))] for _ in range(rows)]
        case.note(examples=found)
        return found
