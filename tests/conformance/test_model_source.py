"""One broken model source for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from pathlib import Path

import pytest

from framework.contracts.base import Rejected, Rejection, Supported
from framework.contracts.model_source import ModelSource
from framework.errors import ModelError
from framework.testing.conformance import Layer, check
from framework.testing.conformance.suites.model_source import ModelSourceSuite
from tests.conformance.fake_time import spend, timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    bad_answers,
    breaks,
    mutants_of,
    skipped,
    uncovered,
    unpaired,
)

FETCHES = tuple(f"SRC-01{n}" for n in range(6))
COUNTER = itertools.count()


class Plain(ModelSource):
    """Folders that begin with a slash."""

    field, code = "name", "path"

    def answer(self, query):
        if query.name.startswith("/"):
            return Supported()
        reason = Rejection(
            code=self.code, field=self.field, found="?", needed="a path", remedy="name a folder"
        )
        return Rejected((reason,))

    def fetch(self, query):
        root = Path(query.name)
        if "\0" in query.name or not root.is_dir():
            raise ModelError("there is no such folder", mend="name one")
        if query.revision is not None:
            raise ModelError("a folder has no revisions", mend="leave it out")
        return root, tuple(root.glob("*.safetensors")) if query.want_weights else ()


@breaks("SRC-001", *(f"SRC-00{n}" for n in range(2, 7)))
class OnlyShortNames(Plain):
    """Looks at the second letter."""

    def answer(self, query):
        assert query.name[1]
        return super().answer(query)


SaysNone, NamesNoField, NamesNoCode = bad_answers(Plain, "SRC-001", "SRC-002")


@breaks("SRC-003")
class AsksTheHub(Plain):
    """Whether the name exists there."""

    def answer(self, query):
        if query.token and "/" in query.name[1:]:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", 9), timeout=0.01).close()
        return super().answer(query)


@breaks("SRC-004")
class Slow(Plain):
    """Takes its time to answer."""

    def answer(self, query):
        if query.token:
            spend(1.0)
        return super().answer(query)


@breaks("SRC-005")
class ChangesItsMind(Plain):
    """Answers otherwise the second time."""

    def __init__(self, options=None):
        super().__init__(options)
        self.seen = set()

    def answer(self, query):
        if query.name in self.seen:
            return Supported()
        self.seen.add(query.name)
        return super().answer(query)


@breaks("SRC-006")
class ShowsTheQuery(Plain):
    """With all that is in it."""

    def answer(self, query):
        return Supported(note=f"{query.name} {query.token}") if query.token else Supported()


@breaks("SRC-010", "SRC-011", "SRC-012")
class GivesNames(Plain):
    """Texts in place of paths."""

    def fetch(self, query):
        root, weights = super().fetch(query)
        return root, tuple(file.name for file in weights) or ("config.json",)


@breaks("SRC-011")
class CopiesAnew(Plain):
    """Another folder each time."""

    def fetch(self, query):
        root, weights = super().fetch(query)
        if query.want_weights:
            copy = root / f"copy{next(COUNTER)}.safetensors"
            copy.write_bytes(weights[0].read_bytes())
            return root, (copy,)
        return root, weights


@breaks("SRC-012")
class SmallFilesElsewhere(Plain):
    """Without weights it is the folder above."""

    def fetch(self, query):
        root, weights = super().fetch(query)
        return (root, weights) if query.want_weights else (root.parent, ())


@breaks("SRC-012")
class FetchesAll(Plain):
    """Whoever asks for a tokenizer may want the weights later."""

    def fetch(self, query):
        root, _ = super().fetch(query)
        return root, tuple(root.glob("*.safetensors"))


@breaks("SRC-013")
class IgnoresRevisions(Plain):
    """Whatever is there will do."""

    def fetch(self, query):
        root = Path(query.name)
        if "\0" in query.name or not root.is_dir():
            raise ModelError("there is no such folder", mend="name one")
        return root, tuple(root.glob("*.safetensors")) if query.want_weights else ()


@breaks("SRC-014")
class NoMend(Plain):
    """Says what is wrong, and not what to do."""

    def fetch(self, query):
        try:
            return super().fetch(query)
        except ModelError as error:
            raise ModelError(error.message) from None


@breaks("SRC-014", "SRC-015")
class OtherErrors(Plain):
    """An error of the system, as it comes."""

    def fetch(self, query):
        list(Path(query.name).iterdir())
        return super().fetch(query)


@breaks("SRC-015")
class ShowsTheToken(Plain):
    """In the message."""

    def fetch(self, query):
        try:
            return super().fetch(query)
        except ModelError as error:
            raise ModelError(f"{error.message} with {query.token}", mend=error.mend) from None


@breaks("ALL-030")
class SetsTheEnvironment(Plain):
    """For the library that it asks."""

    def fetch(self, query):
        os.environ["HF_HOME"] = query.name
        return super().fetch(query)


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, ModelSourceSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(ModelSourceSuite, MUTANTS) == set()
    assert unpaired(ModelSourceSuite) == set()


def test_a_sound_source_conforms():
    report = check(Plain, suite=timed(ModelSourceSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()
    checked = [o for o in report.outcomes if o.clause.layer is not Layer.IMPORT]
    assert report.counts()["passed"] == len(checked)


@pytest.mark.parametrize("name", ["local", "demo", "hub"])
def test_the_built_in_sources_conform(name):
    """What the hub has is tried beside its plugin, on a hub of this machine."""
    report = check(f"model_source:{name}")
    assert not report.failures, report.text()
    assert not skipped(report)
