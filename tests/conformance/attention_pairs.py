"""Attention backends that declare what they do not keep, or do what they do not declare."""

from __future__ import annotations

from dataclasses import replace

import torch

from framework.contracts.attention_backend import AttentionSupported
from framework.contracts.base import Rejected
from framework.testing.conformance.suites.attention_backend import AttentionBackendSuite
from tests.conformance.attention_changed import PLAYS, Changed, rejected
from tests.conformance.mutants import breaks

# Capabilities that are declared and not kept.


def drops(**neutral):
    """A backend that passes over parameters."""

    class Drops(Changed):
        def asked(self, params, q, metadata):
            return replace(params, **neutral)

    return Drops


def spoils(condition):
    """A backend that is wrong where `condition(q, k, v, cache)` holds."""

    class Spoils(Changed):
        def spoil(self, out, q, k, v, cache, metadata, params):
            if condition(q, k, v, cache):
                out.mul_(1.5)

    return Spoils


def is_all(dtype):
    return lambda q, k, v, cache: q.dtype == cache.dtype == dtype


class MasksTheFuture(Changed):
    def planned(self, common, reuse):
        return replace(common, causal=True)


class KeepsDrafts(Changed):
    """Does not write a slot twice."""

    def run(self, q, k, v, cache, metadata, params, out):
        known = self.__dict__.setdefault("known", set())
        slots = metadata.slot_mapping.tolist()
        flat, size = slots if k.shape[0] == len(slots) else [], cache.shape[1]
        old = {slot: cache[slot // size, slot % size].clone() for slot in flat if slot in known}
        known |= set(slots)
        super().run(q, k, v, cache, metadata, params, out)
        if old:
            for slot, content in old.items():
                cache[slot // size, slot % size] = content
            self.attend_again(q, cache, metadata, params, out)

    def attend_again(self, q, cache, metadata, params, out):
        from framework_sdpa.attention import attend

        attend(q, cache, metadata, params, out)


class DependsOnItsMates(Changed):
    def spoil(self, out, q, k, v, cache, metadata, params):
        out.mul_(1 + 1e-6 * len(metadata.lengths_host))


KEEPS_NOT = {
    "float32": (spoils(is_all(torch.float32)), PLAYS),
    "bfloat16": (spoils(is_all(torch.bfloat16)), ("ATTN-031",)),
    "float16": (spoils(is_all(torch.float16)), ("ATTN-031",)),
    "mixed_types": (spoils(lambda q, k, v, cache: q.dtype != cache.dtype), ("ATTN-031",)),
    "grouped_heads": (spoils(lambda q, k, v, cache: q.shape[1] != k.shape[1]), ("ATTN-031",)),
    "unequal_head_sizes": (spoils(lambda q, k, v, c: k.shape[2] != v.shape[2]), ("ATTN-031",)),
    "window": (drops(window=None, sink_tokens=0), ("ATTN-031", "ATTN-032", "ATTN-050", "ATTN-108")),
    "sink_tokens": (drops(sink_tokens=0), ("ATTN-031",)),
    "chunk": (drops(chunk=None), ("ATTN-031", "ATTN-032")),
    "softcap": (drops(softcap=None), ("ATTN-031", "ATTN-050")),
    "sinks": (drops(sinks=None), ("ATTN-031",)),
    "alibi": (drops(alibi_slopes=None), ("ATTN-031", "ATTN-050")),
    "bidirectional": (MasksTheFuture, ("ATTN-031", "ATTN-032")),
    "several_per_decode": (KeepsDrafts, PLAYS),
    "batch_invariant": (DependsOnItsMates, ()),
}

# Capabilities that are not declared, and computed all the same.


def asks(capability, query):
    """Whether a query asks for a capability."""
    if capability in ("float32", "bfloat16", "float16"):
        return query.dtype == capability
    return {
        "mixed_types": query.dtype != query.cache_dtype,
        "grouped_heads": query.num_heads != query.num_kv_heads,
        "unequal_head_sizes": query.head_size != query.head_size_v,
        "bidirectional": query.mask == "bidirectional",
        "several_per_decode": query.several_per_decode,
    }.get(capability, bool(getattr(query, capability, None)))


FIELDS = {
    "float32": "dtype",
    "bfloat16": "dtype",
    "float16": "dtype",
    "mixed_types": "cache_dtype",
    "grouped_heads": "num_heads",
    "unequal_head_sizes": "head_size_v",
    "bidirectional": "mask",
    "several_per_decode": "dtype",  # not the field that it is about
}


def conceals(capability):
    """A backend that says it has not a capability, which it has."""

    class Conceals(Changed):
        def answered(self, query, answer):
            field = FIELDS.get(capability, capability)
            if not asks(capability, query):
                return answer
            if isinstance(answer, Rejected) and field in {r.field for r in answer.reasons}:
                return answer
            more = answer.reasons if isinstance(answer, Rejected) else ()
            return Rejected((*rejected(query, field).reasons, *more))

    return Conceals


class DependsOnWhatWasBefore(Changed):
    """Wrong for a row alone after a step of four."""

    def answered(self, query, answer):
        return (
            replace(answer, batch_invariant=False)
            if isinstance(answer, AttentionSupported)
            else answer
        )

    def spoil(self, out, q, k, v, cache, metadata, params):
        rows = len(metadata.lengths_host)
        if rows == 1 and self.__dict__.get("last") == 4:
            out.mul_(1.5)
        self.last = rows


NUMBERS = {name: number for number, name in enumerate(AttentionBackendSuite.capabilities, 1)}
for _name, (_cls, _also) in KEEPS_NOT.items():
    breaks(f"ATTN-{100 + NUMBERS[_name]}", *_also)(_cls)
LACKING = []
for _name, _number in NUMBERS.items():
    if _name not in KEEPS_NOT:  # graphs, whose mutants are a file of their own
        continue
    _cls = DependsOnWhatWasBefore if _name == "batch_invariant" else conceals(_name)
    _more = PLAYS if _name == "batch_invariant" else ("ATTN-032",)
    _more += ("ATTN-208",) if _name == "window" else ()
    LACKING.append(breaks(f"ATTN-{200 + _number}", *_more)(_cls))

MUTANTS = [*(cls for cls, _ in KEEPS_NOT.values()), *LACKING]
