"""How a scripted runner keeps to masks of late inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from framework.contracts.step import LateInputs, StepPlan

Words = npt.NDArray[np.uint32]


class Masks:
    """Of one step, by slot and by how many drafts come before."""

    def __init__(self, plan: StepPlan | None = None, late: LateInputs | None = None) -> None:
        self._words: dict[int, dict[int, Words]] = {}
        if plan is None or late is None or late.bitmask is None:
            return
        covered = late.covered if len(late.covered) else np.zeros_like(late.bitmask_rows)
        places = zip(plan.slots[late.bitmask_rows].tolist(), covered.tolist(), strict=True)
        for (slot, drafts), words in zip(places, late.bitmask, strict=True):
            self._words.setdefault(slot, {})[drafts] = words

    def token(self, slot: int, drafts: int, token: int) -> int | None:
        """What becomes of a token after so many drafts: the first one that is allowed, if it is
        not; None past the last mask of its row, where what is allowed is not known."""
        own: Mapping[int, Words] | None = self._words.get(slot)
        if own is None:
            return token
        if drafts not in own:
            return None
        bits = np.unpackbits(own[drafts].view(np.uint8), bitorder="little")
        return token if bits[token] else int(np.argmax(bits))
