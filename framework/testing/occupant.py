"""What a scripted runner keeps of a request."""

from __future__ import annotations

from framework.contracts.step import AdmittedRequest
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
