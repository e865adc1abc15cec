"""Which attention backend serves each group of layers, and with what page sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from framework.contracts.attention_backend import (
    AttentionBackend,
    AttentionQuery,
    AttentionSupported,
)
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.contracts.model import AttentionLayer
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import DeviceFacts
from framework.errors import PluginError, SelectionError, UnsupportedError
from framework.plugins.blame import blaming, expect, unfit
from framework.plugins.selection import Selection, select
from framework_torch.specs import EncoderAttentionSpec

if TYPE_CHECKING:
    from framework.contracts.step import CacheGroup

# A kind of attention whose mask no query describes yet.
_STRANGE = CrossAttentionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionChoice:
    """The backend of one group of layers, the query it answered, page sizes it serves.
    cache_dtypes: in which it would rather keep K and V.  graphs: how far it can be part of them.
    left_out: start-up lines about backends
    that the platform prefers and that cannot serve it."""

    name: str
    backend: AttentionBackend
    query: AttentionQuery
    page_tokens: tuple[int, ...]
    cache_dtypes: tuple[str, ...] = ()
    graphs: str = "none"
    left_out: tuple[str, ...] = ()

    def agree(self, group: CacheGroup, graph_mode: str = "none") -> None:
        """Ask again with the page size that all agreed on, and whether it will be part of graphs.
        Raises SelectionError."""
        query = replace(self.query, page_tokens=group.page_tokens, graph_mode=graph_mode)
        with blaming(self.backend, "answering for the page size of its group"):
            answer = self.backend.answer(query)
        if isinstance(answer, Rejected):
            raise SelectionError(
                f"attention backend {self.name!r} cannot serve what it offered: pages of "
                f"{group.page_tokens} tokens with graph_mode={graph_mode!r}",
                plugin=f"attention_backend:{self.name}",
                expected=f"pages of one of {self.page_tokens} tokens",
                found="; ".join(str(reason) for reason in answer.reasons),
            )


def choose_attention(
    context: RunnerContext,
    layers: Mapping[str, AttentionLayer],
    facts: DeviceFacts,
    dtype: str,
    ranking: Sequence[str],
) -> dict[KVCacheSpec, AttentionChoice]:
    """One backend per group of layers with equal specs.  Raises SelectionError."""
    grouped: dict[KVCacheSpec, list[AttentionLayer]] = {}
    for layer in layers.values():
        grouped.setdefault(layer.spec, []).append(layer)
    choices = {}
    for spec, members in grouped.items():
        query = _query(spec, members, facts, dtype, context.page_tokens)
        chosen = select(
            context.registry,
            "attention_backend",
            query,
            operator=context.choices.get("attention_backend"),
            ranking=ranking,
            on_failure="raise",
        )
        backend = cast(AttentionBackend, chosen.instance)
        answer = expect(backend, "answer", chosen.answer, AttentionSupported)
        sizes = answer.page_tokens
        if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise unfit(backend, "offers page sizes that are none", "positive integers", sizes)
        choices[spec] = AttentionChoice(
            name=chosen.record.name,
            backend=backend,
            query=query,
            page_tokens=answer.page_tokens,
            cache_dtypes=answer.cache_dtypes,
            graphs=answer.graphs,
            left_out=tuple(_left_out(chosen, ranking)),
        )
    return choices


def _left_out(chosen: Selection, ranking: Sequence[str]) -> Iterator[str]:
    """Sentences on those that come before the chosen one in the platform's ranking."""
    for row in chosen.table:
        if row.chosen:
            return
        if row.record.name in ranking and isinstance(row.answer, Rejected):
            yield f"attention: {row.record.name} cannot serve: {'; '.join(row.reasons)}"


