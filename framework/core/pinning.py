"""Keeps the pages of a prefix, as far as the longest request still fits beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.core.request import Request
from framework.errors import InputError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.core.kv.manager import KVManager


def pin(
    kv: KVManager,
    key: int,
    tokens: Sequence[int],
    *,
    salt: str | None,
    adapter: int | None,
    longest: int,
) -> int:
    """Pin what the cache holds of a prefix under `key`; the number of tokens that it holds.

    Raises InputError for what is no prefix, and if a request of `longest` tokens would not fit
    beside all that is pinned.
    """
    _check(tokens, salt, adapter)
    entry = EngineInput(
        request_id="pin",
        tokens=np.array(tokens, np.int32),
        sampling=SamplingParams(),
        seed=0,
        max_total=len(tokens) + 1,
        salt=salt,
        adapter=adapter,
    )
    match = kv.match(Request(entry, 0, 0.0, 0), len(tokens))
    kv.pins.pin(key, match)
    if len(kv.pins) + kv.most_pages(longest) >= kv.pool.num_pages:
        kv.pins.unpin(key)
        raise InputError(
            "the prefix is too long to be pinned",
            parameter="tokens",
            expected="room for the longest request beside all that is pinned",
            found=f"{match.tokens} tokens to pin, {kv.pool.num_pages - 1} pages",
            mend="unpin another prefix, lower max_model_len, or give the cache more memory",
        )
    return match.tokens


def _check(tokens: Sequence[int], salt: str | None, adapter: int | None) -> None:
    """The values may have come from another process."""
    ids = isinstance(tokens, Sequence | np.ndarray) and not isinstance(tokens, str | bytes)
    for name, expected, found, fits in (
        ("tokens", "a list of token ids", tokens, ids and all(map(_is_id, tokens))),
        ("salt", "a string, or None", salt, salt is None or isinstance(salt, str)),
        ("adapter", "an integer, or None", adapter, adapter is None or _is_id(adapter)),
    ):
        if not fits:
            raise InputError(
                f"{name} of the prefix is invalid",
                parameter=name,
                expected=expected,
                found=shown(found),
            )


def _is_id(value: object) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and 0 <= value <= np.iinfo(np.int32).max  # type: ignore[operator]
