"""Recording forward passes, and replaying them.

    PIECEWISE   [graph] attention [graph] attention [graph]     one graph more than layers attend
    FULL        [graph .................................]

The cut is at `context.attend`, which is where a model leaves its own code anyway: no model knows of
graphs.  Attention between the parts is called as ever, with the rows of the step alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import torch

from framework.contracts.attention_backend import CommonMetadata, GraphBuilder
from framework.contracts.graphs import Graph, GraphDevice
from framework.contracts.model import Model
from framework.errors import FrameworkError, UnsupportedError
from framework.plugins.blame import blaming, unfit
from framework_torch.batch import Batch
from framework_torch.cache import KvCache
from framework_torch.context import StepContext, step_context
from framework_torch.forward import Computed, EagerForward, forward
from framework_torch.graphs.buffers import StepBuffers
from framework_torch.graphs.dispatch import BatchDescriptor, Dispatcher
from framework_torch.graphs.modes import Mode
from framework_torch.prepare import StepInputs

Key = tuple[Mode, BatchDescriptor]


@dataclass(frozen=True, slots=True)
class Attention:
    """A call of attention behind a part, in the graph's memory.  q, k, v, out: [T, ...]."""

    layer: str
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor


@dataclass(frozen=True, slots=True)
class Captured:
    """parts: graphs, each but the last with the attention behind it.  result: what the last part
    leaves, of all tokens of the key.  planned: by group, what FULL graphs were planned with, and
    the metadata that came of it."""

    parts: tuple[tuple[Graph, Attention | None], ...]
    result: Computed
    planned: tuple[tuple[CommonMetadata, object], ...] = ()


