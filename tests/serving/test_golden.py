"""Streams are what their golden files say (field bug 25)."""

from __future__ import annotations

import asyncio

import pytest

from tests.serving.golden import BODIES, FOLDER, streams


@pytest.fixture(scope="module")
def found():
    return asyncio.run(streams())


@pytest.mark.parametrize("name", BODIES)
def test_a_stream_is_what_its_golden_file_says(found, name):
    assert found[name] == (FOLDER / f"{name}.sse").read_text("utf-8")


def test_there_is_no_golden_file_that_nobody_compares():
    assert {path.stem for path in FOLDER.iterdir()} == set(BODIES)
