"""The suite of kind `model_source`: answers without a network, then files and clear errors."""

from __future__ import annotations

import dataclasses
import json
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from framework.contracts.base import Rejected, Supported
from framework.contracts.model_source import ModelQuery
from framework.errors import ModelError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import NoDevice, Violation
from framework.testing.conformance.suite import Suite

TOKEN = "hf_a_token_that_nobody_may_see"
ODD_NAMES = (
    "demo", "name", "org/name", "org/name:file.gguf", "org/name/file.gguf", "a/b/c/d", "model.gguf",
    "/no/such/folder", "./relative", "../up", "~", "~nobody/x", ".", "..", "", " ", "\t", "a b",
    "a\0b", "a\nb", "-", "--", "x" * 5000, "\u4e2d\u6587/\u6a21\u578b", "\ud800",
    "https://example.org/model", "s3://bucket/model", "C:\\models\\m", "*", "%2e%2e", "echo://",
)  # fmt: skip


class ModelSourceSuite(Suite):
    """answer_budget: seconds that an answer may take, in the median."""

    kind = "model_source"
    ordinary = ("models_are_files",)
    answer_budget: ClassVar[float] = 0.02

    def known(self, folder: Path) -> ModelQuery | None:
        """A model that can be fetched here and now without a network, or None.

        By default the folder of a small model that is written into `folder`, its file, or an
        alias of the manifest's facts; override it for a source of another kind.
        """
        model = folder / "model"
        model.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            (model / name).write_text("{}")
        head = json.dumps({}).encode()
        (model / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head)
        facts = self.target.record.facts
        aliases = facts.facts.get("aliases", ()) if facts is not None else ()
        for name in (str(model), *map(str, aliases)):
            query = ModelQuery(name=name)
            if isinstance(self.new().answer(query), Supported):
                return query
        return None

    def unknown(self, folder: Path) -> Sequence[str]:
        """Names in the form of this source, of models that nobody has."""
        return (
            str(folder / "missing"),
            str(folder / "missing.gguf"),
            "no-such-org/no-such-model",
            f"{self.target.record.name}:missing",
        )

    # Answers

    def _queries(self, case: Case) -> Iterator[ModelQuery]:
        letters = list("ab/.:-_~ \\0Z")
        made = ["".join(case.rng.choice(letters, int(case.rng.integers(1, 12)))) for _ in range(20)]
        for name in (*ODD_NAMES, *made):
            case.note(name=repr(name)[:60])
            yield ModelQuery(
                name=name,
                revision=None if case.rng.random() < 0.7 else "main",
                token=TOKEN,
                want_weights=bool(case.rng.random() < 0.7),
            )

    @clause("SRC-001", "it answers any name: Supported, or Rejected with reasons", of=("answer",))
    def any_name_is_answered(self) -> None:
        source = self.new()
        for case in self.cases(3):
            for query in self._queries(case):
                answer = source.answer(query)
                expect(isinstance(answer, Supported | Rejected), "no answer", found=answer)

    @clause("SRC-002", "a rejection names a field of the query, and the mend", of=("answer",))
    def rejections_have_a_mend(self) -> None:
        source, fields = self.new(), {field.name for field in dataclasses.fields(ModelQuery)}
        for case in self.cases(1):
            for query in self._queries(case):
                answer = source.answer(query)
                for reason in answer.reasons if isinstance(answer, Rejected) else ():
                    expect(
                        reason.field in fields,
                        "a rejection names no field of the query",
                        expected=f"one of {', '.join(sorted(fields))}",
                        found=reason.field,
                    )
                    expect(reason.code and reason.remedy, "no code or no remedy", found=reason)

    @clause("SRC-003", "an answer asks no network", of=("answer",))
    def answers_are_offline(self) -> None:
        source = self.new()
        for case in self.cases(1):
            for query in self._queries(case):
                with without_network() as asked:
                    source.answer(query)
                expect(not asked, "it uses the network to answer", found=asked)

    @clause("SRC-004", "an answer is quick", must=False, of=("answer",))
    def answers_are_quick(self) -> None:
        source, seconds = self.new(), []
        for case in self.cases(1):
            for query in self._queries(case):
                started = self.now()
                source.answer(query)
                seconds.append(self.now() - started)
        middle = statistics.median(seconds) if seconds else 0.0
        self.expect_quick(middle, self.answer_budget, "every source is asked for every name")

    @clause("SRC-005", "asked again, it answers the same", of=("answer",))
    def answers_are_repeated(self) -> None:
        source = self.new()
        for case in self.cases(1):
            for query in self._queries(case):
                kinds = [type(made.answer(query)) for made in (source, source, self.new())]
                expect(len(set(kinds)) == 1, f"different answers for {query.name!r}", found=kinds)

    @clause("SRC-006", "the token is in no answer", of=("answer",))
    def answers_hold_no_token(self) -> None:
        source = self.new()
        for case in self.cases(1):
            for query in self._queries(case):
                expect(TOKEN not in repr(source.answer(query)), "the answer shows the token")

    # Files

    @contextmanager
    def _model(self) -> Iterator[tuple[Any, ModelQuery]]:
        with tempfile.TemporaryDirectory() as folder:
            query = self.known(Path(folder))
            if query is None:
                raise NoDevice("no model can be fetched here; override `known` in a suite")
            yield self.new(), query

    @clause("SRC-010", "a model is a folder, and its weights are files in it", of=("fetch",))
    def models_are_files(self) -> None:
        with self._model() as (source, query):
            root, weights = _checked(source.fetch(query))
            expect(weights, "no weights, although they are wanted", found=root)

    @clause("SRC-011", "fetched again, it is the same", of=("fetch",))
    def models_stay_the_same(self) -> None:
        with self._model() as (source, query):
            first = _checked(source.fetch(query))
            for again in (_checked(source.fetch(query)), _checked(self.new().fetch(query))):
                expect(first == again, "the model is another", expected=first, found=again)

    @clause(
        "SRC-012",
        "asked for no weights it is the same folder, and fetches none beside its configuration",
        of=("fetch",),
    )
    def weights_may_be_left_out(self) -> None:
        with self._model() as (source, query):
            whole, _ = _checked(source.fetch(query))
            root, given = _checked(source.fetch(dataclasses.replace(query, want_weights=False)))
            expect(root == whole, "another folder", expected=whole, found=root)
            expect(  # one file may be both, as with GGUF
                not given or not (root / "config.json").exists(),
                "it gives weights that nobody wants, of what may be gigabytes",
                expected="()",
                found=given,
            )

    @clause("SRC-013", "a revision that does not exist is an error", of=("fetch",))
    def revisions_are_not_ignored(self) -> None:
        with self._model() as (source, query):
            odd = dataclasses.replace(query, revision="no-such-revision")
            if isinstance(source.answer(odd), Rejected):
                return
            with without_network():
                error = _failure(source, odd)
            expect(
                error is not None,
                "the revision is ignored, so that another model is served than was asked for",
                expected="ModelError, or Rejected",
                found="files",
            )

    def _failures(self) -> Iterator[tuple[str, ModelError]]:
        """What `fetch` says of models that nobody has, without a network."""
        with tempfile.TemporaryDirectory() as folder, without_network():
            source, found = self.new(), 0
            for name in self.unknown(Path(folder)):
                query = ModelQuery(name=name, token=TOKEN)
                if isinstance(source.answer(query), Supported):
                    error = _failure(source, query)
                    expect(error is not None, f"it finds {name!r}, which does not exist")
                    assert error is not None
                    found += 1
                    yield name, error
        if not found:
            raise NoDevice("it supports no made-up name; override `unknown` in a suite")

    @clause("SRC-014", "what cannot be fetched is a ModelError with the mend", of=("fetch",))
    def failures_have_a_mend(self) -> None:
        for name, error in self._failures():
            expect(error.mend, f"the error about {name!r} says no mend", found=error)

    @clause("SRC-015", "no error shows the token", of=("fetch",))
    def failures_hold_no_token(self) -> None:
        for name, error in self._failures():
            expect(TOKEN not in f"{error}{error!r}", f"the error about {name!r} shows the token")


