"""What a scripted runner keeps of a request."""

from __future__ import annotations

import zlib

import numpy as np

from framework.contracts.step import AdmittedRequest
from framework.testing.scripts import fingerprint

EMBEDS, WIDTH = "prompt_embeds", 4
"""The feature of prompts as embeddings, and how many numbers one of the scripted model has."""


class Occupant:
    """A request in a slot: its tokens, and the fingerprint after each of them, which goes by the
    embeddings of its prompt, too.  problem: why it cannot be served."""

    def __init__(self, request: AdmittedRequest, first_print: int) -> None:
        self.request, self.problem = request, None
        self.tokens: list[int] = []
        if EMBEDS in request.payloads:
            first_print, self.problem = self._read(request.payloads[EMBEDS], first_print)
        self.prints: list[int] = [first_print]
        for token in request.tokens.tolist():
            self.push(token)

    def _read(self, path: str, start: int) -> tuple[int, str | None]:
        """A fingerprint of the embeddings, and what is wrong with them."""
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            return start, f"its embeddings cannot be read: {error}"
        wanted = self.request.num_prompt, WIDTH
        if found.shape != wanted or found.dtype != np.float32:
            return start, f"its embeddings are {found.dtype} {found.shape}, not {wanted}"
        return fingerprint(start, zlib.crc32(found.tobytes())), None

    def push(self, token: int) -> None:
        self.tokens.append(token)
        self.prints.append(fingerprint(self.prints[-1], token))


def content_of(request: AdmittedRequest) -> int:
    """Stands for what an encoder makes of the request's payloads."""
    return hash((request.request_id, request.encoder_tokens))
