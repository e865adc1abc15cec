"""Names of full pages: a chain of hashes, so that a page's name stands for all before it.

    root = H(identity)     h0 = H(root, tokens 0, extras)     h1 = H(h0, tokens 1) ...

The chain runs over units of the shortest page; a longer page takes the name of its last
unit, which also stands for all tokens before it.  That is how a prefix found in pages of one
size is found in pages of another:

    units of 16    h0   h1   h2   h3
    pages of 16   |h0  |h1  |h2  |h3  |
    pages of 32   |     h1  |     h3  |

Extras are tagged, and every text in them length-prefixed, so that no two different inputs have
one encoding.  Tokens follow in a number of bytes that is always the same.
The salt goes into the first unit only: the chain carries it on.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.contracts.step import I32
    from framework.core.request import Request

Digest = Callable[[bytes], bytes]


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


def choose_digest(name: str) -> tuple[Digest, bytes]:
    """(hash function, what goes into the root).

    sha256 is the default: nobody can make two prompts with one name.  xxhash is faster and
    not made for that, so that its root is random per process and cannot be guessed.
    """
    if name == "sha256":
        return _sha256, b""
    if name == "xxhash":
        try:
            from xxhash import xxh3_128_digest
        except ImportError as error:
            raise ConfigError(
                "prefix_hash='xxhash' needs the package xxhash",
                expected="an installed xxhash",
                found=str(error),
                mend='pip install "framework[xxhash]", or use sha256',
            ) from error
        return xxh3_128_digest, secrets.token_bytes(32)
    raise ConfigError("prefix_hash is unknown", expected="sha256 or xxhash", found=repr(name))


def _field(tag: bytes, *values: str) -> bytes:
    """No tag is the beginning of another; a lone surrogate is text like any other here."""
    parts = [value.encode("utf-8", "surrogatepass") for value in values]
    return tag + b"".join(len(part).to_bytes(8, "little") + part for part in parts)


class PageHasher:
    """identity: whatever makes the contents of two caches differ (model, dtypes, layout).
    unit: tokens per link of the chain.  digest, root: see `choose_digest`."""

    def __init__(
        self, identity: str, unit: int, digest: Digest = _sha256, root: bytes = b""
    ) -> None:
        self.unit = unit
        self.digest = digest
        self._secret = root
        self._identity = identity
        self._epoch = 0
        self._root = b""
        self.new_epoch()

    def new_epoch(self) -> None:
        """What is hashed from now on has another root.  Names made before keep theirs: whoever
        calls this forgets them, those of pages and those kept with requests."""
        self._epoch += 1
        root = _field(b"root", self._identity, str(self.unit), str(self._epoch))
        self._root = self.digest(self._secret + root)

    def extend(self, request: Request, tokens: I32, count: int) -> list[bytes]:
        """Hashes of the first `count` units of `request`, whose known ids are `tokens`.

        Kept with the request: each unit is hashed once, whatever happens to the request.
        """
        hashes = request.hashes
        if len(hashes) >= count:
            return hashes
        width = self.unit * 4
        first = len(hashes)
        data = np.ascontiguousarray(
            tokens[first * self.unit : count * self.unit], dtype="<i4"
        ).tobytes()
        digest = self.digest
        last = hashes[-1] if hashes else self.first_input(request)
        for start in range(0, (count - first) * width, width):
            last = digest(last + data[start : start + width])
            hashes.append(last)
        return hashes

    def first_input(self, request: Request) -> bytes:
        """What stands before the tokens of the first unit."""
        entry = request.input
        prefix = self._root
        if entry.adapter is not None:
            prefix += _field(b"adapter", str(entry.adapter))
        if entry.salt is not None:
            prefix += _field(b"salt", entry.salt)
        for name in sorted(entry.payloads):
            prefix += _field(b"payload", name, entry.payloads[name])
        return prefix