def _checked(answer: Any) -> tuple[Path, tuple[Path, ...]]:
    """Raise Violation unless it is an answer of `fetch`."""
    fine = isinstance(answer, tuple) and len(answer) == 2
    expect(fine, "fetch: no (folder, weight files)", found=answer)
    root, weights = answer
    expect(isinstance(root, Path) and root.is_dir(), "the root is no folder", found=root)
    expect(isinstance(weights, tuple), "the weights are no tuple", found=type(weights).__name__)
    for file in weights:
        there = isinstance(file, Path) and file.is_file()
        expect(there, "a weight file does not exist", found=file)
        expect(file.parent == root, "a weight file lies elsewhere", expected=root, found=file)
    return root, weights


def _failure(source: Any, query: ModelQuery) -> ModelError | None:
    """The ModelError that `fetch` raises, None for files.  Raises Violation for other errors."""
    try:
        source.fetch(query)
    except ModelError as error:
        return error
    except Exception as error:
        what = f"{type(error).__name__}: {error}".replace(TOKEN, "***")
        raise Violation(
            f"fetch of {query.name!r} fails with {what}\n  expected: ModelError"
        ) from error
    return None


@contextmanager
def without_network() -> Iterator[list[str]]:
    """Every connection fails at once; yields what was tried."""
    asked: list[str] = []

    def refuse(*arguments: object, **more: object) -> Any:
        asked.append(repr(arguments[-1] if arguments else more)[:80])
        raise OSError("the network is not reachable (conformance kit)")

    with (
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch.object(socket.socket, "connect_ex", refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
        mock.patch.object(socket, "create_connection", refuse),
        mock.patch.object(time, "sleep", return_value=None),  # between attempts
    ):
        yield asked
