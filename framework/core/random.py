"""Randomness without state: numbers are a function of (seed, position, stream).

Philox4x32-10 of Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3"
(SC 2011): ten rounds that mix a 128-bit counter with a 64-bit key.

    key      | seed, 64 bits                 |
    counter  | position, 64 | stream, 32 | domain, 32 |

A generator with state would have to be saved over preemption, rewound when drafts are
rejected and kept apart per request.  A counter needs none of it: the number for the token
at a position is the same in any batch, in any slot, and however often it is asked for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]

_ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Multipliers for words (2, 0): a round swaps the two halves of the counter.
_MULTIPLIERS = np.array([[0xCD9E8D57], [0xD2511F53]], np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)

# The last word of the counter tells apart what the numbers are for.
_FOR_UNIFORMS = 0
_FOR_SEEDS = 1


def philox4x32(counter: U64, key: U64) -> U64:
    """Philox4x32-10.  counter: [4, n], key: [2, n], 32-bit words in uint64; result: [4, n].

    Products of two 32-bit words fit into uint64, so nothing ever overflows.
    """
    even, odd = counter[0::2], counter[1::2]
    for turn in range(_ROUNDS):
        keys = (key + _WEYL * np.uint64(turn)) & _LOW
        product = even[::-1] * _MULTIPLIERS
        even = (product >> _HALF) ^ odd ^ keys
        odd = product & _LOW
    return np.stack((even[0], odd[0], even[1], odd[1]))


def uniforms(seeds: npt.ArrayLike, positions: npt.ArrayLike, stream: int = 0) -> F64:
    """Uniform numbers in [0, 1) with 53 bits, float64 [n].

    seeds: uint64 [n].  positions: int64 [n], the index of the token in its sequence.
    stream: in [0, 2**32), for callers that need several numbers at one position.
    """
    words = _words(np.asarray(seeds), np.asarray(positions), stream, _FOR_UNIFORMS)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def derive_seed(seed: int, index: int) -> int:
    """The seed of child `index` (>= 0) of `seed`, in [0, 2**64).

    Used for the outputs of one request with n > 1, and for requests without a seed of their
    own under the engine's seed.  Any integer serves as `seed`; its low 64 bits count.
    """
    own = np.array([seed % 2**64], np.uint64)
    return int(_words(own, np.array([index], np.uint64), 0, _FOR_SEEDS)[0])


def _words(
    seeds: npt.NDArray[np.integer],
    positions: npt.NDArray[np.integer],
    stream: int,
    domain: int,
) -> U64:
    """64 random bits each, uint64 [n]."""
    if not 0 <= stream < 2**32:
        raise ValueError(f"stream must be in [0, 2**32), found {stream}")
    seeds, positions = seeds.astype(np.uint64), positions.astype(np.uint64)
    counter = np.empty((4, len(positions)), np.uint64)
    counter[0], counter[1] = positions & _LOW, positions >> _HALF
    counter[2], counter[3] = stream, domain
    result = philox4x32(counter, np.stack((seeds & _LOW, seeds >> _HALF)))
    words: U64 = (result[0] << _HALF) | result[1]
    return words
