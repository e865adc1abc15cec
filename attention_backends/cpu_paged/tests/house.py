"""A cache of cpu_paged, with requests, for tests."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch

from framework.contracts.attention_backend import CommonMetadata
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.step import CacheGroup
from framework_cpu_paged.backend import CpuPagedBackend


@dataclass
class House:
    """A cache of one layer, and requests whose tokens have fixed q, k and v."""

    heads: int = 6
    kv_heads: int = 2
    size: int = 32
    page_tokens: int = 16
    dtype: torch.dtype = torch.float32
    pages: int = 400

    def __post_init__(self) -> None:
        self.backend = CpuPagedBackend()
        name = str(self.dtype).removeprefix("torch.")
        spec = FullAttentionSpec(
            num_kv_heads=self.kv_heads, head_size=self.size, head_size_v=self.size, dtype=name
        )
        group = CacheGroup(layers=("0",), spec=spec, page_tokens=self.page_tokens)
        self.builder = self.backend.builder(group)
        layout = self.backend.layout(spec, self.page_tokens, self.pages)
        self.cache = torch.full(layout.shape, math.nan, dtype=self.dtype)
        self.free = list(range(1, self.pages))

    def request(self, length: int, seed: int):
        made = torch.Generator().manual_seed(seed)
        q = torch.randn(length, self.heads, self.size, generator=made)
        k = torch.randn(length, self.kv_heads, self.size, generator=made)
        v = torch.randn(length, self.kv_heads, self.size, generator=made)
        count = -(-length // self.page_tokens)
        pages = [self.free.pop(seed % len(self.free)) for _ in range(count)]
        return q, k, v, pages

    def step(self, rows, params, causal=True):
        """rows: (request, first token, last token); the outputs of each row."""
        width = max(len(request[3]) for request, _, _ in rows)
        table = np.zeros((len(rows), width), np.int32)
        slots, starts = [], [0]
        for index, ((_, _, _, pages), first, last) in enumerate(rows):
            table[index, : len(pages)] = pages
            at = np.arange(first, last)
            page, offset = np.divmod(at, self.page_tokens)
            slots.append(np.array(pages)[page] * self.page_tokens + offset)
            starts.append(starts[-1] + last - first)
        lengths = np.array([last for _, _, last in rows], np.int32)
        host = np.array(starts, np.int32)
        common = CommonMetadata(
            query_starts=torch.from_numpy(host),
            lengths=torch.from_numpy(lengths),
            page_table=torch.from_numpy(table),
            slot_mapping=torch.from_numpy(np.concatenate(slots).astype(np.int64)),
            query_starts_host=host,
            lengths_host=lengths,
            max_query=int(np.diff(host).max()),
            max_length=int(lengths.max()),
            causal=causal,
        )
        q, k, v = (torch.cat([request[i][a:b] for request, a, b in rows]) for i in range(3))
        out = torch.full_like(q, math.nan)
        metadata = self.builder.plan(common)
        self.backend.run(q, k, v, self.cache, metadata, params, out)
        return [out[a:b] for a, b in itertools.pairwise(starts)]


def with_one_changed(run, name, change):
    def changed(q, k, v, cache, metadata, params, out):
        tensors = {"q": q, "k": k, "v": v, "cache": cache, "out": out}
        tensors[name] = change(tensors[name])
        run(**tensors, metadata=metadata, params=params)

    return changed
