"""What layers need of a step beyond their inputs: metadata of each KV group, and the cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from framework.contracts.attention_backend import CommonMetadata
from framework.plugins.blame import blaming, failure
from framework_torch.batch import Batch
from framework_torch.cache import KvCache
from framework_torch.prepare import StepInputs


@dataclass(frozen=True, slots=True)
class StepContext:
    """The forward context of one step: metadata per group, and the layers' caches."""

    cache: KvCache
    metadata: Sequence[object]

    def attend(self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out = q.new_empty((q.shape[0], q.shape[1], self.cache.layers[layer].head_size_v))
        self.attend_into(layer, q, k, v, out)
        return out

    def attend_into(
        self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor
    ) -> None:
        """The same, with the result in `out`."""
        own = self.cache.layers[layer]
        try:
            own.backend.run(q, k, v, own.view, self.metadata[own.group], own.params, out)
        except Exception as error:
            raise failure(own.backend, f"attending in {layer}", error) from error


def step_context(
    inputs: StepInputs,
    cache: KvCache,
    batch: Batch,
    device: str,
    groups: Collection[int] | None = None,
) -> StepContext:
    """Each backend's own metadata, group by group.  groups: those that are needed; None: all."""

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    starts, lengths = tensor(inputs.query_starts), tensor(inputs.lengths)
    made: list[object] = []
    for index, (group, table) in enumerate(zip(cache.plan.groups, batch.pages.groups, strict=True)):
        if groups is not None and index not in groups:
            made.append(None)
            continue
        common = CommonMetadata(
            query_starts=starts,
            lengths=lengths,
            page_table=tensor(inputs.pages(table, group.page_tokens)),
            slot_mapping=tensor(inputs.slot_mapping(table, group.page_tokens)),
            query_starts_host=inputs.query_starts,
            lengths_host=inputs.lengths,
            max_query=int(inputs.num_new.max()),
            max_length=int(inputs.lengths.max()),
            causal=cache.causal[index],
        )
        reuse = made[-1] if made else None
        with blaming(cache.backends[index], "planning its metadata"):
            made.append(cache.builders[index].plan(common, reuse))
    return StepContext(cache, made)
