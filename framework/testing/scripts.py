"""What a scripted runner says: functions of a request, a position and the tokens before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from framework.contracts.pooling import PoolingParams
from framework.contracts.step import F32, AdmittedRequest

Script = Callable[[AdmittedRequest, int, int], int]
Drafter = Callable[[AdmittedRequest, Sequence[int], int], Sequence[int]]

_MASK = (1 << 63) - 1


def fingerprint(before: int, token: int) -> int:
    """Fingerprint of a sequence, from that of all but its last token."""
    return (before * 6364136223846793005 + (token + 1) * 1442695040888963407) & _MASK


def by_fingerprint(vocab_size: int) -> Script:
    """Tokens that depend on everything before them."""
    return lambda request, position, before: (before >> 17) % vocab_size


def from_outputs(outputs: Mapping[str, Sequence[int]], default: int = 0) -> Script:
    """Given outputs by request id; after their end `default`."""

    def script(request: AdmittedRequest, position: int, before: int) -> int:
        given = outputs[request.request_id]
        index = position - request.num_prompt
        return given[index] if index < len(given) else default

    return script


def expected_tokens(prompt: Sequence[int], count: int, vocab_size: int = 1000) -> list[int]:
    """What `by_fingerprint` makes of a prompt, computed without an engine."""
    before, tokens = 1, []
    for token in prompt:
        before = fingerprint(before, token)
    for _ in range(count):
        tokens.append((before >> 17) % vocab_size)
        before = fingerprint(before, tokens[-1])
    return tokens


def pooled(tokens: Sequence[int], size: int, params: PoolingParams) -> F32:
    """A vector that tells prompts apart: number i is the mean of the tokens at i, i + size ...,
    each at its own weight."""
    vector = np.zeros(size)
    for position, token in enumerate(tokens):
        vector[position % size] += (token + 1) / (position + 1)
    vector = vector[: params.dimensions] / len(tokens)
    return (vector / np.linalg.norm(vector) if params.normalize else vector).astype(np.float32)


def classified(tokens: Sequence[int], classes: int, params: PoolingParams) -> F32:
    """A number for each class that tells prompts apart, or probabilities that follow from them."""
    numbers = pooled(tokens, classes, PoolingParams()).astype(np.float64) / 100
    if params.use_activation is not False:
        powers = np.exp(numbers - numbers.max())
        numbers = powers / powers.sum()
    return numbers.astype(np.float32)


def vector_of(
    tokens: Sequence[int], params: PoolingParams | None, classes: int, size: int | None
) -> F32 | None:
    """What is asked for, of `classes` classes or of an embedding of `size` numbers; None where
    nothing is, or there is none of it."""
    if params is None:
        return None
    if params.task == "classify":
        return classified(tokens, classes, params) if classes else None
    return None if size is None else pooled(tokens, size, params)
