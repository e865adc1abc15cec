"""Kind `attention_backend`: attention over a paged cache; chosen once per KV group.

Order of calls: `answer` (with the operator's page size or, unless one was set, without),
`answer` with the page size that all agreed on, `builder`, `layout`, then per step
`builder.plan` once and `run` once per layer.  `answer` may come from `framework explain` too:
it must not import torch.  One instance may serve several groups, so that what belongs to a group
belongs into its builder or its metadata.

What `answer` rejects is also refused later: `layout`, `builder`, `plan` or `run` raises
UnsupportedError, before anything is written, where it is asked for all the same.

Any other error in `plan` or `run` fails the step and stops the engine; NaN in a row of `out` ends
that request only.  So what a cache holds where a row has no token (the null page, pages of others,
the rest of its last page) must not show in its output, be it NaN.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from framework.contracts.base import Answer, Contract, Query, Supported, versioned

if TYPE_CHECKING:
    import torch

    from framework.contracts.kv_cache_spec import KVCacheSpec
    from framework.contracts.step import CacheGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionQuery(Query):
    """What a KV group needs of attention.  page_tokens None: not agreed on yet.

    layer_type: "decoder" reads and writes pages; "encoder_only" keeps nothing: each row has all its
    tokens in the step, pages have no bytes, and `run` gets metadata whose mask is bidirectional.
    platform: name of the chosen platform plugin; features: its `DeviceFacts.features`.  dtype,
    cache_dtype: as torch writes them ("float32").  window: the narrowest of the group's layers.
    sink_tokens: the most.
    What a layer needs in detail, and what each of it means, is in its `AttentionParams`.
    """

    platform: str = versioned(since="1.0")
    capability: tuple[int, int] | None = versioned(since="1.0", neutral=None)
    tensor_api: str = versioned(since="1.0", default="torch")
    dtype: str = versioned(since="1.0")
    cache_dtype: str = versioned(since="1.0")
    head_size: int = versioned(since="1.0")
    head_size_v: int = versioned(since="1.0")
    num_heads: int = versioned(since="1.0")
    num_kv_heads: int = versioned(since="1.0")
    layer_type: str = versioned(since="1.0", default="decoder")
    mask: Literal["causal", "bidirectional", "mixed"] = versioned(since="1.0", default="causal")
    window: int | None = versioned(since="1.0", neutral=None)
    sink_tokens: int = versioned(since="1.0", neutral=0)
    chunk: int | None = versioned(since="1.0", neutral=None)
    softcap: float | None = versioned(since="1.0", neutral=None)
    alibi: bool = versioned(since="1.0", neutral=False)
    sinks: bool = versioned(since="1.0", neutral=False)
    mla: bool = versioned(since="1.0", neutral=False)
    cascade: bool = versioned(since="1.0", neutral=False)
    several_per_decode: bool = versioned(since="1.0", neutral=False)
    tensor_parallel: int = versioned(since="1.0", neutral=1)
    context_parallel: int = versioned(since="1.0", neutral=1)
    connector: bool = versioned(since="1.0", neutral=False)
    graph_mode: str = versioned(since="1.0", neutral="none")
    page_tokens: int | None = versioned(since="1.0", neutral=None)
    features: frozenset[str] = versioned(since="1.1", neutral=frozenset(), hint=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSupported(Supported):
    """page_tokens: page sizes served, best first.  graphs: how far it can be part of a graph, see
    `framework.contracts.graphs.SUPPORT`; other than "none", its builders are GraphBuilders.
    batch_invariant: a row's output is the same, bit for bit, whatever rows are beside it.
    cache_dtypes: types narrower than the query's in which it would rather keep K and V, best first;
    it serves each of them.  One of them is taken where the operator leaves the choice, and lets
    kernels round (`kernel_set` "best")."""

    page_tokens: tuple[int, ...] = (16,)
    layouts: tuple[str, ...] = ("paged",)
    graphs: str = "none"
    batch_invariant: bool = False
    cache_dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """Shape of one layer's cache with `num_pages` as dimension 0, and its element type as torch
    writes it.  A page of it must have `spec.page_bytes(page_tokens)` bytes."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonMetadata:
    """What every backend needs to know of a step; R rows, T tokens.

    query_starts: int32 [R + 1]; row r's queries are tokens query_starts[r] : [r + 1].
    lengths: int32 [R], tokens of row r in the cache once this step has written.
    page_table: int32 [R, P] of the group.  slot_mapping: int64 [T], page * page_tokens +
    offset where each token's K and V go.  The *_host twins are numpy on the host.
    A row may have no query.  Pages may be shared by rows, and come in any order.  Where the table
    holds page 0, the null page, no query sees the tokens.
    causal: a query sees no token after its own; else it sees all of its row.
    """

    query_starts: torch.Tensor
    lengths: torch.Tensor
    page_table: torch.Tensor
    slot_mapping: torch.Tensor
    query_starts_host: Any
    lengths_host: Any
    max_query: int
    max_length: int
    causal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionParams:
    """What one layer needs beyond the group.

    The score of a query at position p and a key at position j is q . k * scale; then
    softcap * tanh(score / softcap); then plus alibi_slopes[head] * (j - p).  alibi_slopes:
    float32 [heads].
    window: seen are the token itself and the window - 1 before it, and besides the first
    `sink_tokens` of the row.  chunk: seen is nothing before p // chunk * chunk.
    sinks: float32 [heads], one more score in each softmax, which has no value.
    """

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    alibi_slopes: torch.Tensor | None = None
    sink_tokens: int = 0
    chunk: int | None = None


