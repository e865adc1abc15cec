"""The participant passes the kit, with grammars that are compiled here and in other processes."""

from __future__ import annotations

import pytest

from framework.testing.conformance import check
from framework.testing.conformance.suites.scheduler_participant import SchedulerParticipantSuite
from framework_structured import compiler
from tests.conformance.mutants import IN_PROCESS

NAME = "scheduler_participant:structured_outputs"


class Here:
    """Does what `Workers` does, without processes: they are tried where the participant lives."""

    def __init__(self, context, options, vocabulary):
        self._registry, self._vocabulary = context.registry, vocabulary
        self._backends = {}

    def _backend(self, name):
        if name not in self._backends:
            self._backends[name] = self._registry.create("structured_output", name, named=True)
        return self._backends[name]

    def check(self, backend, grammar):
        self._backend(backend).check(grammar)

    def compile(self, backend, grammar):
        return self._backend(backend).compile(grammar, self._vocabulary())

    def close(self):
        pass


class Patient(SchedulerParticipantSuite):
    patience = 300.0


def test_the_participant_conforms(monkeypatch):
    monkeypatch.setattr(compiler, "Workers", Here)
    report = check(NAME, suite=Patient, layers=IN_PROCESS)
    assert not report.failures, report.text()


@pytest.mark.long
def test_the_participant_conforms_with_its_workers():
    report = check(NAME, suite=Patient)
    assert report.conformant, report.text()
