"""Names of full pages: a chain of sha256, so that a page's name stands for all before it.

    root = H(identity)     h0 = H(root, tokens 0, extras)     h1 = H(h0, tokens 1) ...

Extras are tagged and length-prefixed, so that no two different inputs have one encoding.
The salt goes into the first page only: the chain carries it on.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from framework.contracts.step import I32
    from framework.core.request import Request


def _field(tag: bytes, value: bytes) -> bytes:
    return tag + len(value).to_bytes(8, "little") + value


class PageHasher:
    """identity: whatever makes the contents of two caches differ (model, dtypes, layout)."""

    def __init__(self, identity: str, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self._identity = identity
        self._epoch = 0
        self._root = b""
        self.new_epoch()

    def new_epoch(self) -> None:
        """The weights changed: no page hashed before can be hit."""
        self._epoch += 1
        text = f"{self._identity}\0{self.page_tokens}\0{self._epoch}"
        self._root = sha256(text.encode()).digest()

    def extend(self, request: Request, tokens: I32, count: int) -> list[bytes]:
        """Hashes of the first `count` pages of `request`, whose known ids are `tokens`.

        Kept with the request: each page is hashed once, whatever happens to the request.
        """
        hashes = request.hashes
        size = self.page_tokens
        if len(hashes) >= count:
            return hashes
        data = np.ascontiguousarray(tokens[: count * size], dtype="<i4").tobytes()
        width = size * 4
        for page in range(len(hashes), count):
            chain = sha256(hashes[-1] if hashes else self._first(request))
            chain.update(data[page * width : (page + 1) * width])
            hashes.append(chain.digest())
        return hashes

    def _first(self, request: Request) -> bytes:
        entry = request.input
        prefix = self._root
        if entry.adapter is not None:
            prefix += _field(b"adapter", str(entry.adapter).encode())
        if entry.salt is not None:
            prefix += _field(b"salt", entry.salt.encode("utf-8", "surrogatepass"))
        for name in sorted(entry.payloads):
            prefix += _field(b"payload", f"{name}\0{entry.payloads[name]}".encode())
        return prefix
