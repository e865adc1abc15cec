"""What a scripted runner keeps of a request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framework.contracts.step import I32, AdmittedRequest, Logprobs
from framework.testing.ragged import flat
from framework.testing.scripts import fingerprint


class Occupant:
    """A request in a slot: its tokens, and the fingerprint after each of them."""

    def __init__(self, request: AdmittedRequest, first_print: int) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.prints: list[int] = [first_print]
        for token in request.tokens.tolist():
            self.push(token)

    def push(self, token: int) -> None:
        self.tokens.append(token)
        self.prints.append(fingerprint(self.prints[-1], token))


def content_of(request: AdmittedRequest) -> int:
    """Stands for what an encoder makes of the request's payloads."""
    return hash((request.request_id, request.encoder_tokens))


def logprobs_of(
    occupants: Sequence[Occupant], tokens: Sequence[list[int]]
) -> tuple[Logprobs | None, I32]:
    """Of the newest tokens of those who asked, and which of all newest tokens these are.  The
    log-probability of the token at position p is -p / 100."""
    ids, values, wanted, place = [], [], [], 0
    for occupant, new in zip(occupants, tokens, strict=True):
        sampling = occupant.request.sampling
        if sampling is not None and sampling.logprobs is not None:
            ids += new
            start = len(occupant.tokens) - len(new)
            values += [-(start + k) for k in range(len(new))]
            wanted += [place + k for k in range(len(new))]
        place += len(new)
    if not wanted:
        return None, np.zeros(0, np.int32)
    return flat(ids, values), np.array(wanted, np.int32)
