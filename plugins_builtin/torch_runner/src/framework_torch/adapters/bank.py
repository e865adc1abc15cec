"""Which adapter each row of a step has, and what that changes at each linear map.

    rows      r0 (3 tokens)   r1   r2 (2)   r3          adapters   7  -  7  9
    tokens    t0  t1  t2      t3   t4  t5   t6
    groups    7: t0 t1 t2 t4 t5             9: t6       at most max_loras of them

A group's tokens go through A and B in one call, which adds to the result in their places.  Other
tokens are not touched, so that theirs are the same bits as without adapters.  With kernels that
compute a row whatever comes with it, so are those of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from framework.contracts.model import AdapterSite
from framework.contracts.step import AdmittedRequest
from framework_torch.adapters.fitting import Fitted, Update
from framework_torch.adapters.store import AdapterStore
from framework_torch.prepare import StepInputs

NONE = -1
"""In place of a load id."""


Places = torch.Tensor | None
"""Of a group's tokens in the step, int64; None: all."""


class AdapterBank:
    """store: what is loaded.  A request keeps the adapter with which it entered its slot, also
    when that is dropped from the store meanwhile."""

    def __init__(self, store: AdapterStore, max_slots: int, device: str) -> None:
        self.store, self._device = store, device
        self._ids = np.full(max_slots, NONE, np.int64)
        self._held: dict[int, Fitted] = {}
        self._groups: tuple[tuple[Fitted, Places], ...] = ()
        self._grouped = np.zeros(0, np.int64)
        self._by_site: dict[str, Sequence[tuple[Update, Places]]] = {}

    def wrap(self, sites: Mapping[str, AdapterSite]) -> None:
        """Let the linear maps of a model be changed; once for each model."""
        for name, site in sites.items():
            site.wrap(SiteChange(self, name))

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
        self._regroup(np.zeros(0, np.int64))

    def active(self, inputs: StepInputs) -> bool:
        """Whether any of these rows has an adapter."""
        return bool(self._held) and bool((self._ids[inputs.slots] != NONE).any())

    def begin(self, inputs: StepInputs) -> None:
        """What the linear maps do from now on is for these rows."""
        ids = self._ids[inputs.slots[inputs.token_rows]] if self._held else self._ids[:0]
        if not np.array_equal(ids, self._grouped):
            self._regroup(ids)

    def _regroup(self, ids: np.ndarray) -> None:
        """ids: by token, of adapters or NONE."""
        self._grouped = ids
        self._by_site.clear()
        self._groups = tuple(
            (self._held[number], self._places(np.flatnonzero(ids == number), len(ids)))
            for number in np.unique(ids[ids != NONE]).tolist()
        )

    def _places(self, tokens: np.ndarray, total: int) -> Places:
        return None if len(tokens) == total else torch.from_numpy(tokens).to(self._device)

    def at(self, site: str) -> Sequence[tuple[Update, Places]]:
        """What this step adds to a linear map."""
        if not self._groups:
            return ()
        updates = self._by_site.get(site)
        if updates is None:
            updates = self._by_site[site] = [
                (fitted.updates[site], at) for fitted, at in self._groups if site in fitted.updates
            ]
        return updates


class SiteChange:
    """See `framework.contracts.model.AdapterSite`.  updates: of the step, for a kernel that adds
    them by itself, where the map is a part of what it computes."""

    __slots__ = ("_bank", "_site")

    def __init__(self, bank: AdapterBank, site: str) -> None:
        self._bank, self._site = bank, site

    def __call__(self, x: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        updates = self.updates()
        if updates:
            apply(updates, x, result)
        return result

    def updates(self) -> Sequence[tuple[Update, Places]]:
        return self._bank.at(self._site)


def apply(updates: Sequence[tuple[Update, Places]], x: torch.Tensor, result: torch.Tensor) -> None:
    """In one call, where a kernel made all of them and computes several together."""
    together = getattr(updates[0][0], "together", None)
    if together is not None and all(
        getattr(update, "together", None) is together for update, _ in updates
    ):
        together(x, result, updates)
        return
    for update, at in updates:
        update(x, result, at)
