"""docs/kinds says what the code says, and a stable contract leaves nothing unsaid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from abc import abstractmethod
from pathlib import Path

import pytest

from framework.contracts.base import Contract, Supported
from framework.contracts.kernel import OPERATORS
from framework.plugins.kinds import KINDS, Stability
from framework.plugins.loading import contract_of
from framework.testing.conformance import Suite, clause, suite_of
from tools import kind_pages, markdown
from tools.gaps import gaps
from tools.surface import module_of

ROOT = Path(__file__).parents[2]
STABLE = [kind for kind in KINDS if kind.stability is Stability.STABLE]


@pytest.fixture(scope="module")
def made():
    """All pages."""
    return kind_pages.pages()


def test_pages_are_what_the_code_says(made):
    """A contract, a suite, an option or a template has changed: the mend is one command."""
    found = kind_pages.stale(made)
    assert not found, "\n".join([*found, kind_pages.MEND])


def test_pages_are_the_same_in_every_process(made):
    """No order of a set shows, so that two people who run `make docs` write the same."""
    code = "import json; from tools.kind_pages import pages; print(json.dumps(pages()))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == made


@pytest.mark.parametrize("kind", STABLE, ids=lambda kind: kind.name)
def test_a_stable_contract_has_docstrings_clauses_and_a_page(kind, made):
    page = made[f"{kind.name}.md"]
    found = list(gaps(contract_of(kind), module_of(kind), suite_of(kind.name), page))
    assert not found, "\n".join(found)


def test_the_page_of_kernels_says_what_each_operator_takes_and_gives(made):
    """Else nobody writes one from the page: "the rows of `OPERATORS`" is no answer."""
    page = made["kernel.md"]
    for name, operator in OPERATORS.items():
        rows = page.partition(f"\n`{name}`:\n")[2].partition("\n\n`")[0]
        assert operator.call in rows
        assert all(f"`{key}` {shape}" in rows for key, shape in operator.weights.items())
        assert all(f"`{one}`" in rows for one in (*operator.constants, *operator.traits))


def test_pages_say_what_is_read_called_and_awaited(made):
    """Who writes `call.program()` after a page that hides the property gets a TypeError."""
    assert "@property\n@abstractmethod\ndef program(self) -> str:" in made["command.md"]
    assert "@property\n@abstractmethod\ndef ended(self) -> bool:" in made["reasoning_parser.md"]
    assert "```python\n@abstractmethod\ndef run(self, call: Call) -> int:" in made["command.md"]
    assert "\nasync def serve(\n" in made["front_end.md"]


def test_stale_pages_are_named(tmp_path, monkeypatch):
    """Changed, missing and left over: each page is named, and the line where it differs."""
    made = {"a.md": "one\ntwo\n", "b.md": "b\n", "c.md": "c\n"}
    monkeypatch.setattr(kind_pages, "pages", lambda: made)
    monkeypatch.setattr(kind_pages, "FOLDER", tmp_path)
    (tmp_path / "a.md").write_text("one\nthree\n")
    (tmp_path / "c.md").write_text("c\n")
    (tmp_path / "gone.md").write_text("x")
    assert kind_pages.stale(made) == [
        "docs/kinds/b.md is not there",
        "docs/kinds/gone.md belongs to no kind",
        "docs/kinds/a.md is not what the code says, from line 2",
    ]
    kind_pages.main()
    assert kind_pages.stale(made) == []
    assert not (tmp_path / "gone.md").exists()


class Silent(Supported):
    pass


class Odd(Contract):
    """A contract with a gap of each sort."""

    kind = "odd"

    @abstractmethod
    def told(self) -> None:
        """It does what it says."""

    @abstractmethod
    def wordless(self) -> None: ...

    def unchecked(self) -> None:
        """No clause names it."""


Odd.__module__ = Silent.__module__ = "framework.contracts.odd"


class OddSuite(Suite):
    @clause("ODD-001", "it does", of=("told", "wordless", "gone"))
    def check(self) -> None: ...


def test_every_gap_is_told_by_name(monkeypatch):
    classes = [("Odd", Odd), ("Silent", Silent)]
    monkeypatch.setattr("tools.gaps.own_classes", lambda module: classes)
    page = "def told(self)\ndef unchecked(self)"
    assert list(gaps(Odd, types, OddSuite, page)) == [
        "Odd.wordless has no docstring",
        "Silent has no docstring",
        "Odd.unchecked has no clause: name it in `of=` of one",
        "clause ODD-001 is of gone, which Odd does not have",
        "Odd.wordless has no place in the page: run `make docs`",
    ]


def test_a_field_that_is_a_hint_is_marked_so(made):
    page = made["attention_backend.md"]
    assert "| 1.1, a hint |" in page
    assert markdown.HINT in page
    assert markdown.HINT not in made["kernel.md"]
