"""A tiny random Llama behind `LLM`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.parity.tiny import Tiny, make_tiny


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def llm(model: Tiny) -> Iterator[Any]:
    from framework import LLM

    with LLM(model.folder, dtype="float32") as opened:
        yield opened
