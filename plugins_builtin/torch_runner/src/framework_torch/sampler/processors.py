"""The operator's logits processors, kept from harming requests they were not asked about."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch

from framework.contracts.base import name_of
from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.step import I32, AdmittedRequest, Bool
from framework_torch.sampler.history import History
from framework_torch.sampler.rows import I64, put, take, which

Failures = dict[int, str]


class ProcessorChain:
    """Processors in order.  One that raises ends the requests it raised for, and no other."""

    def __init__(self, processors: Sequence[LogitsProcessor]) -> None:
        self._processors = tuple(processors)
        self._told: set[int] = set()

    def __len__(self) -> int:
        return len(self._processors)

    def admit(self, request: AdmittedRequest) -> str | None:
        """Tell all of them.  The answer says why the request cannot go on, if so."""
        self.drop(request.slot)
        self._told.add(request.slot)
        for processor in self._processors:
            try:
                processor.admit(request)
            except (Exception, SystemExit) as error:
                return _sentence(processor, error)
        return None

    def drop(self, slot: int) -> None:
        """Tell all of them, if the slot was admitted.

        A failure is only logged: there is no request left that it could end.
        """
        if slot not in self._told:
            return
        self._told.remove(slot)
        for processor in self._processors:
            try:
                processor.drop(slot)
            except (Exception, SystemExit) as error:
                logging.getLogger(__name__).warning("drop: %s", _sentence(processor, error))

    def apply(self, logits: torch.Tensor, slots: I32, history: History, greedy: Bool) -> Failures:
        """Change logits float32 [N, V] in place; the rows that failed, with a sentence each."""
        failures: Failures = {}
        every = np.arange(len(slots), dtype=np.int64)
        outputs = [history.outputs(row) for row in range(len(slots))] if len(self) else []
        for processor in self._processors:
            rows = every if processor.changes_argmax else which(~greedy)
            if len(rows):
                _apply(processor, logits, rows, slots, outputs, failures)
        return failures


def _apply(
    processor: LogitsProcessor,
    logits: torch.Tensor,
    rows: I64,
    slots: I32,
    outputs: Sequence[I32],
    failures: Failures,
) -> None:
    """First all rows in one call; if that raises, each alone, from the logits before it."""
    part = take(logits, rows)
    before = part.clone()
    told = tuple(outputs[row] for row in rows)
    try:
        processor.apply(part, slots[rows], told)
    except (Exception, SystemExit):
        part.copy_(before)
        _apply_alone(processor, part, rows, slots, told, failures)
    _blame(processor, before, part, rows, failures)
    put(logits, rows, part)


def _apply_alone(
    processor: LogitsProcessor,
    part: torch.Tensor,
    rows: I64,
    slots: I32,
    told: Sequence[I32],
    failures: Failures,
) -> None:
    for index, row in enumerate(rows.tolist()):
        try:
            processor.apply(part[index : index + 1], slots[row : row + 1], told[index : index + 1])
        except (Exception, SystemExit) as error:
            failures.setdefault(row, _sentence(processor, error))


def _blame(
    processor: LogitsProcessor,
    before: torch.Tensor,
    after: torch.Tensor,
    rows: I64,
    failures: Failures,
) -> None:
    """Rows from which a token could be chosen before, and cannot any more: without this the
    model, or the request's own limits, would be blamed.  One reduction, where nothing is wrong."""
    best = after.amax(dim=1)
    broken = which(~torch.isfinite(best).cpu().numpy())
    if not len(broken):
        return
    sound = torch.isfinite(take(before, broken).amax(dim=1)).tolist()
    for index, was_sound in zip(broken.tolist(), sound, strict=True):
        if was_sound:
            left = float(best[index]) == float("-inf")
            what = "forbids every token" if left else "wrote logits that are not numbers"
            failures.setdefault(int(rows[index]), f"logits processor {name_of(processor)} {what}")


def _sentence(processor: LogitsProcessor, error: BaseException) -> str:
    return f"logits processor {name_of(processor)} failed: {error!r}"
