"""Tiny random models, their references, and the demo model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.tiny import Tiny, make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tiny]:
    """tiny(architecture): a random model on disk and transformers' answers to its prompts."""
    made: dict[str, Tiny] = {}

    def get(name: str) -> Tiny:
        if name not in made:
            made[name] = make_tiny(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="session")
def goldens() -> list[dict[str, Any]]:
    """References of the demo model; see make_goldens.py."""
    rows: list[dict[str, Any]] = json.loads((Path(__file__).parent / "smollm2.json").read_text())[
        "rows"
    ]
    return rows


@pytest.fixture(scope="session")
def demo() -> Iterator[Any]:
    """The demo model in plain float32."""
    from framework import LLM

    with LLM("demo", dtype="float32", max_model_len=1024, max_num_seqs=64) as llm:
        yield llm
