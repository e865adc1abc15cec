"""Names of full pages: a chain of hashes, so that a page's name stands for all before it.

    root = H(identity)     start = H(root, extras), or root     h0 = H(start, tokens 0)
                                                                h1 = H(start, tokens 0, tokens 1)

The hash itself is the chain: it takes one unit more and is read off, so that what lies before is
hashed once and not put in again by its name.  A unit is one of the shortest page; a longer page
takes the name of its last unit, which also stands for all tokens before it.  That is how a prefix
found in pages of one size is found in pages of another:

    units of 16    h0   h1   h2   h3
    pages of 16   |h0  |h1  |h2  |h3  |
    pages of 32   |     h1  |     h3  |

Extras are tagged, and every text in them length-prefixed, so that no two different inputs have
one encoding; what they make is a digest, of a length that is always the same, behind which only
tokens follow.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.contracts.step import I32
    from framework.core.request import Request


class Hash(Protocol):
    """Has the digest of all bytes that it was given, and takes more, as in `hashlib`."""

    def digest(self) -> bytes: ...

    def update(self, data: bytes, /) -> object: ...


NewHash = Callable[[bytes], Hash]
"""Makes one that was given some bytes."""


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


def _field(tag: bytes, *values: str | bytes) -> bytes:
    """No tag is the beginning of another; a lone surrogate is text like any other here."""
    parts = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
    return tag + b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def parts_of(tokens: I32, size: int) -> list[bytes]:
    """The tokens, int32 [n * size] or [n, size], as n parts of `size` tokens; at once, because
    to cut a string into n takes several times longer."""
    data = np.ascontiguousarray(tokens, _IDS)
    parts: list[Any] = data.reshape(-1).view(_part(size)).tolist()
    return parts


_IDS = np.dtype("<i4")


@cache
def _part(size: int) -> np.dtype[np.void]:
    """Made once: to make it costs more than to cut a prompt."""
    return np.dtype((np.void, size * _IDS.itemsize))


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
        chain = self.chain_of(request)
        take, read = chain.update, chain.digest
        for part in parts_of(tokens[len(hashes) * self.unit : count * self.unit], self.unit):
            take(part)
            hashes.append(read())
        return hashes

    def chain_of(self, request: Request) -> Hash:
        """What has taken all units of the request that have a hash, and takes the next."""
        if request.chain is None:
            request.chain = self.new_hash(self.start(request))
        return request.chain

    def start(self, request: Request) -> bytes:
        """What stands before the tokens of the first unit: a digest."""
        entry = request.input
        extras = b""
        if entry.adapter is not None:
            extras += _field(b"adapter", str(entry.adapter))
        if entry.salt is not None:
            extras += _field(b"salt", entry.salt)
        for name in sorted(entry.payloads):
            extras += _field(b"payload", name, entry.payloads[name])
        if entry.encoder_tokens:  # all tokens see its states, and only plugins know what is in them
            extras += _field(b"encoder", str(entry.encoder_tokens))
            for name in sorted(entry.extras):
                extras += _field(b"extra", name, entry.extras[name])
        return self.new_hash(self._root + extras).digest() if extras else self._root
