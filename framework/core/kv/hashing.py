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
from typing import TYPE_CHECKING, Protocol

import numpy as np

from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.contracts.step import I32
    from framework.core.request import Request


class _Hash(Protocol):
    def digest(self) -> bytes: ...


NewHash = Callable[[bytes], _Hash]
"""Makes what has the digest of some bytes, as in `hashlib`."""


def choose_hash(name: str) -> tuple[NewHash, bytes]:
    """(hash function, what goes into the root).

    sha256 is the default: nobody can make two prompts with one name.  xxhash is faster and
    not made for that, so that its root is random per process and cannot be guessed.
    """
    if name == "sha256":
        return sha256, b""
    if name == "xxhash":
        try:
            from xxhash import xxh3_128
        except ImportError as error:
            raise ConfigError(
                "prefix_hash='xxhash' needs the package xxhash",
                expected="an installed xxhash",
                found=str(error),
                mend='pip install "framework[xxhash]", or use sha256',
            ) from error
        return xxh3_128, secrets.token_bytes(32)
    raise ConfigError("prefix_hash is unknown", expected="sha256 or xxhash", found=repr(name))


def _field(tag: bytes, *values: str) -> bytes:
    """No tag is the beginning of another; a lone surrogate is text like any other here."""
    parts = [value.encode("utf-8", "surrogatepass") for value in values]
    return tag + b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def parts_of(tokens: I32, size: int) -> list[bytes]:
    """The tokens, int32 [n * size] or [n, size], as n parts of `size` tokens; at once, because
    to cut a string into n takes several times longer."""
    data = np.ascontiguousarray(tokens, dtype="<i4")
    parts: list[bytes] = data.reshape(-1).view(f"V{4 * size}").tolist()
    return parts


class PageHasher:
    """identity: whatever makes the contents of two caches differ (model, dtypes, layout).
    unit: tokens per link of the chain.  new_hash, root: see `choose_hash`."""

    def __init__(
        self, identity: str, unit: int, new_hash: NewHash = sha256, root: bytes = b""
    ) -> None:
        self.unit = unit
        self.new_hash = new_hash
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
        self._root = self.new_hash(self._secret + root).digest()

    def extend(self, request: Request, tokens: I32, count: int) -> list[bytes]:
        """Hashes of the first `count` units of `request`, whose known ids are `tokens`.

        Kept with the request: each unit is hashed once, whatever happens to the request.
        """
        hashes = request.hashes
        if len(hashes) >= count:
            return hashes
        parts = parts_of(tokens[len(hashes) * self.unit : count * self.unit], self.unit)
        new_hash = self.new_hash
        last = hashes[-1] if hashes else self.first_input(request)
        hashes += [last := new_hash(last + part).digest() for part in parts]
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
