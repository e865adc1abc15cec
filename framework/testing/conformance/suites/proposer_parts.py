"""What the clauses for speculative proposers share: rows of tokens, and an instance that knows
them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from framework.contracts.model_source import ModelFiles
from framework.contracts.proposer import ComputedStep, ProposerContext
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import I32, AdmittedRequest
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suite import Suite

SLOTS, WIDTH, MOST = 8, 160, 4
FILES = ModelFiles(name="target", root=Path("target"), weights=(), format="none", config={})


class Row(NamedTuple):
    """A request in a slot with all its tokens, of which `new` came with the last step."""

    slot: int
    tokens: I32
    wanted: int = MOST
    new: int = 1


class Target:
    """In place of a model; it has a vocabulary and nothing else."""

    max_model_len = WIDTH

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __getattr__(self, name: str) -> Any:
        raise Violation(f"the model's {name} is used, and `need` says that tokens are enough")


class ProposerBase(Suite):
    """vocab_size: ids are below it."""

    kind = "speculative_proposer"
    capabilities = ("tokens_only",)
    vocab_size: ClassVar[int] = 300

    def declared(self) -> frozenset[str]:
        """`tokens_only`: `need` is "tokens"."""
        return frozenset(self.capabilities) if self.new().need == "tokens" else frozenset()

    def loaded(self, slots: int = SLOTS, width: int = WIDTH) -> Any:
        """A new instance that was told of its model."""
        own = self.new()
        self.load(own, slots, width)
        return own

    def load(self, own: Any, slots: int = SLOTS, width: int = WIDTH) -> object:
        target: Any = Target(self.vocab_size)

        def build(files: ModelFiles) -> Any:
            raise Violation("a model is built, and `speculative_model` names none")

        return own.load(
            ProposerContext(
                target=target,
                files=FILES,
                draft_files=None,
                max_drafts=MOST,
                max_slots=slots,
                max_len=width - 1,
                dtype="float32",
                device="cpu",
                build=build,
            )
        )

    def admit(self, own: Any, slot: int, tokens: I32) -> None:
        own.admit(
            AdmittedRequest(
                slot=slot,
                generation=1,
                request_id=f"request-{slot}",
                tokens=tokens.copy(),
                num_prompt=max(1, len(tokens) // 2),
                sampling=SamplingParams(),
                seed=slot,
            )
        )

    def step(self, rows: Sequence[Row], slots: int = SLOTS, width: int = WIDTH) -> ComputedStep:
        """What the runner shows after a step of these rows."""
        table = np.full((slots, width), self.vocab_size - 1, np.int32)
        for row in rows:
            table[row.slot, : len(row.tokens)] = row.tokens
        lengths = np.array([len(row.tokens) for row in rows], np.int32)
        return ComputedStep(
            slots=np.array([row.slot for row in rows], np.int32),
            starts=lengths - np.array([row.new + 1 for row in rows], np.int32),
            lengths=lengths,
            wanted=np.array([row.wanted for row in rows], np.int32),
            sampled=np.ones(len(rows), np.bool_),
            tokens=table,
        )

    def ask(self, own: Any, rows: Sequence[Row]) -> list[list[int]]:
        """Drafts of each row; raises Violation if they cannot be."""
        answer = own.propose(self.step(rows))
        drafts = [np.asarray(ids).reshape(-1).tolist() for ids in answer]
        expect(len(drafts) == len(rows), "rows lack", expected=len(rows), found=len(drafts))
        for row, ids in zip(rows, drafts, strict=True):
            expect(len(ids) <= row.wanted, "too many drafts", expected=row.wanted, found=len(ids))
            good = all(type(token) is int and 0 <= token < self.vocab_size for token in ids)
            expect(good, "ids out of range", expected=f"below {self.vocab_size}", found=ids)
        return drafts

    def fresh(self, row: Row) -> list[int]:
        """The drafts of a new instance that has seen nothing else."""
        own = self.loaded()
        self.admit(own, row.slot, row.tokens[:-1])
        return self.ask(own, [row])[0]

    def row(self, case: Case, slot: int) -> Row:
        """Few different tokens, so that they come again."""
        kinds = int(case.rng.choice([2, 4, self.vocab_size]))
        tokens = case.rng.integers(0, kinds, int(case.rng.integers(3, 60))).astype(np.int32)
        if case.index % 2:
            tokens = np.concatenate([tokens, tokens, tokens[:5]])
        return Row(slot, tokens, int(case.rng.integers(1, MOST + 1)))

    def begun(self, rows: Sequence[Row]) -> Any:
        """An instance to which the requests were told."""
        own = self.loaded()
        for row in rows:
            self.admit(own, row.slot, row.tokens[:-1])
        return own
