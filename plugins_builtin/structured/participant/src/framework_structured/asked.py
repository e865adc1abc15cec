"""What travels from the front end to the core, in the extras of a request."""

from __future__ import annotations

import msgspec

from framework.contracts.structured_output import Grammar


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """backend: that which took the grammar."""

    backend: str
    structure: str
    text: str

    @property
    def grammar(self) -> Grammar:
        return Grammar(self.structure, self.text)


def encode(asked: Asked) -> bytes:
    return msgspec.msgpack.encode(asked)


def decode(data: bytes) -> Asked:
    return msgspec.msgpack.decode(data, type=Asked)
