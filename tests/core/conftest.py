"""The published harness as fixtures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from framework.testing.harness import Answer, Harness


@pytest.fixture(scope="session")
def engine() -> Callable[..., Harness]:
    """Makes a harness: engine(policy=..., participants=..., runner={...}, **CoreConfig)."""
    return Harness


@pytest.fixture
def alone(engine: Callable[..., Harness]) -> Callable[..., Answer]:
    """The answer to one request in an engine of its own, with room for everything."""

    def ask(prompt: Sequence[int], max_tokens: int = 8, **more: Any) -> Answer:
        one = engine(runner={"num_pages": 500})
        one.add("alone", prompt, max_tokens, **more)
        return one.run()["alone"]

    return ask
