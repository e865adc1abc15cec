"""One broken compiler for each clause of the suite; the built-in one passes it."""

from __future__ import annotations

import hashlib
import itertools
import pickle
import shutil
from typing import ClassVar

import pytest

from framework.contracts.base import Rejected, Rejection, Supported
from framework.contracts.compiler import Compiler
from framework.errors import ModelError, UnsupportedError
from framework.testing.conformance import Layer, check
from framework.testing.conformance.suites.compiler import CompilerSuite
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

COUNTER = itertools.count()
SERVED = {"tensor_api": "torch", "device": "cpu", "dtype": "float32"}
LOADS = tuple(f"COMP-01{n}" for n in range(4))
ALL_CODE = ("COMP-004", *LOADS)


class Plain(Compiler):
    """Code is the pickled function behind its hash."""

    field, code = None, "no"

    def answer(self, query):
        reasons = tuple(
            Rejection(
                code=self.code,
                field=self.field or field,
                found=getattr(query, field),
                needed=value,
                remedy="another",
            )
            for field, value in SERVED.items()
            if getattr(query, field) != value
        )
        return Rejected(reasons) if reasons else Supported()

    def identity(self):
        return "pickle"

    def compile(self, pieces):
        return [self.code_of(piece) for piece in pieces]

    def code_of(self, piece):
        self.try_out(piece)
        data = pickle.dumps(piece.function)
        return hashlib.sha256(data).digest() + data

    def try_out(self, piece):
        import torch

        rows = piece.least
        shapes = [[rows if n is None else n for n in each.shape] for each in piece.arguments]
        try:
            piece.function(*(torch.zeros(shape) for shape in shapes))
        except ArithmeticError as error:
            raise UnsupportedError(
                f"{piece.name} cannot be compiled", found=f"{type(error).__name__}: {error}"
            ) from error

    def load(self, code):
        if hashlib.sha256(code[32:]).digest() != code[:32]:
            raise ModelError("damaged", mend="compile it anew")
        return pickle.loads(code[32:])


class Changed(Plain):
    """Has `change`: of what a piece's function is called with and gives."""

    def load(self, code):
        function = super().load(code)
        return lambda *tensors: self.change(function, *tensors)


SaysNone, NamesNoField, NamesNoCode = bad_answers(Plain, "COMP-001", "COMP-002", also=("COMP-003",))
breaks("COMP-002", "COMP-003")(NamesNoField)


@breaks("COMP-001", "COMP-002", "COMP-003", *ALL_CODE, "COMP-014", "COMP-015")
class ChangesItsMind(Plain):
    """Every other time."""

    def answer(self, query):
        if next(COUNTER) % 2:
            return super().answer(query)
        return Supported(note="this time")


@breaks("COMP-003")
class TakesAnyType(Plain):
    """Also those of which it never heard."""

    def answer(self, query):
        import dataclasses

        return super().answer(dataclasses.replace(query, dtype="float32"))


@breaks("COMP-004")
class CountsItsIdentity(Plain):
    """So that nothing that is kept is found again."""

    def identity(self):
        return str(next(COUNTER))


@breaks("COMP-004")
class HasNoIdentity(Plain):
    """So that code of another machine is found."""

    def identity(self):
        return ""


@breaks("COMP-010", "COMP-011", "COMP-012")
class LeavesARow(Changed):
    """The last one, which is what another number of rows was compiled for."""

    def change(self, function, *tensors):
        result = function(*tensors)
        result[-1] = 0
        return result


@breaks("COMP-010", *ALL_CODE)
class MixesUpPieces(Plain):
    """Gives the codes in another order."""

    def compile(self, pieces):
        return super().compile(pieces)[::-1]


@breaks("COMP-010", *ALL_CODE, "COMP-014")
class GivesFunctions(Plain):
    """What a file cannot hold."""

    def code_of(self, piece):
        return piece.function

    def load(self, code):
        if isinstance(code, bytes):
            raise ModelError("damaged", mend="compile it anew")
        return code


@breaks("COMP-011", "COMP-010", "COMP-012")
class ChangesItsArgument(Changed):
    """In place, as a function that may would."""

    def change(self, function, *tensors):
        result = function(*tensors)
        tensors[0].add_(1)
        return result


@breaks("COMP-011", "COMP-012")
class KeepsItsResult(Plain):
    """One buffer for all calls."""

    def load(self, code):
        function, kept = super().load(code), {}

        def call(*tensors):
            result = function(*tensors)
            buffer = kept.setdefault(result.shape, result)
            return buffer.copy_(result)

        return call


@breaks("COMP-012", "COMP-010", "COMP-011")
class LoadsOnce(Plain):
    """And then never again what was loaded before."""

    loaded: ClassVar[set[bytes]] = set()

    def load(self, code):
        function = super().load(code)
        if code in self.loaded:
            raise ModelError("loaded already", mend="start anew")
        self.loaded.add(code)
        return function


@breaks("COMP-013")
class TrustsItsCode(Plain):
    """Whatever it is."""

    def load(self, code):
        return pickle.loads(code[32:])


@breaks("COMP-013")
class NoMend(Plain):
    """Says what is wrong, and not what to do."""

    def load(self, code):
        try:
            return super().load(code)
        except ModelError as error:
            raise ModelError(error.message) from None


@breaks("COMP-014")
class LetsErrorsThrough(Plain):
    """As they come out of the function."""

    def try_out(self, piece):
        try:
            super().try_out(piece)
        except UnsupportedError as error:
            raise error.__cause__ from None


@breaks("COMP-014")
class CompilesAnything(Plain):
    """The fault comes with the first request."""

    def try_out(self, piece):
        pass


@breaks("COMP-014")
class SaysNotWhy(Plain):
    """Only that it cannot."""

    def try_out(self, piece):
        try:
            super().try_out(piece)
        except UnsupportedError as error:
            raise UnsupportedError(error.message) from None


@breaks("COMP-015")
class AlwaysGivesOne(Plain):
    """Where nothing was asked for."""

    def compile(self, pieces):
        return super().compile(pieces) or [b""]


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    assert_caught(mutant, CompilerSuite)


def test_every_clause_has_a_mutant_and_every_capability_both_sides():
    assert uncovered(CompilerSuite, MUTANTS) == set()
    assert unpaired(CompilerSuite) == set()


def test_a_sound_compiler_conforms():
    report = check(Plain, suite=timed(CompilerSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()
    checked = [o for o in report.outcomes if o.clause.layer is not Layer.IMPORT]
    assert report.counts()["passed"] == len(checked)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler of C++")
def test_the_built_in_compiler_conforms():
    report = check("compiler:inductor")
    assert not report.failures, report.text()
    assert not skipped(report)
