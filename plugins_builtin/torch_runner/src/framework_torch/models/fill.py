"""Fills a module through its parameter table, from files or with seeded numbers.

Every tensor of the files is used once or is an error, and so is every tensor that is missing:
a model that is almost right gives text that is almost right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import nn

from framework.contracts.model import Parameter
from framework.contracts.weight_loader import RowWeights, Weights
from framework.errors import ModelError
from framework_torch.models.deferred import Deferring, Rows
from framework_torch.models.file_rows import FileRows

Transform = Callable[[torch.Tensor, int], torch.Tensor]
DUMMY_SCALE = 0.02
SHOWN = 8
ROWS_AT_A_TIME = 1024
"""That are compared."""


class Filler:
    """Fills `module` (on the meta device) as `table` says.

    dtype: of the weights.  root: for messages.  ignored: endings of names in files that mean
    nothing.  ones: parameters that hold ones when no file brings them; they keep float32.
    norm: weight of a norm that changes nothing, for dummy models.
    """

    def __init__(
        self,
        module: nn.Module,
        table: Sequence[Parameter],
        *,
        dtype: torch.dtype,
        root: Path,
        transforms: Mapping[str, Transform],
        ignored: tuple[str, ...] = (),
        ones: frozenset[str] = frozenset(),
        norm: float = 1.0,
    ) -> None:
        self.module, self.table, self.dtype, self.root = module, table, dtype, root
        self.transforms, self.ignored, self.ones = transforms, ignored, ones
        self.norm = norm
        self.shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        self.tied = {row.tied_to for row in table}

    def from_files(self, weights: Weights) -> None:
        """Raises ModelError that names tensor, file, expected and found."""
        present = set(weights.names())
        used: set[str] = set()
        missing = []
        for row in self.table:
            names = row.gguf if weights.naming == "gguf" else row.checkpoint
            used.update(names)
            if row.tied_to is not None:
                continue
            absent = [name for name in names if name not in present]
            if not absent and names:
                self._fill(row, names, weights)
            elif row.optional:
                self._set(row.name, self._default(row.name))
            else:
                missing += absent
        if missing:
            raise self._names("tensors are missing", missing, "the files are not of this model")
        strange = sorted(n for n in present - used if not n.endswith(self.ignored or ("\0",)))
        if strange:
            raise self._names(
                "there are tensors that the model has no place for",
                strange,
                "config.json does not describe these weights",
            )
        self._check_ties(weights, present)
        self._tie()

    def dummy(self, seed: int) -> None:
        """Normal numbers of scale 0.02, norms that only norm; the same for the same seed."""
        for index, row in enumerate(self.table):
            if row.tied_to is not None:
                continue
            if row.optional or row.name in self.ones:
                self._set(row.name, self._default(row.name))
                continue
            if row.name.endswith("norm.weight"):
                plain = torch.full(self.shapes[row.name], self.norm, dtype=self.dtype)
                self._set(row.name, plain)
                continue
            random = torch.Generator().manual_seed((seed * 1_000_003 + index) % 2**63)
            values = torch.empty(self.shapes[row.name], dtype=torch.float32)
            values.normal_(0.0, DUMMY_SCALE, generator=random)
            self._set(row.name, values.to(self.dtype))
        self._tie()

    def _default(self, name: str) -> torch.Tensor:
        return torch.ones(self.shapes[name], dtype=self._type(name))

    def _fill(self, row: Parameter, names: Sequence[str], weights: Weights) -> None:
        """Checks the parts, and makes the parameter from them: at once, or where its owner can
        defer it when it is asked for."""
        shape = self.shapes[row.name]
        rows = row.parts or (shape[0],)
        for index, name in enumerate(names):
            expected = (rows[index], *shape[1:])
            self._check_shape(weights, name, tuple(weights.shape(name)), expected)
        owner, attribute = self._place(row.name)
        defer = getattr(owner, "defer", None)
        packed = row.quantizable or row.name in self.tied
        if defer is None or not packed:
            self._set(row.name, self._assemble(row, names, weights))
            return
        source = self._rows(row, names, weights)
        if weights.naming == "gguf":  # to read may be to compute
            defer(attribute, lambda: self._assemble(row, names, weights), source)
            return
        kept = {name: weights.get(name) for name in names}
        defer(
            attribute,
            lambda: self._joined(row, [kept.pop(name) for name in names], weights),
            source,
        )

    def _rows(self, row: Parameter, names: Sequence[str], weights: Weights) -> Rows | None:
        """How some rows of the parameter are read; None where only all of it can be."""
        shape = self.shapes[row.name]
        moved = weights.naming == "gguf" and row.gguf_transform is not None
        if len(shape) != 2 or moved or not hasattr(weights, "rows"):
            return None
        parts = tuple(zip(names, row.parts or (shape[0],), strict=True))
        return FileRows(cast(RowWeights, weights), parts, shape, self._type(row.name))

    def _type(self, name: str) -> torch.dtype:
        return torch.float32 if name in self.ones else self.dtype

    def _assemble(self, row: Parameter, names: Sequence[str], weights: Weights) -> torch.Tensor:
        """The parameter from the files.  A whole one of the right type stays a view."""
        return self._joined(row, [weights.get(name) for name in names], weights)

    def _joined(self, row: Parameter, parts: list[torch.Tensor], weights: Weights) -> torch.Tensor:
        """The parameter from its parts, which are let go one by one."""
        shape = self.shapes[row.name]
        rows = row.parts or (shape[0],)
        if weights.naming == "gguf" and row.gguf_transform is not None:
            undo = self.transforms[row.gguf_transform]
            parts = [undo(part, index) for index, part in enumerate(parts)]
        dtype = self._type(row.name)
        if len(parts) == 1:
            return parts[0].to(dtype)
        whole = torch.empty(shape, dtype=dtype)
        start = 0
        for count in rows:
            whole[start : start + count].copy_(parts.pop(0))
            start += count
        return whole

    def _check_shape(
        self, weights: Weights, name: str, found: tuple[int, ...], expected: tuple[int, ...]
    ) -> None:
        if found != expected:
            raise ModelError(
                f"tensor {name!r} in {weights.source(name)} has a wrong shape",
                expected=list(expected),
                found=list(found),
                mend="config.json does not describe these weights; fetch both again",
            )

    def _set(self, name: str, value: torch.Tensor) -> None:
        module, attribute = self._place(name)
        setattr(module, attribute, nn.Parameter(value, requires_grad=False))

    def _tie(self) -> None:
        for row in self.table:
            if row.tied_to is None:
                continue
            owner, attribute = self._place(row.name)
            other, shared = self._place(row.tied_to)
            recipe = getattr(other, "deferred", lambda name: None)(shared)
            if recipe is None:
                setattr(owner, attribute, getattr(other, shared))
            else:
                make = partial(getattr, other, shared)
                cast(Deferring, owner).defer(attribute, make, recipe.rows)

    def _place(self, name: str) -> tuple[nn.Module, str]:
        """The module of a parameter, and what it is called there."""
        owner, _, attribute = name.rpartition(".")
        return self.module.get_submodule(owner), attribute

    def _check_ties(self, weights: Weights, present: set[str]) -> None:
        """Files may hold a tied tensor twice; two that differ contradict the configuration."""
        for row in self.table:
            names = row.gguf if weights.naming == "gguf" else row.checkpoint
            if row.tied_to is None or names[0] not in present:
                continue
            expected = self.shapes[row.tied_to]
            self._check_shape(weights, names[0], tuple(weights.shape(names[0])), expected)
            if not self._equals(row.tied_to, names[0], weights):
                raise ModelError(
                    f"tensor {names[0]!r} in {weights.source(names[0])} is not the one that it "
                    f"is tied to",
                    expected="equal to the embedding, as tie_word_embeddings is true",
                    found="other values",
                    mend="set tie_word_embeddings to false in config.json",
                )

    def _equals(self, parameter: str, name: str, weights: Weights) -> bool:
        """Whether a parameter is what the files call `name`."""
        module, attribute = self._place(parameter)
        recipe = getattr(module, "deferred", lambda name: None)(attribute)
        if recipe is None or recipe.rows is None:
            whole = getattr(module, attribute)
            return torch.equal(weights.get(name).to(whole.dtype), whole)
        ours, count = recipe.rows, self.shapes[parameter][0]
        theirs = FileRows(cast(RowWeights, weights), ((name, count),), ours.shape, ours.dtype)
        return all(
            torch.equal(theirs.read(start, stop), ours.read(start, stop))
            for start in range(0, count, ROWS_AT_A_TIME)
            for stop in (min(start + ROWS_AT_A_TIME, count),)
        )

    def _names(self, what: str, names: Iterable[str], mend: str) -> ModelError:
        listed = list(names)
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        return ModelError(
            f"{self.root}: {what}",
            expected="exactly the tensors that config.json implies",
            found=", ".join(listed[:SHOWN]) + more,
            mend=mend,
        )
