"""Clauses for what a format of adapters answers, by names of files alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from framework.contracts.base import Rejected, Supported
from framework.contracts.lora import AdapterQuery
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.opened import opened
from framework.testing.conformance.suite import Suite

NAMES = (
    *("adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "config.json"),
    *("model.safetensors", "README.md", "adapter.npz", "weights", ".hidden", "x" * 255, "a b"),
    "\u6a21",
)


class AdapterAnswers(Suite):
    """No file is needed."""

    kind = "lora"

    def _queries(self, case: Case) -> Iterator[AdapterQuery]:
        for _ in range(20):
            count = int(case.rng.integers(0, len(NAMES) + 1))
            files = frozenset(str(name) for name in case.rng.permutation(NAMES)[:count])
            case.note(files=sorted(files)[:4])
            yield AdapterQuery(root=Path("/no/such/folder"), files=files)

    @clause("LORA-001", "it answers any folder, and opens no file for that", of=("answer",))
    def any_folder_is_answered(self) -> None:
        own = self.new()
        for case in self.cases(3):
            for query in self._queries(case):
                with opened() as found:
                    answer = own.answer(query)
                expect(isinstance(answer, Supported | Rejected), "no answer", found=answer)
                touched = [*found.read, *found.written, *found.listed]
                expect(not touched, "it opens files to answer", found=", ".join(map(str, touched)))

    @clause("LORA-002", "a rejection names a field of the query, and the mend", of=("answer",))
    def rejections_have_a_mend(self) -> None:
        own, fields = self.new(), {field.name for field in dataclasses.fields(AdapterQuery)}
        for case in self.cases(1):
            empty = AdapterQuery(root=Path("/no/such/folder"), files=frozenset())
            for query in (empty, *self._queries(case)):
                answer = own.answer(query)
                for reason in answer.reasons if isinstance(answer, Rejected) else ():
                    expect(reason.field in fields, "no field of the query", found=reason.field)
                    expect(reason.code and reason.remedy, "no code or no remedy", found=reason)

    @clause("LORA-003", "a folder without files is none of its format", of=("answer",))
    def an_empty_folder_is_rejected(self) -> None:
        answer = self.new().answer(AdapterQuery(root=Path("/no"), files=frozenset()))
        expect(isinstance(answer, Rejected), "it takes a folder without files", found=answer)

    @clause("LORA-004", "asked again, it answers the same", of=("answer",))
    def answers_are_repeated(self) -> None:
        own = self.new()
        for case in self.cases(1):
            for query in self._queries(case):
                kinds = [type(made.answer(query)) for made in (own, own, self.new())]
                expect(len(set(kinds)) == 1, "different answers", found=kinds)
