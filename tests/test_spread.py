"""Tests are spread over workers so that what is dear is set up once, and begun early."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.spread import LONG, TOGETHER, in_order, scope_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", [*TOGETHER, *LONG])
def test_what_is_named_is_there(name):
    place = ROOT / name
    assert place.is_dir() if name.endswith("/") else place.is_file()


def test_files_and_some_folders_stay_together_the_long_ones_first():
    folder, file = "tests/examples/", "tests/conformance/test_new.py"
    names = [
        "tests/a/test_one.py::test_a",
        "tests/a/test_two.py::test_a",
        f"{folder}test_b.py::test_a",
        "tests/a/test_two.py::test_b[x::y]",
        f"{file}::test_a",
        f"{folder}test_a.py::test_b",
    ]
    ordered = [item.nodeid for item in in_order([SimpleNamespace(nodeid=name) for name in names])]
    assert sorted(ordered) == sorted(names)
    scopes = list(dict.fromkeys(map(scope_of, ordered)))
    assert scopes == [folder, file, "tests/a/test_two.py", "tests/a/test_one.py"]
    assert [name for name in ordered if name.startswith(folder)] == [names[2], names[5]]
