"""Engines that the tests of the matrix share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("torch")

from framework_torch.drafting.lengths import DraftLengths
from tests.composition.matrix import Matrix
from tests.composition.models import Engines, Models


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    made = Engines(Models(tmp_path_factory.mktemp("composition")))
    yield made
    made.close()


@pytest.fixture(scope="session")
def matrix(engines: Engines) -> Matrix:
    return Matrix(engines)


@pytest.fixture(autouse=True)
def all_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be, however few are right."""
    monkeypatch.setattr(
        DraftLengths, "wanted", lambda self, slots, rows: np.full(len(slots), 4, np.int32)
    )