class _Cuts:
    """The forward context of a pass that is recorded in parts."""

    def __init__(self, device: GraphDevice, cache: KvCache) -> None:
        self._device, self._cache = device, cache
        self.parts: list[tuple[Graph, Attention | None]] = []

    def attend(self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = q.new_empty((q.shape[0], q.shape[1], self._cache.layers[layer].head_size_v))
        graph = self._device.end()
        self.parts.append((graph, Attention(layer, q, k, v, out)))
        self._device.begin()
        return out


class GraphedForward:
    """Steps for which a graph was captured are replayed; the others are computed by `eager`."""

    def __init__(
        self,
        device: GraphDevice,
        dispatcher: Dispatcher,
        eager: EagerForward,
        model: Model,
        cache: KvCache,
        batch: Batch,
        place: str,
        taps: tuple[int, ...],
        with_adapters: Callable[[StepInputs], bool],
    ) -> None:
        self._device, self._dispatcher, self._eager = device, dispatcher, eager
        self._model, self._cache, self._batch, self._taps = model, cache, batch, taps
        self._place, self._with_adapters = place, with_adapters
        keys = [key for _, key in dispatcher.graphs()]
        self._buffers = StepBuffers(
            max(key.tokens for key in keys), max(key.requests for key in keys), cache, batch, place
        )
        self._captured: dict[Key, Captured] = {}
        self._next: Key | None = None
        self._context: StepContext | None = None
        self.replayed = dict.fromkeys(Mode, 0)

    @torch.inference_mode()
    def capture(self) -> None:
        """All graphs of the dispatcher.  Raises UnsupportedError where the model or the device
        cannot be recorded."""
        for mode, key in self._dispatcher.graphs():
            try:
                self._captured[mode, key] = self._capture(mode, key)
            except FrameworkError:
                raise
            except Exception as error:
                raise UnsupportedError(
                    f"a step of {key.tokens} tokens cannot be captured as a graph",
                    found=f"{type(error).__name__}: {error}",
                    mend="--plugin-option model_runner.torch.graph_mode=none, or enforce_eager",
                ) from error

    def prepare(self, inputs: StepInputs) -> None:
        """See `Forward`."""
        self._next = mode, key = self._dispatcher.dispatch(self._descriptor(inputs))
        if mode is Mode.NONE:
            self._eager.prepare(inputs)
            return
        self._buffers.fill_positions(inputs, key)
        if mode is Mode.FULL:
            self._buffers.fill_tables(inputs, key)
            self._renew(self._captured[mode, key])
        else:
            self._context = step_context(inputs, self._cache, self._batch, self._place)

    def run(self, inputs: StepInputs, embedded: torch.Tensor) -> Computed:
        """See `Forward`."""
        assert self._next is not None, "`prepare` comes first"
        (mode, key), self._next = self._next, None
        self.replayed[mode] += 1
        if mode is Mode.NONE:
            return self._eager.run(inputs, embedded)
        context, self._context = self._context, None
        found, count = self._captured[mode, key], len(inputs.tokens)
        self._buffers.put(embedded, key)
        for graph, cut in found.parts:
            graph.replay()
            if cut is not None and context is not None:
                own = (each[:count] for each in (cut.q, cut.k, cut.v, cut.out))
                context.attend_into(cut.layer, *own)
        hidden, tapped = found.result
        return hidden[:count], tuple(each[:count] for each in tapped)

    def _descriptor(self, inputs: StepInputs) -> BatchDescriptor:
        least = int(inputs.num_new.min())
        return BatchDescriptor(
            tokens=len(inputs.tokens),
            requests=len(inputs.rows),
            uniform=least if least == int(inputs.num_new.max()) else 0,
            adapters=self._with_adapters(inputs),
        )

    def _capture(self, mode: Mode, key: BatchDescriptor) -> Captured:
        buffers = self._buffers
        buffers.clear(key)
        if buffers.hidden is None:
            embedded = self._model.embed(buffers.ids.tensor[:1])
            buffers.put(embedded, key)
        assert buffers.hidden is not None
        hidden, positions = buffers.hidden[: key.tokens], buffers.positions.tensor[: key.tokens]

        def record(context: Any) -> Computed:
            return forward(self._model, hidden, positions, context, self._taps)

        planned = self._plan(key) if mode is Mode.FULL else ()
        if mode is Mode.PIECEWISE:
            warm = _Warm(self._cache)
            record(warm)
            cuts = _Cuts(self._device, self._cache)
            last, result = self._recorded(lambda: record(cuts))
            return Captured((*cuts.parts, (last, None)), result)
        context = StepContext(self._cache, [metadata for _, metadata in planned])
        record(context)
        graph, result = self._recorded(lambda: record(context))
        return Captured(((graph, None),), result, planned)

    def _recorded(self, work: Callable[[], Computed]) -> tuple[Graph, Computed]:
        self._device.begin()
        try:
            result = work()
        except BaseException:
            self._give_up()
            raise
        return self._device.end(), result

    def _give_up(self) -> None:
        """The error that is on its way says more than the end of a broken record."""
        with suppress(Exception):
            self._device.end()

    def _plan(self, key: BatchDescriptor) -> tuple[tuple[CommonMetadata, object], ...]:
        """Metadata of each group, of tensors that stay."""
        made: list[tuple[CommonMetadata, object]] = []
        for group, builder in enumerate(self._cache.builders):
            if not callable(getattr(builder, "renew", None)):
                raise unfit(
                    self._cache.backends[group],
                    "is to be part of graphs, and cannot renew its metadata",
                    "a builder with `renew`, see GraphBuilder",
                    type(builder).__name__,
                )
            with blaming(self._cache.backends[group], "planning the metadata of a graph"):
                common = self._buffers.common(group, key)
                made.append((common, builder.plan(common, None)))
        return tuple(made)

    def _renew(self, found: Captured) -> None:
        for group, (common, metadata) in enumerate(found.planned):
            own = cast(GraphBuilder, self._cache.builders[group])  # `_plan` has looked
            with blaming(self._cache.backends[group], "renewing the metadata of a graph"):
                own.renew(common, metadata)


class _Warm:
    """The forward context of a pass that only makes sure that all is compiled and allocated."""

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache

    def attend(self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q.new_zeros((q.shape[0], q.shape[1], self._cache.layers[layer].head_size_v))