def common_page_tokens(choices: Mapping[KVCacheSpec, AttentionChoice]) -> tuple[int, ...]:
    """Page sizes that all backends serve, in the order of the first.  Raises SelectionError."""
    every = list(choices.values())
    sizes = tuple(
        size for size in every[0].page_tokens if all(size in c.page_tokens for c in every)
    )
    if not sizes:
        raise SelectionError(
            "the chosen attention backends share no page size",
            plugin="attention_backend",
            expected="one size that all serve",
            found="; ".join(f"{c.name}: {c.page_tokens}" for c in every),
            mend="name one backend that serves all layers",
        )
    return sizes


def _query(
    spec: KVCacheSpec,
    members: Sequence[AttentionLayer],
    facts: DeviceFacts,
    dtype: str,
    page_tokens: int | None,
) -> AttentionQuery:
    """What the group needs: whatever any of its layers needs."""
    if isinstance(spec, EncoderAttentionSpec):
        return _encoder_query(spec, members, facts, dtype, page_tokens)
    if not isinstance(spec, FullAttentionSpec) or isinstance(spec, _STRANGE):
        raise UnsupportedError(
            "the torch runner does not know this kind of cache",
            expected="FullAttentionSpec, SlidingWindowSpec, SinkWindowSpec or ChunkedLocalSpec",
            found=type(spec).__name__,
        )
    windows = [m.params.window for m in members if m.params.window is not None]
    if isinstance(spec, SlidingWindowSpec):
        _check_windows(spec, members)
    if isinstance(spec, ChunkedLocalSpec):
        _check_chunks(spec, members)
    chunks = [m.params.chunk for m in members if m.params.chunk is not None]
    softcaps = [m.params.softcap for m in members if m.params.softcap is not None]
    return AttentionQuery(
        platform=facts.name,
        capability=facts.capability,
        features=facts.features,
        dtype=dtype,
        cache_dtype=spec.dtype,
        head_size=spec.head_size,
        head_size_v=spec.head_size_v,
        num_heads=members[0].num_heads,
        num_kv_heads=spec.num_kv_heads,
        window=min(windows, default=None),
        sink_tokens=max(m.params.sink_tokens for m in members),
        chunk=min(chunks, default=None),
        softcap=min(softcaps, default=None),
        alibi=any(m.params.alibi_slopes is not None for m in members),
        sinks=any(m.params.sinks is not None for m in members),
        page_tokens=page_tokens,
    )


def _encoder_query(
    spec: EncoderAttentionSpec,
    members: Sequence[AttentionLayer],
    facts: DeviceFacts,
    dtype: str,
    page_tokens: int | None,
) -> AttentionQuery:
    """Attention inside a step, without a cache, where each token sees all of its prompt."""
    return AttentionQuery(
        platform=facts.name,
        capability=facts.capability,
        features=facts.features,
        dtype=dtype,
        cache_dtype=dtype,
        head_size=spec.head_size,
        head_size_v=spec.head_size_v,
        num_heads=members[0].num_heads,
        num_kv_heads=spec.num_kv_heads,
        layer_type="encoder_only",
        mask="bidirectional",
        page_tokens=page_tokens,
    )


def _check_windows(spec: SlidingWindowSpec, members: Sequence[AttentionLayer]) -> None:
    """A layer that sees more than its cache keeps would read pages of others."""
    kept = spec.sinks if isinstance(spec, SinkWindowSpec) else 0
    for member in members:
        window, sinks = member.params.window, member.params.sink_tokens
        if window is None or window > spec.window:
            raise _sees_too_much(f"AttentionParams.window of at most {spec.window}", window)
        if sinks > kept:
            raise _sees_too_much(f"AttentionParams.sink_tokens of at most {kept}", sinks)


def _check_chunks(spec: ChunkedLocalSpec, members: Sequence[AttentionLayer]) -> None:
    """Chunks of another length begin where the cache keeps nothing any more."""
    for member in members:
        if member.params.chunk != spec.chunk:
            raise _sees_too_much(f"AttentionParams.chunk of {spec.chunk}", member.params.chunk)


def _sees_too_much(expected: str, found: object) -> PluginError:
    return PluginError(
        "a layer sees further back than its cache keeps",
        expected=expected,
        found=found,
        mend="let the model definition give spec and params the same numbers",
    )
