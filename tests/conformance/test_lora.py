"""One broken format of adapters for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from framework.contracts.base import Rejected, Rejection, Supported
from framework.contracts.lora import Adapter, AdapterFormat, LowRank
from framework.errors import ModelError
from framework.testing.conformance import Layer, check
from framework.testing.conformance.suites.lora import AdapterFormatSuite
from tests.conformance.fake_time import timed
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

FILE = "numbers.json"
READS = (*(f"LORA-01{n}" for n in range(10)), "LORA-020")
COUNTER = itertools.count()


class Plain(AdapterFormat):
    """Numbers in JSON, which keeps each float32."""

    field, code = "files", "files"

    def answer(self, query):
        if FILE in query.files:
            return Supported()
        reason = Rejection(
            code=self.code, field=self.field, found="?", needed=FILE, remedy="name another"
        )
        return Rejected((reason,))

    def read(self, root):
        try:
            given = json.loads((root / FILE).read_text())
            return Adapter(updates={name: self.update(*one) for name, one in given.items()})
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise ModelError("damaged", mend="write it anew") from error

    def update(self, down, up, scale):
        for part in (down, up):
            if not np.isfinite(part).all():
                raise ModelError("not finite", mend="write it anew")
        return LowRank(down=torch.tensor(down), up=torch.tensor(up), scale=scale)

    def write(self, root, adapter):
        given = {
            name: (one.down.tolist(), one.up.tolist(), one.scale)
            for name, one in adapter.updates.items()
        }
        (root / FILE).write_text(json.dumps(given))


@breaks("LORA-001", "LORA-002", "LORA-003", "LORA-004", "LORA-011")
class LooksIntoTheFolder(Plain):
    """To answer."""

    def answer(self, query):
        list(query.root.iterdir())
        return super().answer(query)


SaysNone, NamesNoField, NamesNoCode = bad_answers(
    Plain, "LORA-001", "LORA-002", also=("LORA-003", "LORA-011")
)


@breaks("LORA-003")
class TakesAnything(Plain):
    """Whatever the folder holds, so that no other format is asked."""

    def answer(self, query):
        return Supported()


@breaks("LORA-004", "LORA-003", "LORA-011")
class ChangesItsMind(Plain):
    """Every other time."""

    def answer(self, query):
        return Supported() if next(COUNTER) % 2 else super().answer(query)


@breaks("LORA-010", "LORA-012", "LORA-013", "LORA-019")
class RoundsNumbers(Plain):
    """To sixteen bits."""

    def update(self, down, up, scale):
        one = super().update(down, up, scale)
        return dataclasses.replace(one, down=one.down.half().float())


@breaks("LORA-010", "LORA-013", "LORA-019")
class ForgetsTheScale(Plain):
    """Leaves it at one."""

    def update(self, down, up, scale):
        return super().update(down, up, 1.0)


@breaks("LORA-010", "LORA-013", "LORA-019")
class LosesAModule(Plain):
    """The last one, without a word."""

    def read(self, root):
        adapter = super().read(root)
        kept = dict(list(adapter.updates.items())[:-1])
        return dataclasses.replace(adapter, updates=kept)


@breaks("LORA-010", *READS)
class GivesAMapping(Plain):
    """In the place of an Adapter."""

    def read(self, root):
        return super().read(root).updates


@breaks("LORA-011")
class DoesNotKnowItsOwn(Plain):
    """Looks for a file that it does not write."""

    def answer(self, query):
        return super().answer(dataclasses.replace(query, files=query.files - {FILE}))


@breaks("LORA-012")
class LeavesANote(Plain):
    """In the folder, which may be read-only or shared."""

    def read(self, root):
        adapter = super().read(root)
        (root / "read.txt").write_text("yes")
        return adapter


@breaks("LORA-013")
class ReadsLater(Plain):
    """A view of the file, which is read as it is used."""

    def write(self, root, adapter):
        for number, (name, one) in enumerate(adapter.updates.items()):
            np.save(root / f"{number}.npy", one.down.numpy())
            (root / f"{number}.name").write_text(name)
        super().write(root, adapter)

    def read(self, root):
        adapter, updates = super().read(root), {}
        for number, (name, one) in enumerate(adapter.updates.items()):
            try:
                mapped = np.load(root / f"{number}.npy", mmap_mode="r+")
                assert (root / f"{number}.name").read_text() == name
            except Exception as error:
                raise ModelError("damaged", mend="write it anew") from error
            if mapped.shape != one.down.shape:
                raise ModelError("damaged", mend="write it anew")
            updates[name] = dataclasses.replace(one, down=torch.from_numpy(mapped))
        return Adapter(updates=updates)


class Lenient(Plain):
    """Takes an adapter that changes nothing for what it cannot read."""

    forgiven: tuple[type[Exception], ...] = ()

    def read(self, root):
        try:
            return super().read(root)
        except ModelError as error:
            if isinstance(error.__cause__, self.forgiven):
                return Adapter(updates={})
            raise


@breaks("LORA-014")
class TakesNothingForNothing(Lenient):
    """A file that is not there changes nothing."""

    forgiven = (OSError,)


@breaks("LORA-015", "LORA-016")
class TakesHalves(Lenient):
    """A file that is cut off changes nothing."""

    forgiven = (json.JSONDecodeError,)


@breaks("LORA-016")
class FallsOverDepth(Plain):
    """An error of the parser, as it comes."""

    def read(self, root):
        text = (root / FILE).read_text(errors="replace") if (root / FILE).exists() else ""
        if text.startswith("[["):
            raise RecursionError("too deep")
        return super().read(root)


@breaks("LORA-014", "LORA-015", "LORA-016")
class NoMend(Plain):
    """Says what is wrong, and not what to do."""

    def read(self, root):
        try:
            return super().read(root)
        except ModelError as error:
            raise ModelError(error.message) from None


@breaks("LORA-017")
class TakesAnyNumber(Plain):
    """Also what is none."""

    def update(self, down, up, scale):
        return LowRank(down=torch.tensor(down), up=torch.tensor(up), scale=scale)


@breaks("LORA-001")
class LooksElsewhere(Plain):
    """For a list of adapters that somebody may have left."""

    def answer(self, query):
        with contextlib.suppress(OSError):
            Path("/no/such/home/adapters.json").read_text()
        return super().answer(query)


@breaks("LORA-018")
class CountsWide(Plain):
    """In numpy's own type."""

    def update(self, down, up, scale):
        one = super().update(down, up, scale)
        return dataclasses.replace(one, down=one.down.double())