class MetadataBuilder(Protocol):
    """Makes a backend's own metadata, once per step and group."""

    def plan(self, common: CommonMetadata, reuse: object | None = None) -> object:
        """Metadata for all layers of the group in this step.

        reuse: metadata of a group planned before in this step, to share work with; it may be
        that of another backend.
        """
        ...


class GraphBuilder(MetadataBuilder, Protocol):
    """Of a backend that can be part of a graph: `run` is recorded with the metadata that `plan`
    gave for tensors that stay, and replayed when they hold another step.

    `plan` then gets the most there can be: `max_query` and `max_length` of any such step, a page
    table of its full width, and at first rows without a query.  `run` reads nothing on the host
    that differs from step to step.  Rows at the end may have no query, and tokens behind
    query_starts[R] belong to no row: their K and V go to the null page, their `out` is anything.
    """

    def renew(self, common: CommonMetadata, metadata: Any) -> None:
        """Before a replay: the tensors of `common`, those that `metadata` was planned with, hold
        the step that comes next, as do their twins on the host.  What `run` was recorded to read
        is written anew in its place; nothing is given back."""
        ...


class AttentionBackend(Contract):
    """Attention over pages."""

    kind: ClassVar[str] = "attention_backend"

    @abstractmethod
    def answer(self, query: AttentionQuery) -> Answer:
        """`AttentionSupported`, or all reasons why not."""

    @abstractmethod
    def layout(self, spec: KVCacheSpec, page_tokens: int, num_pages: int) -> CacheLayout:
        """How one layer of the group stores its pages.  UnsupportedError for a spec that it does
        not serve."""

    @abstractmethod
    def builder(self, group: CacheGroup) -> MetadataBuilder:
        """A metadata builder for a group."""

    @abstractmethod
    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: torch.Tensor,
        metadata: object,
        params: AttentionParams,
        out: torch.Tensor,
    ) -> None:
        """Write k, v into the cache, then attend, into `out`.

        cache: in the shape of `layout`; contiguous within a page, but not over pages (so index
        it, and do not `view` or `reshape` it as a whole).  Page 0 is the null page.
        metadata: what `builder.plan` gave for the group.
        q [T, heads, head_size], k [T, kv_heads, head_size], v [T, kv_heads, head_size_v]:
        contiguous within a token, but not over tokens (they may be parts of one tensor); only
        read.  out [T, heads, head_size_v], contiguous; all of it is written.
        """
