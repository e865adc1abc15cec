"""Tensors that stay: what a graph reads of a step is copied into their first places.

tokens     |t0 t1 t2 t3 t4|.  .  .        a step of 5 in a graph of 8: the tail is cleared, so
rows       |r0 r1|.  .                    that it belongs to no row, and writes the null page
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from framework.contracts.attention_backend import CommonMetadata
from framework_torch.batch import Batch
from framework_torch.cache import KvCache
from framework_torch.graphs.dispatch import BatchDescriptor
from framework_torch.prepare import StepInputs


class Pair:
    """An array on the host and its twin on the device, of which the first places are in use."""

    def __init__(self, shape: tuple[int, ...], dtype: type[np.integer], device: str) -> None:
        self.host = np.zeros(shape, dtype)
        self._staged = torch.from_numpy(self.host)
        if device != "cpu":
            self._staged = self._staged.pin_memory()
            self.host = self._staged.numpy()
        self.tensor = torch.zeros(shape, dtype=self._staged.dtype, device=device)

    def fill(self, found: np.ndarray, count: int, rest: int = 0) -> None:
        """found: the first entries of `count` that a graph reads; the others become `rest`."""
        used = len(found)
        if found.ndim > 1:
            self.host[:used, : found.shape[1]] = found
            self.host[:used, found.shape[1] :] = rest
        else:
            self.host[:used] = found
        self.host[used:count] = rest
        self.tensor[:count].copy_(self._staged[:count])


@dataclass(frozen=True, slots=True)
class GroupTables:
    """Of one KV group.  pages: int32 [R, P].  mapping: int64 [T]."""

    page_tokens: int
    causal: bool
    pages: Pair
    mapping: Pair


class StepBuffers:
    """For graphs of up to `tokens` tokens and `requests` rows.

    hidden: [T, H], made by the first step: the model knows its type.
    """

    def __init__(
        self, tokens: int, requests: int, cache: KvCache, batch: Batch, device: str
    ) -> None:
        self._batch, self._max_length = batch, batch.table.width - 1
        self.hidden: torch.Tensor | None = None
        self.ids = Pair((tokens,), np.int64, device)
        self.positions = Pair((tokens,), np.int64, device)
        self._starts = Pair((requests + 1,), np.int32, device)
        self._lengths = Pair((requests,), np.int32, device)
        self._groups = [
            GroupTables(
                page_tokens=group.page_tokens,
                causal=causal,
                pages=Pair((requests, table.shape[1]), np.int32, device),
                mapping=Pair((tokens,), np.int64, device),
            )
            for group, causal, table in zip(
                cache.plan.groups, cache.causal, batch.pages.groups, strict=True
            )
        ]

    def put(self, embedded: torch.Tensor, key: BatchDescriptor) -> None:
        """The hidden states that a step begins with; those behind them are cleared."""
        if self.hidden is None:
            size = len(self.positions.host), *embedded.shape[1:]
            self.hidden = torch.zeros(size, dtype=embedded.dtype, device=embedded.device)
        self.hidden[: len(embedded)].copy_(embedded)
        self.hidden[len(embedded) : key.tokens].zero_()

    def fill_positions(self, inputs: StepInputs, key: BatchDescriptor) -> None:
        """What the parts between attention read of a step."""
        self.positions.fill(inputs.positions, key.tokens)

    def fill_tables(self, inputs: StepInputs, key: BatchDescriptor) -> None:
        """What attention reads of it.  Rows of the tail have no query, and nothing in the cache."""
        self._starts.fill(inputs.query_starts, key.requests + 1, len(inputs.tokens))
        self._lengths.fill(inputs.lengths, key.requests)
        for table, group in zip(self._batch.pages.groups, self._groups, strict=True):
            group.pages.fill(inputs.pages(table, group.page_tokens), key.requests)
            group.mapping.fill(inputs.slot_mapping(table, group.page_tokens), key.tokens)

    def clear(self, key: BatchDescriptor) -> None:
        """A step of no rows."""
        none = np.zeros(0, np.int64)
        self.positions.fill(none, key.tokens)
        self._starts.fill(none, key.requests + 1)
        self._lengths.fill(none, key.requests)
        for group in self._groups:
            group.pages.fill(np.zeros((0, 0), np.int32), key.requests)
            group.mapping.fill(none, key.tokens)

    def common(self, group: int, key: BatchDescriptor) -> CommonMetadata:
        """Of any step of a graph: its tensors stay, the numbers are the largest there can be."""
        tables, rows = self._groups[group], key.requests
        return CommonMetadata(
            query_starts=self._starts.tensor[: rows + 1],
            lengths=self._lengths.tensor[:rows],
            page_table=tables.pages.tensor[:rows],
            slot_mapping=tables.mapping.tensor[: key.tokens],
            query_starts_host=self._starts.host[: rows + 1],
            lengths_host=self._lengths.host[:rows],
            max_query=key.uniform or key.tokens,
            max_length=self._max_length,
            causal=tables.causal,
        )
