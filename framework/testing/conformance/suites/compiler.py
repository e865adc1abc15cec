"""The suite of kind `compiler`: answers, then pieces, compiled once and computed beside numpy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from framework.contracts.base import Rejected, Supported
from framework.contracts.compiler import Argument, CompilerQuery, Piece
from framework.errors import ModelError, UnsupportedError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import NoDevice, Violation
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.place import bridge_to
from framework.testing.conformance.suites.queries import but, check_newer, check_rejected

F32 = npt.NDArray[np.float32]
MEMO = "compiled pieces"
WIDTH, OUTPUTS = 24, 10
MANY = 70
"""Rows of the longest call where a piece says no most."""
TOLERANCE = 1e-4


def mixed(x: Any, weight: Any, bias: Any) -> Any:
    """x [T, WIDTH], weight [WIDTH, OUTPUTS], bias [OUTPUTS], with operators of Python alone."""
    y = x @ weight + bias
    return y * y - x[:, :1] / (1.0 + y * y)


def crossed(x: Any, y: Any) -> Any:
    """Both [T, WIDTH]; a second use of the rows."""
    return (x - y) * (x + 2.0 * y)


def broken(x: Any) -> Any:
    """No code can be made of it."""
    raise ZeroDivisionError(f"this piece computes nothing of {type(x).__name__}")


ROWS = Argument(shape=(None, WIDTH), dtype="float32")
MIXED = Piece(
    name="mixed",
    function=mixed,
    arguments=(
        ROWS,
        Argument(shape=(WIDTH, OUTPUTS), dtype="float32"),
        Argument(shape=(OUTPUTS,), dtype="float32"),
    ),
    least=2,
)
PIECES: tuple[Piece, ...] = (
    MIXED,
    dataclasses.replace(MIXED, name="mixed of one row", least=1, most=1),
    Piece(name="crossed", function=crossed, arguments=(ROWS, ROWS), least=3, most=9),
)
UNKNOWN = {"tensor_api": "unheard-of", "device": "unheard-of", "dtype": "unheard-of"}


class CompilerSuite(Suite):
    """tensor_api: whose tensors are used.  Pieces are compiled once for all clauses."""

    kind = "compiler"
    ordinary = ("code_computes_its_piece",)
    tensor_api: ClassVar[str] = "torch"

    def _query(self) -> CompilerQuery:
        return CompilerQuery(
            platform="cpu", device="cpu", tensor_api=self.tensor_api, dtype="float32"
        )

    def _serving(self) -> Any:
        """An instance that can serve here.  Raises NoDevice where none can."""
        own = self.new()
        answer = own.answer(self._query())
        if not isinstance(answer, Supported):
            raise NoDevice(f"it cannot serve here: {answer}")
        return own

    def _codes(self) -> Sequence[bytes]:
        memo = self.target.memo
        if MEMO not in memo:
            memo[MEMO] = self._serving().compile(PIECES)
        found: Sequence[bytes] = memo[MEMO]
        expect(len(found) == len(PIECES), "another number of codes", expected=len(PIECES))
        for code in found:
            expect(isinstance(code, bytes), "code is no bytes", found=type(code).__name__)
        return found

    # Answers

    @clause("COMP-001", "equal queries get equal answers", of=("answer",))
    def answers_are_stable(self) -> None:
        own = self.new()
        asked = [self._query(), *(but(self._query(), **{f: v}) for f, v in UNKNOWN.items())]
        for query in asked:
            first = own.answer(query)
            expect(isinstance(first, Supported | Rejected), "no answer", found=first)
            expect(own.answer(query) == first == self.new().answer(query), "the answer changes")

    @clause("COMP-002", "a reason has a field of the query, or none, and a mend", of=("answer",))
    def reasons_can_be_used(self) -> None:
        known = {"", *CompilerQuery.__dataclass_fields__}
        for field, value in UNKNOWN.items():
            answer = self.new().answer(but(self._query(), **{field: value}))
            for reason in answer.reasons if isinstance(answer, Rejected) else ():
                expect(reason.field in known, "no field of the query", found=reason.field)
                expect(reason.code and reason.remedy, "no code or no mend", found=reason)

    @clause("COMP-003", "what it cannot know is rejected", of=("answer",))
    def unknown_values_are_rejected(self) -> None:
        for field, value in UNKNOWN.items():
            check_rejected(self.new(), but(self._query(), **{field: value}), field)
        check_newer(self.target, self._query())

    @clause("COMP-004", "its identity is some text, whoever asks and when", of=("identity",))
    def identity_is_stable(self) -> None:
        own = self._serving()
        first = own.identity()
        expect(isinstance(first, str) and first.strip(), "no text", found=first)
        self._codes()
        again = (own.identity(), self._serving().identity())
        expect(set(again) == {first}, "it changes", expected=first, found=again)

    # Code

    @clause(
        "COMP-010",
        "code computes what its piece does, for every number of rows of its range",
        of=("compile", "load"),
    )
    def code_computes_its_piece(self) -> None:
        for case, piece, call in self._calls(3):
            rows = sorted({piece.least, piece.least + 1, piece.most or MANY})
            for count in (n for n in rows if piece.most is None or n <= piece.most):
                case.note(piece=piece.name, rows=count)
                self._compare(piece, call, self._draw(case, piece, count))

    @clause(
        "COMP-011", "arguments are only read, and results have memory of their own", of=("load",)
    )
    def results_stay(self) -> None:
        for case, piece, call in self._calls(3):
            arrays = self._draw(case, piece, piece.least)
            bridge = bridge_to(self.target.registry, self.tensor_api)
            given = [bridge.tensor(array, "float32", "cpu") for array in arrays]
            result = call(*given)
            first = bridge.array(result)
            self._compare(piece, call, self._draw(case, piece, piece.least))
            same = all(
                np.array_equal(bridge.array(t), a) for t, a in zip(given, arrays, strict=True)
            )
            expect(same, "an argument was changed")
            expect(np.array_equal(bridge.array(result), first), "a result was changed later")

    @clause("COMP-012", "each instance loads it, as often as it likes", of=("load",))
    def loading_is_repeated(self) -> None:
        codes, piece = self._codes(), PIECES[0]
        for case in self.cases(1):
            own = self._serving()
            for call in (own.load(codes[0]), own.load(codes[0]), self._serving().load(codes[0])):
                self._compare(piece, call, self._draw(case, piece, 5))

    @clause("COMP-013", "other code and code cut short are ModelErrors with the mend", of=("load",))
    def damaged_code_is_refused(self) -> None:
        code = self._codes()[0]
        for what, damaged in {
            "nothing": b"",
            "other bytes": b"\xff" * 4096,
            "the first half": code[: len(code) // 2],
            "all but the last byte": code[:-1],
        }.items():
            try:
                self._serving().load(damaged)
            except ModelError as error:
                expect(error.mend, f"for {what} the error says no mend", found=error)
            except Exception as error:
                raise Violation(f"{what}: {type(error).__name__}: {error}") from error
            else:
                raise Violation(f"it loads {what}")

    @clause("COMP-014", "what cannot be compiled is an UnsupportedError", of=("compile",))
    def what_cannot_be_compiled_is_told(self) -> None:
        own = self._serving()
        piece = Piece(name="broken", function=broken, arguments=(ROWS,), least=2)
        try:
            own.compile((piece,))
        except UnsupportedError as error:
            text = f"{error.message} {error.found}"
            expect("broken" in text, "the error does not name the piece", found=error)
            expect("ZeroDivisionError" in text, "the error does not say why", found=error)
            return
        except Exception as error:
            raise Violation(f"{type(error).__name__}: {error}") from error
        raise Violation("it compiles a function that raises")

    @clause("COMP-015", "no pieces are no codes", of=("compile",))
    def nothing_is_nothing(self) -> None:
        expect(len(self._serving().compile(())) == 0, "codes of no pieces")

    def _calls(self, count: int) -> Iterator[tuple[Case, Piece, Callable[..., Any]]]:
        codes, own = self._codes(), self._serving()
        for case in self.cases(count):
            place = case.index % len(PIECES)
            yield case, PIECES[place], own.load(codes[place])

    def _draw(self, case: Case, piece: Piece, rows: int) -> list[F32]:
        return [
            case.rng.standard_normal([rows if n is None else n for n in each.shape]).astype(
                np.float32
            )
            for each in piece.arguments
        ]

    def _compare(self, piece: Piece, call: Callable[..., Any], arrays: Sequence[F32]) -> None:
        bridge = bridge_to(self.target.registry, self.tensor_api)
        tensors = map(functools.partial(bridge.tensor, dtype="float32", device="cpu"), arrays)
        found = bridge.array(call(*tensors))
        expected = piece.function(*(array.astype(np.float64) for array in arrays))
        expect(found.shape == expected.shape, "another shape", expected=expected.shape)
        off = np.abs(found - expected) / (1.0 + np.abs(expected))
        expect(bool((off <= TOLERANCE).all()), "other numbers", found=float(off.max()))
