"""Progress bars over the tensors that a model reads, and over what kernels make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from framework.contracts.weight_loader import RowWeights, Weights

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class WatchedWeights:
    """Weights that tell of each tensor read."""

    def __init__(self, inner: Weights, read: Callable[[], None]) -> None:
        self._inner, self._read = inner, read
        self.naming = inner.naming

    def names(self) -> Iterator[str]:
        return self._inner.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._inner.shape(name)

    def source(self, name: str) -> str:
        return self._inner.source(name)

    def get(self, name: str) -> torch.Tensor:
        tensor = self._inner.get(name)
        self._read()
        return tensor


class WatchedRowWeights(WatchedWeights):
    """The same of those that can be read by rows."""

    _inner: RowWeights

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        found = self._inner.rows(name, start, stop)
        if stop == self.shape(name)[0]:
            self._read()
        return found


@contextmanager
def with_progress(weights: Weights) -> Iterator[Weights]:
    """Show a bar on standard error while the model reads `weights`."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("loading weights", total=sum(1 for _ in weights.names()))
        watched = WatchedRowWeights if hasattr(weights, "rows") else WatchedWeights
        yield watched(weights, lambda: progress.advance(task))


def tracked(items: Mapping[str, T], what: str, *, shown: bool) -> Iterator[tuple[str, T]]:
    """Those of `items`, with a bar on standard error if `shown`: of large weights the packing
    takes longer than their reading, which may be a part of it."""
    if not shown:
        yield from items.items()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=len(items))
        for item in items.items():
            yield item
            progress.advance(task)
