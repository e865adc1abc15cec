"""Prompts given as embeddings: what stands in place of the model's embeddings of their ids.

a row of the step  |computed ...... computed + num_new|
its prompt         |0 ........... num_prompt|            vectors for these, ids behind them
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framework.contracts.step import F32, AdmittedRequest

if TYPE_CHECKING:
    from framework_torch.prepare import StepInputs

EMBEDS = "prompt_embeds"


class PromptEmbeds:
    """By slot, of the requests that have some.  width: numbers of an embedding.

    The files stay where they are, mapped, until the request leaves its slot.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._vectors: dict[int, F32] = {}
        self._entering: dict[int, F32] = {}

    def problem(self, request: AdmittedRequest) -> str | None:
        """Why the request cannot be computed, or None; then `admit` may follow."""
        self._entering.pop(request.slot, None)
        reference = request.payloads.get(EMBEDS)
        if reference is None:
            return None
        found = _read(reference)
        if isinstance(found, str):
            return f"its embeddings cannot be read: {found}"
        wanted = request.num_prompt, self._width
        if found.shape != wanted or found.dtype != np.float32:
            return f"its embeddings are {found.dtype} {list(found.shape)}, not {list(wanted)}"
        self._entering[request.slot] = found
        return None

    def admit(self, request: AdmittedRequest) -> None:
        """Keep what `problem` found to be right.  The file may be gone since: read again, it would
        leave pages of other contents under the name of these."""
        found = self._entering.pop(request.slot, None)
        if found is not None:
            self._vectors[request.slot] = found

    def drop(self, slot: int) -> None:
        """The request in `slot` left."""
        self._vectors.pop(slot, None)

    def put(self, hidden: torch.Tensor, inputs: StepInputs) -> None:
        """Change hidden [T, H], the embeddings of a step's tokens, in place."""
        if not self._vectors:
            return
        for row, slot in enumerate(inputs.slots.tolist()):
            vectors = self._vectors.get(slot)
            if vectors is None:
                continue
            part = vectors[inputs.computed[row] : inputs.lengths[row]]
            if len(part):
                start = int(inputs.query_starts[row])
                # A copy: the file is read-only, which a tensor cannot be.
                hidden[start : start + len(part)] = torch.from_numpy(np.array(part))


def _read(path: str) -> np.ndarray[Any, np.dtype[Any]] | str:
    """The array of a file, mapped; or why it cannot be had."""
    try:
        found: np.ndarray[Any, np.dtype[Any]] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        return str(error)
    return found
