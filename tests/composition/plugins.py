"""Logits processors: one for all requests of a server, one that requests give arguments."""

from __future__ import annotations

from framework.contracts.logits_processor import LogitsProcessor
from framework.errors import InputError


class Even(LogitsProcessor):
    """For all requests of a server: even ids are raised."""

    def apply(self, logits, slots, outputs):
        logits[:, ::2] += 2.0


class Raised(LogitsProcessor):
    """extra_args={"raised": [ids]}: ids whose logits are raised at every second token."""

    examples = ([1, 2],)

    def __init__(self, options=None):
        super().__init__(options)
        self._raised = {}

    def validate(self, sampling):
        ids = (sampling.extra_args or {}).get("raised", [])
        if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
            raise InputError("raised is invalid", expected="a list of ids", found=repr(ids))

    def admit(self, request):
        ids = (request.sampling.extra_args or {}).get("raised")
        if ids is not None:
            self._raised[request.slot] = ids

    def drop(self, slot):
        self._raised.pop(slot, None)

    def apply(self, logits, slots, outputs):
        for row, slot in enumerate(slots.tolist()):
            if slot in self._raised and len(outputs[row]) % 2 == 0:
                logits[row, self._raised[slot]] += 6.0
