"""A processor that records: what torch is told between `begin` and `end` is told it again.

Results of recorded calls are written over with NaN before a replay: whatever a graph does not
compute anew of the tensors that stay is seen.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from framework.contracts.attention_backend import (
    AttentionBackend,
    AttentionSupported,
    CacheLayout,
)
from framework.contracts.base import Rejected, Rejection
from framework_cpu.platform import CpuPlatform

READ_BACK = (
    torch.ops.aten.item.default,
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
)
"""What waits for the device."""


class RecordedGraph:
    """calls: (function, arguments, keywords, its tensors), in order."""

    def __init__(self, calls):
        self.calls, self.replays = calls, 0

    def replay(self):
        self.replays += 1
        made = [(out, given) for _, given, keywords, outs in self.calls for out in outs]
        for out, given in made:
            if out.is_floating_point() and not self._is_of(out, given):
                out.fill_(float("nan"))
        for function, given, keywords, outs in self.calls:
            found = tensors(function(*given, **keywords))
            for old, new in zip(outs, found, strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)

    @staticmethod
    def _is_of(out, given):
        """A view of an argument, or the argument itself."""
        storage = out.untyped_storage().data_ptr()
        return any(t.untyped_storage().data_ptr() == storage for t in tensors(given))


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class _Mode(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, given=(), keywords=None):
        if function in READ_BACK:
            raise RuntimeError("read back to the host while recording")
        found = function(*given, **(keywords or {}))
        self.calls.append((function, given, keywords or {}, tensors(found)))
        return found


class RecordingDevice:
    """graphs: all that were recorded."""

    def __init__(self):
        self.graphs, self._mode = [], None

    def begin(self):
        assert self._mode is None, "it records already"
        self._mode = _Mode()
        self._mode.__enter__()

    def end(self):
        mode, self._mode = self._mode, None
        assert mode is not None, "it does not record"
        mode.__exit__(None, None, None)
        self.graphs.append(RecordedGraph(mode.calls))
        return self.graphs[-1]


class RecordingPlatform(CpuPlatform):
    """The processor under another name, with graphs."""

    made: ClassVar[list[RecordingDevice]] = []

    def graphs(self):
        self.made.append(RecordingDevice())
        return self.made[-1]

    def ranking(self, kind):
        return ()


class GatherBuilder:
    def plan(self, common, reuse=None):
        return {"common": common, "planned": common.lengths.data_ptr()}

    def renew(self, common, metadata):
        assert common.lengths.data_ptr() == metadata["planned"]


class GatherBackend(AttentionBackend):
    """Attention of operators alone, over all places of the page table, whatever the step."""

    support = "always"

    def answer(self, query):
        wrong = [
            name
            for name in ("window", "chunk", "softcap", "alibi", "sinks")
            if getattr(query, name) not in (None, False)
        ]
        if wrong:
            return Rejected(
                tuple(
                    Rejection(code=n, field=n, found=getattr(query, n), needed=None, remedy="sdpa")
                    for n in wrong
                )
            )
        return AttentionSupported(page_tokens=(4, 16), graphs=self.support)

    def layout(self, spec, page_tokens, num_pages):
        shape = (num_pages, 2, page_tokens, spec.num_kv_heads, spec.head_size)
        return CacheLayout(shape=shape, dtype=spec.dtype)

    def builder(self, group):
        return GatherBuilder()

    def run(self, q, k, v, cache, metadata, params, out):
        common = metadata["common"]
        page = cache.shape[2]
        places = common.slot_mapping
        cache[places // page, 0, places % page] = k
        cache[places // page, 1, places % page] = v
        rows, keys = common.page_table.shape[0], common.page_table.shape[1] * page
        found = cache[common.page_table.long()].transpose(1, 2)
        found = found.reshape(rows, 2, keys, *cache.shape[3:])
        index = torch.arange(len(q))
        row = (torch.searchsorted(common.query_starts, index, right=True) - 1).clamp(0, rows - 1)
        ends = common.query_starts[1:].long()[row]
        position = common.lengths.long()[row] - ends + index
        seen = torch.arange(keys)[None] <= position[:, None]
        seen &= common.page_table.repeat_interleave(page, 1)[row] != 0
        groups = q.shape[1] // k.shape[1]
        own_k = found[row, 0].repeat_interleave(groups, 2)
        own_v = found[row, 1].repeat_interleave(groups, 2)
        scores = torch.einsum("thd,tkhd->thk", q, own_k) * params.scale
        scores = scores.masked_fill(~seen[:, None], -1e30)
        out.copy_(torch.einsum("thk,tkhd->thd", torch.softmax(scores, -1), own_v))


class DecodeBackend(GatherBackend):
    """In graphs of one query a row only."""

    support = "decode"


class NoGraphs(GatherBackend):
    """In none."""

    support = "none"
