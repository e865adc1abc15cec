"""The suite of kernels: it catches broken ones, and finds no fault in ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from framework.contracts.base import Rejected, Rejection, Supported
from framework.contracts.kernel import Prepared
from framework.testing.conformance import Status, check
from framework.testing.conformance.suites.kernel import KernelSuite
from framework_cpu_paged.packed_kernel import CpuPackedKernel
from framework_torch.kernels.plain import PlainKernel
from tests.conformance.fake_time import timed
from tests.conformance.mutants import (
    IN_PROCESS,
    assert_caught,
    assert_fails,
    breaks,
    mutants_of,
    uncovered,
    unpaired,
)
from tests.conformance.sites import put

COMPUTES = tuple(f"KERN-{number:03}" for number in (*range(20, 29), 101, 102, 103, 106, 107, 108))
"""Clauses that compare results, any of which a wrong result may break."""


def rejected(query, field):
    found = getattr(query, field)
    reason = Rejection(code=field, field=field, found=found, needed="another", remedy="ask others")
    return Rejected((reason,))


class Changed(PlainKernel):
    """The plain kernel with another answer, or another result."""

    def __init_subclass__(cls):
        cls.__doc__ = "Broken on purpose."

    def answer(self, query):
        return self.answered(query, super().answer(query))

    def answered(self, query, answer):
        return answer

    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        call = prepared.call
        return replace(prepared, call=lambda x: self.computed(call(x), x, query))

    def computed(self, result, x, query):
        return result


@breaks("KERN-001")
class Wavers(Changed):
    def answered(self, query, answer):
        self.count = getattr(self, "count", 0) + 1
        good = isinstance(answer, Supported)
        return replace(answer, note=f"asked {self.count} times") if good else answer


@breaks("KERN-002")
class KnowsNoMend(Changed):
    def answered(self, query, answer):
        if isinstance(answer, Supported):
            return answer
        return Rejected(tuple(replace(reason, remedy="") for reason in answer.reasons))


@breaks("KERN-003")
class PassesOverTraits(Changed):
    def answer(self, query):
        return super().answer(replace(query, traits=query.traits & {"bias", "offset"}))


@breaks("KERN-004")
class TellsOneReason(Changed):
    def answered(self, query, answer):
        return Rejected(answer.reasons[:1]) if isinstance(answer, Rejected) else answer


@breaks("KERN-006")
class PromisesNothing(Changed):
    def answered(self, query, answer):
        return replace(answer, error=1.0) if isinstance(answer, Supported) else answer


@breaks("KERN-010")
class ServesNothing(Changed):
    def answered(self, query, answer):
        return rejected(query, "dtype")


@breaks("KERN-020", *COMPUTES)
class NeedsRows(Changed):
    def computed(self, result, x, query):
        return result if len(x) else result[0]


@breaks("KERN-021")
class ReturnsFloat64(Changed):
    def computed(self, result, x, query):
        return result.double()


@breaks("KERN-021")
class KeepsAGradient(Changed):
    def computed(self, result, x, query):
        return result.requires_grad_()


@breaks("KERN-022")
class UsesUpItsArgument(Changed):
    def computed(self, result, x, query):
        x.zero_()
        return result


@breaks("KERN-023")
class KeepsItsResult(Changed):
    def prepare(self, query, weights, constants):
        prepared, own = super().prepare(query, weights, constants), []

        def call(x):
            result = PlainKernel.prepare(self, query, weights, constants).call(x)
            if not own or own[0].shape != result.shape:
                own[:] = [result]
            return own[0].copy_(result)

        return replace(prepared, call=call)


@breaks("KERN-024")
class ServesTheLastUse(Changed):
    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        self.last = prepared.call
        return replace(prepared, call=lambda x: self.last(x))


@breaks("KERN-024")
class KnowsUsesByTheirSizes(Changed):
    def prepare(self, query, weights, constants):
        known = self.__dict__.setdefault("known", {})
        key = repr((query, constants))
        if key not in known:
            known[key] = super().prepare(query, weights, constants)
        return known[key]


@breaks("KERN-025", "KERN-105")
class SaysThatItPacks(Changed):
    def answered(self, query, answer):
        return replace(answer, packs=True) if isinstance(answer, Supported) else answer

    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        return replace(prepared, keeps_weights=False, num_bytes=8)


@breaks("KERN-026")
class ClipsWeights(Changed):
    def prepare(self, query, weights, constants):
        clipped = {name: weight.clamp(-1000, 1000) for name, weight in weights.items()}
        return super().prepare(query, clipped, constants)


@breaks("KERN-027")
class MixesRows(Changed):
    def computed(self, result, x, query):
        return result + (0 * x.float().sum()).to(result.dtype)


@breaks("KERN-028")
class TakesRowsForSideBySide(Changed):
    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)

        def call(x):
            strides = torch.empty(x.shape).stride()
            return prepared.call(x.as_strided(x.shape, strides, x.storage_offset()))

        return replace(prepared, call=call)


@breaks("KERN-029")
class ReturnsColumns(Changed):
    def computed(self, result, x, query):
        return result.transpose(-1, -2).contiguous().transpose(-1, -2)


@breaks("KERN-030", "ALL-030")
class ComputesInAThreadOfItsOwn(Changed):
    """So that nothing disturbs it."""

    def computed(self, result, x, query):
        torch.set_num_threads(1)
        return result


@breaks("KERN-030", "ALL-030", *COMPUTES)
class ComputesInItsOwnType(Changed):
    def prepare(self, query, weights, constants):
        torch.set_default_dtype(torch.bfloat16)
        return super().prepare(query, weights, constants)


@breaks("KERN-101", *COMPUTES)
class ErrsInLinear(Changed):
    def computed(self, result, x, query):
        return result * 1.1 if query.op == "linear" else result


@breaks("KERN-101", *COMPUTES)
class ForgetsWhatFollowsTheFirstTile(Changed):
    """Right in decoding, wrong in the prompt."""

    def computed(self, result, x, query):
        if query.op == "linear" and len(result) > 256:
            result[256:] = 0
        return result


@breaks("KERN-102", *COMPUTES)
class ErrsInLogits(Changed):
    def computed(self, result, x, query):
        return result * 1.1 if query.op == "logits" else result


@breaks("KERN-103", *COMPUTES)
class ErrsInNorms(Changed):
    def computed(self, result, x, query):
        return result * 1.1 if query.op == "rms_norm" else result


@breaks("KERN-103")
class NeedsTwoDimensions(Changed):
    def computed(self, result, x, query):
        return result.flatten(0, -2)


@breaks("KERN-104", *COMPUTES)
class DependsOnTheNumberOfRows(Changed):
    def computed(self, result, x, query):
        return result * (1 + 2e-8 * len(x))


@breaks("KERN-105")
class KeepsSharedWeightsTwice(Changed):
    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        return replace(prepared, keeps_weights=not query.keep_once, num_bytes=8 * query.keep_once)


class ChangedLayers(CpuPackedKernel):
    """The packed kernel with another result."""

    def __init_subclass__(cls):
        cls.__doc__ = "Broken on purpose."

    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        if isinstance(prepared, Rejected):
            return prepared
        call = prepared.call
        return replace(prepared, call=lambda *x: self.computed(call(*x), query))

    def computed(self, result, query):
        return result


@breaks("KERN-105")
class GivesRowsOfOthers(ChangedLayers):
    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        rows = getattr(prepared, "rows", None)
        return replace(prepared, rows=lambda ids: rows(ids) * 1.01) if rows else prepared


@breaks("KERN-106", "KERN-109", "KERN-110")
class LosesUnasked(ChangedLayers):
    def prepare(self, query, weights, constants):
        return super().prepare(replace(query, lossless=False), weights, constants)


class Through:
    """Weights that are read by rows, otherwise."""

    def __init__(self, weight, change):
        self.shape, self.dtype, self.whole = weight.shape, weight.dtype, weight.whole
        self.rows = lambda start, stop: change(weight, start, stop)


class ReadsOtherwise(ChangedLayers):
    """The packed kernel with other rows."""

    def prepare_rows(self, query, weights, constants):
        changed = {
            name: Through(weight, self.read) if hasattr(weight, "rows") else weight
            for name, weight in weights.items()
        }
        return super().prepare_rows(query, changed, constants)

    def read(self, weight, start, stop):
        return weight.rows(start, stop)


@breaks("KERN-031", "KERN-032")
class ReadsTheFirstRowsAgain(ReadsOtherwise):
    def read(self, weight, start, stop):
        return weight.rows(0, stop - start)


@breaks("KERN-031", "KERN-032", "KERN-033")
class ReadsBeyondTheLastRow(ReadsOtherwise):
    def read(self, weight, start, stop):
        return weight.rows(start, stop + 1)[: stop - start]


@breaks("KERN-032")
class ClipsRows(ReadsOtherwise):
    def read(self, weight, start, stop):
        return weight.rows(start, stop).clamp(-1000, 1000)


@breaks("KERN-033")
class KeepsWhatItRead(ReadsOtherwise):
    def read(self, weight, start, stop):
        weight.kept = weight.rows(start, stop)
        return weight.kept


@breaks("KERN-033")
class KeepsWhatItNeverHad(ReadsOtherwise):
    def prepare_rows(self, query, weights, constants):
        prepared = super().prepare_rows(query, weights, constants)
        parted = any(hasattr(weight, "rows") for weight in weights.values())
        good = parted and isinstance(prepared, Prepared)
        return replace(prepared, keeps_weights=True) if good else prepared


@breaks("KERN-107", *COMPUTES)
class ErrsInLayerInputs(ChangedLayers):
    def computed(self, result, query):
        return result * 1.1 if query.op == "layer_input" else result


@breaks("KERN-108", *COMPUTES)
class ErrsInLayerOutputs(ChangedLayers):
    def computed(self, result, query):
        return result * 1.1 if query.op == "layer_output" else result


class ChangedWithin(CpuPackedKernel):
    """Other updates within layers."""

    def __init_subclass__(cls):
        cls.__doc__ = "Broken on purpose."

    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        call = getattr(prepared, "call", None)
        if not hasattr(call, "updated"):
            return prepared

        def plain(*args):
            return call(*args)

        plain.updated = lambda *args: call.updated(*args[:-1], self.changed(args[-1]))
        return replace(prepared, call=plain)


@breaks("KERN-111")
class ForgetsTheLastMap(ChangedWithin):
    def changed(self, updates):
        return {name: given for name, given in updates.items() if name != "down"}


@breaks("KERN-111")
class UpdatesAllRows(ChangedWithin):
    def changed(self, updates):
        return {name: [(call, None) for call, _ in own] for name, own in updates.items()}


@breaks("KERN-111")
class AddsTwice(ChangedWithin):
    def changed(self, updates):
        return {name: own * 2 if name == "weight" else own for name, own in updates.items()}


class ChangedUpdates(CpuPackedKernel):
    """Another update of adapters."""

    def __init_subclass__(cls):
        cls.__doc__ = "Broken on purpose."

    def prepare(self, query, weights, constants):
        prepared = super().prepare(query, weights, constants)
        if query.op != "framework.low_rank":
            return prepared
        return replace(prepared, call=self.changed(prepared.call))

    def changed(self, call):
        return lambda x, y, at: self.update(call, x, y, at)


class UpdatesAlone(CpuPackedKernel):
    """Adapters, and no other operator."""

    def answer(self, query):
        if query.op == "framework.low_rank":
            return super().answer(query)
        reason = Rejection(
            code="op", field="op", found=query.op, needed="framework.low_rank", remedy="another"
        )
        return Rejected((reason,))


def test_a_kernel_for_updates_alone_conforms():
    report = check(UpdatesAlone, suite=timed(KernelSuite), layers=IN_PROCESS)
    assert not report.failures, report.text()
    assert {"KERN-010", "KERN-109", "KERN-110"} <= {
        outcome.clause.id for outcome in report.outcomes if outcome.status is Status.PASSED
    }


@breaks("KERN-109", "KERN-111")
class OverwritesRows(ChangedUpdates):
    def update(self, call, x, y, at):
        y[slice(None) if at is None else at] = 0
        call(x, y, at)


@breaks("KERN-109", "KERN-111")
class AddsToAllRows(ChangedUpdates):
    def update(self, call, x, y, at):
        call(x, y, None)


@breaks("KERN-109", "KERN-111")
class CountsRowsFromTheStart(ChangedUpdates):
    def update(self, call, x, y, at):
        call(x, y, None if at is None else torch.arange(len(at)))


@breaks("KERN-109", "KERN-111")
class NeedsRowsToAddTo(ChangedUpdates):
    def update(self, call, x, y, at):
        assert at is None or len(at)
        call(x, y, at)


@breaks("KERN-109", "KERN-111")
class GivesANewY(ChangedUpdates):
    def update(self, call, x, y, at):
        result = y.clone()
        call(x, result, at)
        return result


@breaks("KERN-109", "KERN-111")
class RoundsUpdates(ChangedUpdates):
    def update(self, call, x, y, at):
        call(x.bfloat16().float(), y, at)


@breaks("KERN-110", "KERN-111")
class AddsTheFirstAlone(ChangedUpdates):
    def changed(self, call):
        def update(x, y, at):
            call(x, y, at)

        update.own = call
        update.together = lambda x, y, pairs: pairs[0][0](x, y, pairs[0][1])
        return update


@breaks("KERN-206", "KERN-209")
class LosesAndSaysNotWhy(Changed):
    def answered(self, query, answer):
        return rejected(query, "dtype") if query.lossless else answer


def names_another(op):
    """A kernel that rejects an operator for another reason."""

    class NamesAnother(Changed):
        def answered(self, query, answer):
            return rejected(query, "dtype") if query.op == op else answer

    return NamesAnother


@breaks("KERN-204", "KERN-209")
class PromisesUnasked(Changed):
    def answered(self, query, answer):
        return rejected(query, "row_independent") if query.row_independent else answer


@breaks("KERN-205")
class SharesNotAndSaysNotWhy(Changed):
    def answered(self, query, answer):
        return rejected(query, "dtype") if query.keep_once else answer


OPS = {
    201: "linear",
    202: "logits",
    203: "rms_norm",
    207: "layer_input",
    208: "layer_output",
    209: "framework.low_rank",
}
NAMES_ANOTHER = [breaks(f"KERN-{number}")(names_another(op)) for number, op in OPS.items()]


class NewSuite(KernelSuite):
    """Mutants have no manifest that could say what they know."""

    def knows(self, major, minor):
        return True


MUTANTS = [*mutants_of(list(globals().values())), *NAMES_ANOTHER]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: f"{m.__mutant__[1].clause}-{m.__name__}")
def test_mutants_are_caught(mutant):
    assert_caught(mutant, NewSuite)


SUBCLASS = '''
from framework_torch.kernels.plain import PlainKernel

class P(PlainKernel):
    """The plain kernel."""

    def answer(self, query):
        {body}
        return super().answer(query)
'''


@pytest.mark.parametrize(
    ("clause", "body", "facts"),
    [("KERN-009", "import torch", {}), ("KERN-005", "pass", {"knows": '"1000.0"'})],
)
def test_what_shows_from_outside_is_caught(monkeypatch, tmp_path, clause, body, facts):
    name = put(monkeypatch, tmp_path, "kernel", SUBCLASS.format(body=body), **facts)
    assert_fails(check(name, only=(clause,)), clause)


def test_each_clause_has_a_mutant_and_each_capability_a_pair():
    assert uncovered(KernelSuite, MUTANTS) == {"KERN-005", "KERN-009"}
    assert not unpaired(KernelSuite)


@pytest.mark.parametrize("name", ["plain", "fp16_packed", "fused_norm", "cpu_packed"])
def test_our_kernels_conform(name):
    report = check(f"kernel:{name}")
    assert not report.failures, report.text()
