"""What the suite of hooks is about: events, requests in them, and what is kept of them."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from framework.contracts.messages import EngineInput
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.testing.conformance.cases import Case

NAMES = ("", "client 7", "caf\u00e9 \u4e2d\U0001f600", "a/b:c\n", "7")
"""What clients and tenants may call themselves."""


def request(case: Case, number: int) -> EngineInput:
    """With and without what a request may leave out."""
    rng = case.rng
    tokens = rng.integers(0, 1000, int(rng.integers(1, 30))).astype(np.int32)
    trace = {"traceparent": f"00-{number:032x}-{number:016x}-01"}
    return EngineInput(
        request_id=f"{number}-0",
        client_id=NAMES[int(rng.integers(len(NAMES)))],
        tokens=tokens,
        sampling=SamplingParams(max_tokens=8 if number % 4 else None),
        seed=number,
        max_total=len(tokens) + 8,
        stop_ids=(2,) if number % 2 else (),
        tenant=NAMES[int(rng.integers(len(NAMES)))],
        deadline=3.5 if number % 3 == 0 else None,
        pooling=PoolingParams() if number % 7 == 6 else None,
        trace_headers=trace if number % 2 else {},
        extras={"a": b"x"} if number % 5 else {},
    )


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Bytes in use, of what was made since; log records are left out, which a handler may keep."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        logging.disable(before)


def frozen(value: object) -> object:
    """A value that later changes of `value` do not reach."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, EngineInput):
        return {name: frozen(getattr(value, name)) for name in value.__struct_fields__}
    return value
