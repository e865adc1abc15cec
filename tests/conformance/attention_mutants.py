"""Attention backends that break one clause each of those that all of them must keep."""

from __future__ import annotations

import itertools
from dataclasses import replace

import torch

from framework.contracts.attention_backend import AttentionSupported, CacheLayout
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import FullAttentionSpec
from tests.conformance.attention_changed import PLAYS, Changed, rejected
from tests.conformance.mutants import breaks, mutants_of

# Answers and layouts.


@breaks("ATTN-001")
class Wavers(Changed):
    def answered(self, query, answer):
        self.count = getattr(self, "count", 0) + 1
        good = isinstance(answer, AttentionSupported)
        return replace(answer, note=f"asked {self.count} times") if good else answer


@breaks("ATTN-002")
class OffersWhatItRejects(Changed):
    def answered(self, query, answer):
        if query.page_tokens == 3:
            return rejected(query, "page_tokens")
        if query.page_tokens is None and isinstance(answer, AttentionSupported):
            return replace(answer, page_tokens=(16, 3))
        return answer


@breaks("ATTN-011", "ATTN-204")
class PrefersWhatItRejects(Changed):
    def answered(self, query, answer):
        if query.dtype == "float32" and query.cache_dtype == "float16":
            return rejected(query, "cache_dtype")
        good = isinstance(answer, AttentionSupported) and query.dtype == "float32"
        return replace(answer, cache_dtypes=("float16",)) if good else answer


@breaks("ATTN-011")
class PrefersMoreBytes(Changed):
    def answered(self, query, answer):
        good = isinstance(answer, AttentionSupported)
        return replace(answer, cache_dtypes=("float32",)) if good else answer


@breaks("ATTN-011")
class PrefersAText(Changed):
    def answered(self, query, answer):
        good = isinstance(answer, AttentionSupported)
        return replace(answer, cache_dtypes="float16") if good else answer


@breaks("ATTN-011")
class PrefersATypeThatNobodyKnows(Changed):
    def answered(self, query, answer):
        good = isinstance(answer, AttentionSupported)
        return replace(answer, cache_dtypes=("fp16",)) if good else answer


@breaks("ATTN-003")
class TakesAnyPageSize(Changed):
    def answer(self, query):
        none = query.page_tokens is not None and query.page_tokens < 1
        return super().answer(replace(query, page_tokens=1) if none else query)


@breaks("ATTN-004")
class TellsAnotherValue(Changed):
    def answered(self, query, answer):
        if isinstance(answer, AttentionSupported):
            return answer
        return Rejected(tuple(replace(reason, found="what?") for reason in answer.reasons))


@breaks("ATTN-005")
class TellsOneReason(Changed):
    def answered(self, query, answer):
        return Rejected(answer.reasons[:1]) if isinstance(answer, Rejected) else answer


@breaks("ATTN-006", "ATTN-216")
class PassesOverUnknownValues(Changed):
    def answer(self, query):
        return super().answer(replace(query, graph_mode="none"))


@breaks("ATTN-007")
class TakesAnyNumberOfHeads(Changed):
    def answer(self, query):
        misfit = query.num_kv_heads > 0 and query.num_heads % query.num_kv_heads
        return super().answer(replace(query, num_heads=query.num_kv_heads) if misfit else query)


@breaks("ATTN-010")
class ServesNothing(Changed):
    def answered(self, query, answer):
        return rejected(query, "dtype")


@breaks("ATTN-020", "ATTN-022")
class WastesBytes(Changed):
    def layout(self, spec, page_tokens, num_pages):
        made = super().layout(spec, page_tokens, num_pages)
        return replace(made, shape=(*made.shape[:-1], made.shape[-1] + (num_pages == 1009)))


@breaks("ATTN-021")
class StoresAnything(Changed):
    def layout(self, spec, page_tokens, num_pages):
        if isinstance(spec, FullAttentionSpec):
            return super().layout(spec, page_tokens, num_pages)
        return CacheLayout(shape=(num_pages, spec.page_bytes(page_tokens)), dtype="float32")


@breaks("ATTN-022")
class ChangesItsLayout(Changed):
    def layout(self, spec, page_tokens, num_pages):
        made = super().layout(spec, page_tokens, num_pages)
        return replace(made, shape=made.shape[::-1]) if num_pages == 1013 else made


@breaks("ATTN-022")
class KeepsTheFirstLayout(Changed):
    def layout(self, spec, page_tokens, num_pages):
        known = self.__dict__.setdefault("known", {})
        if (spec, page_tokens) not in known:
            known[spec, page_tokens] = super().layout(spec, page_tokens, num_pages)
        return known[spec, page_tokens]


