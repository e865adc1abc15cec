"""Which adapter each row of a step has, and what that changes at each linear map.

    rows      r0 (3 tokens)   r1   r2 (2)   r3          adapters   7  -  7  9
    tokens    t0  t1  t2      t3   t4  t5   t6
    groups    7: t0 t1 t2 t4 t5             9: t6       at most max_loras of them

A group's tokens are gathered, go through A and B in one call each, and are added to the result in
their places.  Other tokens are not touched, so that theirs are the same bits as without adapters.
With kernels that compute a row whatever comes with it, so are those of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from framework.contracts.model import AdapterSite
from framework.contracts.step import AdmittedRequest
from framework_torch.adapters.fitting import Call, Fitted
from framework_torch.adapters.store import AdapterStore
from framework_torch.prepare import StepInputs

NONE = -1
"""In place of a load id."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens of a step that have one adapter: from `start` to `end`, or those of `at`, int64."""

    updates: Mapping[str, tuple[Call, Call]]
    start: int
    end: int
    at: torch.Tensor | None


class AdapterBank:
    """store: what is loaded.  A request keeps the adapter with which it entered its slot, also
    when that is dropped from the store meanwhile."""

    def __init__(self, store: AdapterStore, max_slots: int, device: str) -> None:
        self.store, self._device = store, device
        self._ids = np.full(max_slots, NONE, np.int64)
        self._held: dict[int, Fitted] = {}
        self._groups: tuple[Group, ...] = ()

    def wrap(self, sites: Mapping[str, AdapterSite]) -> None:
        """Let the linear maps of a model be changed; once for each model."""
        for name, site in sites.items():
            site.wrap(self._change(name))

    def problem(self, request: AdmittedRequest) -> str | None:
        """Why a request cannot be computed."""
        if request.adapter is None or self.store.get(request.adapter) is not None:
            return None
        return f"the adapter with load id {request.adapter} is not loaded"

    def admit(self, request: AdmittedRequest) -> None:
        """A request without a problem enters its slot."""
        if request.adapter is not None:
            fitted = self.store.get(request.adapter)
            assert fitted is not None, "`problem` was asked"
            self._ids[request.slot] = request.adapter
            self._held[request.adapter] = fitted

    def drop(self, slot: int) -> None:
        """It leaves."""
        number, self._ids[slot] = int(self._ids[slot]), NONE
        if number != NONE and number not in self._ids:
            del self._held[number]

    def forget(self) -> None:
        """All slots are empty."""
        self._ids[:] = NONE
        self._held.clear()
        self._groups = ()

    def begin(self, inputs: StepInputs) -> None:
        """What the linear maps do from now on is for these rows."""
        self._groups = ()
        if not self._held:
            return
        ids = self._ids[inputs.slots]
        by_token = ids[inputs.token_rows]
        self._groups = tuple(
            self._group(self._held[number], np.flatnonzero(by_token == number))
            for number in np.unique(ids[ids != NONE]).tolist()
        )

    def _group(self, fitted: Fitted, tokens: np.ndarray) -> Group:
        start, end = int(tokens[0]), int(tokens[-1]) + 1
        at = None
        if end - start != len(tokens):
            at = torch.from_numpy(tokens).to(self._device)
        return Group(fitted.updates, start, end, at)

    def _change(self, site: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        def change(x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
            for group in self._groups:
                update = group.updates.get(site)
                if update is None:
                    continue
                down, up = update
                if group.at is None:
                    added = up(down(x[group.start : group.end]))
                    result[group.start : group.end] += added
                else:
                    added = up(down(x.index_select(0, group.at)))
                    # index_add_ is some forty times slower here: it expects places that repeat.
                    added += result.index_select(0, group.at)
                    result.index_copy_(0, group.at, added)
            return result

        return change