@breaks("LORA-018")
class StaysTrainable(Plain):
    """As the trainer had it."""

    def update(self, down, up, scale):
        one = super().update(down, up, scale)
        return dataclasses.replace(one, up=one.up.requires_grad_())


@breaks("LORA-018")
class ScalesByNumpy(Plain):
    """A number of numpy's, which no JSON takes."""

    def update(self, down, up, scale):
        one = super().update(down, up, scale)
        return dataclasses.replace(one, scale=np.float32(scale))


@breaks("LORA-019")
class KnowsLlama(Plain):
    """Modules of layers, by the pattern of one family."""

    def read(self, root):
        adapter = super().read(root)
        kept = {n: one for n, one in adapter.updates.items() if n.startswith("model.layers.")}
        return dataclasses.replace(adapter, updates=kept)


@breaks("LORA-020")
class LeavesACopy(Plain):
    """In the folder of temporary files."""

    def read(self, root):
        adapter = super().read(root)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("read")
        return adapter


@breaks("LORA-020")
class AsksItsHome(Plain):
    """For settings of its own."""

    def read(self, root):
        with contextlib.suppress(OSError):
            Path("/no/such/home/settings.json").read_text()
        return super().read(root)


@breaks("ALL-030")
class SeedsTorch(Plain):
    """So that each adapter is the same."""

    def read(self, root):
        torch.manual_seed(0)
        return super().read(root)


@breaks("LORA-021")
class KnowsTheFolder(Plain):
    """Has read it already."""

    def __init__(self, options=None):
        super().__init__(options)
        self.known = {}

    def read(self, root):
        if root not in self.known:
            self.known[root] = super().read(root)
        return self.known[root]


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, AdapterFormatSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(AdapterFormatSuite, MUTANTS) == set()
    assert unpaired(AdapterFormatSuite) == set()


def test_a_sound_format_conforms():
    report = check(Plain, suite=timed(AdapterFormatSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()
    checked = [o for o in report.outcomes if o.clause.layer is not Layer.IMPORT]
    assert report.counts()["passed"] == len(checked)


def test_the_built_in_format_conforms():
    report = check("lora:peft")
    assert not report.failures, report.text()
    assert not skipped(report)
