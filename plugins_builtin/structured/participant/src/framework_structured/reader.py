"""The front-end half: which backend serves a request, found before it is queued."""

from __future__ import annotations

from collections.abc import Iterable

from framework.contracts.base import Rejected, Supported
from framework.contracts.participant import EngineContext
from framework.contracts.sampling import SamplingParams
from framework.contracts.structured_output import Grammar
from framework.contracts.structures import grammar_of, query_of
from framework.errors import FrameworkError, InputError, UnsupportedError
from framework.plugins.blame import in_one_line
from framework.plugins.records import Record
from framework.plugins.selection import Row, ask_all
from framework_structured.asked import Asked, encode
from framework_structured.kept import Kept
from framework_structured.workers import Workers

KIND = "structured_output"
ANSWERS = 1024
"""Grammars of which it is known who takes them."""


class StructureReader:
    """Serves `SamplingParams.structured_outputs`."""

    serves = frozenset(("structured_outputs",))

    def __init__(self, context: EngineContext, workers: Workers) -> None:
        self._registry = context.registry
        chosen = context.choices.get(KIND, ())
        self._operator = chosen[0] if chosen else None
        self._workers = workers
        self._kept: Kept[bytes | FrameworkError] = Kept(ANSWERS)

    def read(self, sampling: SamplingParams) -> bytes | None:
        """The grammar and its backend.  Raises InputError for what is no grammar, UnsupportedError
        with the reasons of all backends where none takes it."""
        if sampling.structured_outputs is None:
            return None
        grammar = grammar_of(sampling.structured_outputs)
        found = self._kept.get(grammar.key, lambda: self._answer(grammar))
        if isinstance(found, FrameworkError):
            raise found.with_traceback(None)
        return found

    def _answer(self, grammar: Grammar) -> bytes | FrameworkError:
        """What becomes of a grammar.  Refusals are kept as well; a fault of a backend is not, it
        is raised."""
        try:
            backend = self._choose(grammar)
        except (InputError, UnsupportedError) as error:
            return error
        return encode(Asked(backend=backend, structure=grammar.structure, text=grammar.text))

    def _choose(self, grammar: Grammar) -> str:
        """The first that covers it and finds nothing wrong with it."""
        reasons: list[str] = []
        refusals: list[FrameworkError] = []
        for row in self._candidates(grammar):
            name = _name(row.record)
            if isinstance(row.answer, Rejected):
                reasons += [f"{row.record.name}: {reason}" for reason in row.reasons]
            if not isinstance(row.answer, Supported):
                continue
            try:
                self._workers.check(name, grammar)
            except (InputError, UnsupportedError) as error:
                reasons.append(f"{row.record.name}: {in_one_line(error)}")
                refusals.append(error)
            else:
                return name
        # Whoever looked first knows best whether it is wrong in itself.
        raise _refusal(grammar, reasons, isinstance(refusals[0], InputError) if refusals else False)

    def _candidates(self, grammar: Grammar) -> Iterable[Row]:
        """Those that were asked, in their order; of the operator's choice, that one alone."""
        table = ask_all(self._registry, KIND, query_of(grammar))
        if self._operator is None:
            return table
        chosen = self._registry.find(KIND, self._operator, named=True)
        return [row for row in table if row.record is chosen]


def _name(record: Record) -> str:
    return f"{record.name}@{record.distribution}" if record.distribution else record.name


def _refusal(grammar: Grammar, reasons: list[str], invalid: bool) -> FrameworkError:
    """invalid: it is no grammar, whatever backends cover."""
    why = "; ".join(reasons) or "no structured-output backend is installed"
    mend = "see `framework explain structured_output` for what backends cover"
    if not reasons:
        mend = 'pip install "framework[structured]"'
    if invalid:
        return InputError(
            f"structured_outputs.{grammar.structure} is invalid: {why}",
            parameter="structured_outputs",
            expected="a grammar that a backend takes",
            mend=mend,
        )
    return UnsupportedError(
        f"structured_outputs.{grammar.structure} cannot be served: {why}",
        expected="a grammar that a backend takes",
        mend=mend,
    )
