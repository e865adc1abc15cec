"""Parameters that are made when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import nn

from framework.contracts.weight_rows import WeightRows


class Rows(Protocol):
    """How some rows of a parameter are made; see `framework.contracts.weight_rows.WeightRows`."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def read(self, start: int, stop: int) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a parameter is made.  rows: how some of it are, where it can be had by rows."""

    make: Callable[[], torch.Tensor]
    rows: Rows | None = None


class Deferring(nn.Module):
    """A module whose parameters may be deferred: each is made when somebody first asks for it.

    Kernels take one use after the other, so that what they pack is not there for all of them at
    one time, and of what they read by rows not even the whole.
    """

    def __init__(self) -> None:
        super().__init__()
        self._deferred: dict[str, Recipe] = {}

    def defer(self, name: str, make: Callable[[], torch.Tensor], rows: Rows | None = None) -> None:
        """Make the parameter `name` when it is asked for; an error of `make` comes then."""
        setattr(self, name, None)
        self._deferred[name] = Recipe(make, rows)

    def deferred(self, name: str) -> Recipe | None:
        """How a parameter will be made; None for one that is there."""
        return self._deferred.get(name)

    def settle(self) -> None:
        """Make what is deferred."""
        for name in tuple(self._deferred):
            getattr(self, name)

    def forget(self, name: str) -> None:
        """Let a parameter go; one that is deferred is not made."""
        self._deferred.pop(name, None)
        setattr(self, name, None)

    def sources(self) -> Mapping[str, torch.Tensor | WeightRows]:
        """Its own parameters; those that are deferred by rows, if they can be had so."""
        found: dict[str, torch.Tensor | WeightRows] = {}
        for name in tuple(self._parameters):
            recipe = self._deferred.get(name)
            if recipe is not None and recipe.rows is not None:
                found[name] = OwnRows(self, name, recipe.rows)
            elif (parameter := getattr(self, name)) is not None:
                found[name] = parameter
        return found

    def __getattr__(self, name: str) -> Any:
        deferred = self.__dict__.get("_deferred")
        if deferred and name in deferred:
            made = deferred[name].make()
            del deferred[name]
            # One that is shared is the other's own.
            shared = isinstance(made, nn.Parameter)
            setattr(self, name, made if shared else nn.Parameter(made, requires_grad=False))
        return super().__getattr__(name)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.settle()
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


class OwnRows:
    """A parameter that is deferred, as kernels may read it."""

    def __init__(self, owner: Deferring, name: str, rows: Rows) -> None:
        self._owner, self._name, self._rows = owner, name, rows
        self.shape, self.dtype = rows.shape, rows.dtype

    def rows(self, start: int, stop: int) -> torch.Tensor:
        return self._rows.read(start, stop)

    def whole(self) -> torch.Tensor:
        return cast(torch.Tensor, getattr(self._owner, self._name))
