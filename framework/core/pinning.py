"""Keeps the pages of a prefix, as far as the longest request still fits beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.core.request import Request
from framework.errors import InputError

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

    Raises InputError if a request of `longest` tokens would not fit beside all that is pinned.
    """
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
