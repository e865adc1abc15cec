"""The suite of kind `lora`: answers by names of files, then what is written is read again."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from framework.contracts.base import Supported
from framework.contracts.lora import Adapter, AdapterQuery, LowRank
from framework.errors import ModelError, UnsupportedError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.opened import opened
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suites.lora_answers import AdapterAnswers
from framework.testing.conformance.suites.lora_parts import (
    MODULES,
    ODD_MODULES,
    Numbers,
    check_same,
    with_value,
)
from framework.testing.conformance.suites.place import bridge_to


class AdapterFormatSuite(AdapterAnswers):
    """tensor_api: whose tensors are used."""

    ordinary = ("what_is_written_is_read",)
    tensor_api: ClassVar[str] = "torch"

    def _adapter(self, case: Case) -> dict[str, Numbers]:
        """Modules of different ranks, sizes and scales."""
        count = int(case.rng.integers(1, len(MODULES) + 1))
        found = {}
        for name in case.rng.permutation(MODULES)[:count]:
            rank, inputs, outputs = (int(n) for n in case.rng.integers(1, 9, size=3))
            found[str(name)] = Numbers(
                case.rng.standard_normal((rank, inputs)).astype(np.float32),
                case.rng.standard_normal((outputs, rank)).astype(np.float32),
                float(case.rng.choice([0.0, 0.125, 1.0, 2.0, -0.5, 16.0])),
            )
        case.note(modules=len(found))
        return found

    def _as_tensors(self, numbers: Mapping[str, Numbers], base: str | None = "base") -> Adapter:
        bridge = bridge_to(self.target.registry, self.tensor_api)
        return Adapter(
            updates={
                name: LowRank(
                    down=bridge.tensor(one.down, "float32", "cpu"),
                    up=bridge.tensor(one.up, "float32", "cpu"),
                    scale=one.scale,
                )
                for name, one in numbers.items()
            },
            base=base,
        )

    def _as_numbers(self, adapter: Any) -> dict[str, Numbers]:
        expect(isinstance(adapter, Adapter), "read gave no Adapter", found=type(adapter).__name__)
        bridge = bridge_to(self.target.registry, self.tensor_api)
        found = {}
        for name, one in adapter.updates.items():
            expect(isinstance(one, LowRank), "an update is no LowRank", found=type(one).__name__)
            found[name] = Numbers(bridge.array(one.down), bridge.array(one.up), one.scale)
        return found

    @contextmanager
    def _stored(self, case: Case) -> Iterator[tuple[Any, dict[str, Numbers], Path]]:
        """(an instance, an adapter, the folder into which another instance wrote it)."""
        numbers = self._adapter(case)
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            self.new().write(root, self._as_tensors(numbers))
            expect(any(root.iterdir()), "write leaves no file")
            yield self.new(), numbers, root

    @clause("LORA-010", "what is written is what is read, to the bit", of=("read", "write"))
    def what_is_written_is_read(self) -> None:
        for case in self.cases(8):
            with self._stored(case) as (own, numbers, root):
                check_same(numbers, self._as_numbers(own.read(root)))

    @clause(
        "LORA-018",
        "tensors come in the type in which they were written, and no gradient is kept; the scale "
        "is a plain number",
        of=("read", "write"),
    )
    def values_are_plain(self) -> None:
        for case in self.cases(2):
            with self._stored(case) as (own, numbers, root):
                written = self._as_tensors(numbers).updates
                for name, one in own.read(root).updates.items():
                    plain = isinstance(one.scale, int | float) and not isinstance(one.scale, bool)
                    expect(plain, "the scale is no float", found=type(one.scale).__name__)
                    for part in ("down", "up"):
                        tensor, true = getattr(one, part), getattr(written[name], part).dtype
                        expect(
                            tensor.dtype == true,
                            f"{part} has another type than was written",
                            expected=true,
                            found=tensor.dtype,
                        )
                        # Of tensors that know of none there is nothing to ask.
                        kept = getattr(tensor, "requires_grad", False)
                        expect(not kept, f"{part} keeps a gradient", expected="a plain tensor")

    @clause(
        "LORA-019",
        "a module of any name is read as it was written, or refused: none is left out",
        of=("read", "write"),
    )
    def any_module_is_kept(self) -> None:
        for case in self.cases(len(ODD_MODULES) + 1):
            names = ODD_MODULES[case.index : case.index + 1] or ODD_MODULES
            case.note(modules=names)
            numbers = {
                name: Numbers(
                    case.rng.standard_normal((2, 3)).astype(np.float32),
                    case.rng.standard_normal((4, 2)).astype(np.float32),
                    0.5,
                )
                for name in names
            }
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self.new().write(Path(folder), self._as_tensors(numbers))
                    found = self.new().read(Path(folder))
                except UnsupportedError:
                    continue
                check_same(numbers, self._as_numbers(found))

    @clause(
        "LORA-020",
        "reading opens no file outside of the folder, and leaves none there",
        of=("read",),
    )
    def other_files_are_left_alone(self) -> None:
        for case in self.cases(2):
            with self._stored(case) as (own, _, root):
                own.read(root)  # what a library keeps for itself from its first use on
                with opened() as found:
                    self.new().read(root)
                others = found.outside(root)
                expect(not others, "reading touches other files", found="; ".join(others[:3]))

    @clause("LORA-021", "a folder that was written anew is read anew", of=("read",))
    def new_files_are_read(self) -> None:
        """Adapters are loaded again under their names when their files have changed."""
        for case in self.cases(2):
            with self._stored(case) as (own, _, root):
                own.read(root)
                for path in root.iterdir():
                    path.unlink()
                numbers = self._adapter(case)
                self.new().write(root, self._as_tensors(numbers))
                for reader in (own, self.new()):
                    check_same(numbers, self._as_numbers(reader.read(root)))

    @clause("LORA-011", "it says yes to a folder that it wrote", of=("answer", "write"))
    def what_is_written_is_supported(self) -> None:
        for case in self.cases(2):
            with self._stored(case) as (own, _, root):
                answer = own.answer(AdapterQuery(root=root, files=_names(root)))
                expect(isinstance(answer, Supported), "it rejects its own folder", found=answer)

    @clause("LORA-012", "reading changes no file, and read again it is the same", of=("read",))
    def reading_changes_nothing(self) -> None:
        for case in self.cases(2):
            with self._stored(case) as (own, _, root):
                before = {path: path.read_bytes() for path in root.iterdir()}
                first = self._as_numbers(own.read(root))
                for again in (own, self.new()):
                    check_same(first, self._as_numbers(again.read(root)))
                after = {path: path.read_bytes() for path in root.iterdir()}
                expect(before == after, "the folder has changed")

    @clause("LORA-013", "what was read needs the files no more", of=("read",))
    def files_may_change_afterwards(self) -> None:
        for case in self.cases(2):
            with self._stored(case) as (own, numbers, root):
                adapter = own.read(root)
                for path in root.iterdir():
                    with path.open("r+b") as file:
                        file.write(bytes(path.stat().st_size))
                check_same(numbers, self._as_numbers(adapter))

    @clause("LORA-014", "a file that is not there is a ModelError with the mend", of=("read",))
    def missing_files_are_told(self) -> None:
        def remove(path: Path) -> None:
            path.unlink()

        self._spoil(remove, "is missing", ModelError)

    @clause("LORA-015", "a file that was cut off is a ModelError with the mend", of=("read",))
    def cut_files_are_told(self) -> None:
        def cut(path: Path) -> None:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

        self._spoil(cut, "was cut off", ModelError)

    @clause("LORA-016", "a file of other bytes is a ModelError with the mend", of=("read",))
    def other_bytes_are_told(self) -> None:
        for fill in (b"", b"\xff" * 4096, b"[" * 100_000):
            self._spoil(functools.partial(_fill, fill), "holds other bytes", ModelError)

    @clause("LORA-017", "what is no finite number is refused", of=("read",))
    def only_finite_numbers(self) -> None:
        for case in self.cases(2):
            for value in (np.nan, np.inf, -np.inf):
                numbers = self._adapter(case)
                for part in ("down", "up"):
                    spoilt = {name: with_value(one, part, value) for name, one in numbers.items()}
                    with tempfile.TemporaryDirectory() as folder:
                        root = Path(folder)
                        try:
                            self.new().write(root, self._as_tensors(spoilt))
                        except (ModelError, UnsupportedError):
                            continue
                        expect(
                            self._failure(root, (ModelError, UnsupportedError)) is not None,
                            f"it gives {value} in {part}",
                            expected="ModelError",
                        )

    def _spoil(self, change: Callable[[Path], object], what: str, kind: type[Exception]) -> None:
        """Every file in turn."""
        for case in self.cases(1):
            with self._stored(case) as (_, _, root):
                for path in sorted(root.iterdir()):
                    whole = path.read_bytes()
                    change(path)
                    error = self._failure(root, (kind,))
                    path.write_bytes(whole)
                    expect(error is not None, f"it reads an adapter of which {path.name} {what}")
                    expect(getattr(error, "mend", None), "the error says no mend", found=error)

    def _failure(self, root: Path, kinds: tuple[type[Exception], ...]) -> Exception | None:
        """What `read` raises, None for an adapter.  Raises Violation for other errors."""
        try:
            self.new().read(root)
        except kinds as error:
            return error
        except Exception as error:
            raise Violation(
                f"read fails with {type(error).__name__}: {error}\n  expected: {kinds[0].__name__}"
            ) from error
        return None


def _fill(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _names(root: Path) -> frozenset[str]:
    return frozenset(path.name for path in root.iterdir())