# Runs.


@breaks("ATTN-030", *PLAYS)
class ForgetsDecodesBesidePrefills(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        starts = metadata.query_starts_host
        for first, last in itertools.pairwise(starts):
            if last - first == 1 < metadata.max_query:
                out[first] = 0


@breaks("ATTN-030", *PLAYS)
class LeavesTheLastTokenOut(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        if metadata.max_query > 1:
            out[-1] = float("nan")


@breaks("ATTN-030", *PLAYS)
class DoesNotWrite(Changed):
    def run(self, q, k, v, cache, metadata, params, out):
        before = cache.clone()
        super().run(q, k, v, cache, metadata, params, out)
        cache.copy_(before)


@breaks("ATTN-030", *PLAYS)
class ScalesByTheSizeOfHeads(Changed):
    def run(self, q, k, v, cache, metadata, params, out):
        usual = replace(params, scale=q.shape[-1] ** -0.5)
        super().run(q, k, v, cache, metadata, usual, out)


@breaks("ATTN-031")
class CannotCombine(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        if q.shape[1] != k.shape[1] and (
            params.window or params.softcap or params.chunk or params.sinks is not None
        ):
            out.mul_(2)


@breaks("ATTN-032")
class DropsTheWindow(Changed):
    def asked(self, params, q, metadata):
        if metadata.causal:
            return params
        return replace(params, window=None, chunk=None, sink_tokens=0)


@breaks("ATTN-033")
class WritesBehindItsSlab(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        if not cache.is_contiguous():
            cache.as_strided((1,), (1,), cache.storage_offset() + cache.stride(0) - 1).add_(1)


@breaks("ATTN-034")
class UsesUpItsInput(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        k.zero_()


@breaks("ATTN-035", "ATTN-051", "ATTN-053")
class NeedsAQueryInEachRow(Changed):
    def planned(self, common, reuse):
        if (common.query_starts.diff() == 0).any():
            raise RuntimeError("a row without a query")
        return common


@breaks("ATTN-036")
class MasksByMultiplying(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        out += (0 * cache[metadata.page_table.long()].float().sum()).to(out.dtype)


@breaks("ATTN-037")
class OwnsItsPages(Changed):
    def planned(self, common, reuse):
        table, seen = common.page_table.clone(), set()
        for row in table:
            own = [int(page) for page in row]
            for column, page in enumerate(own):
                if page in seen:
                    row[column] = 0
            seen |= set(own)
        return replace(common, page_table=table)


@breaks("ATTN-038", "ATTN-033", "ATTN-050")
class NeedsOnePiece(Changed):
    def run(self, q, k, v, cache, metadata, params, out):
        super().run(q, k, v, cache.contiguous(), metadata, params, out)


@breaks("ATTN-039")
class NeedsContiguousInputs(Changed):
    def run(self, q, k, v, cache, metadata, params, out):
        strides = torch.empty(v.shape, device="meta").stride()
        wrong = v.as_strided(v.shape, strides)
        super().run(q, k, wrong, cache, metadata, params, out)


@breaks("ATTN-040")
class Overflows(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        if len(q) and float(q.abs().max()) > 8:
            out.fill_(float("nan"))


@breaks("ATTN-041")
class SeesOneBlock(Changed):
    def asked(self, params, q, metadata):
        return replace(params, window=params.window or 512) if metadata.causal else params


@breaks("ATTN-042", "ATTN-031")
class CannotServe64(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        if cache.shape[1] == 64:
            out.zero_()


@breaks("ATTN-043", "ATTN-053")
class CannotServe256(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        if q.shape[2] == 256:
            out.zero_()


@breaks("ATTN-050", "ATTN-033", "ATTN-038")
class UsesUpItsMetadata(Changed):
    def planned(self, common, reuse):
        return [common]

    def run(self, q, k, v, cache, metadata, params, out):
        super().run(q, k, v, cache, metadata.pop(), params, out)


@breaks("ATTN-051")
class ReusesTooMuch(Changed):
    def planned(self, common, reuse):
        return reuse if isinstance(reuse, type(common)) else common


@breaks("ATTN-052")
class TrustsForeignMetadata(Changed):
    def planned(self, common, reuse):
        return common if reuse is None else replace(common, max_query=reuse.max_query)


@breaks("ATTN-053", "ATTN-051")
class KeepsMetadataInItself(Changed):
    def planned(self, common, reuse):
        self.common = common
        return common

    def run(self, q, k, v, cache, metadata, params, out):
        super().run(q, k, v, cache, self.common, params, out)


@breaks("ATTN-054")
class KeepsItsOutput(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        self.last = out


MUTANTS = mutants_of(list(globals().values()))
