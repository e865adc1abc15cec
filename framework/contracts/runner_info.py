"""What a model runner tells of itself when it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from framework.contracts.cache_plan import CacheLayoutName
from framework.contracts.kv_cache_spec import KVCacheSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerInfo:
    """What a runner tells after `load`.

    layers: cache spec per layer name, in model order.  page_tokens: page sizes (tokens) that
    all chosen attention backends can serve, best first; a group may get a multiple of it.
    kernel_page_tokens: spec -> page size of its kernel, where that splits the group's pages.
    layout: how the runner wants the buffer divided.  bytes_free: bytes that may be used
    for the cache.  vocab_size: width of the logits.  features: what plans may use; see
    `StepPlan.used`.  max_loop_depth: steps that may be in flight.  max_model_len: the
    longest sequence the model itself allows.  notes: start-up lines ("attention: sdpa ...").
    generates: it samples tokens.  embedding_size: numbers of a pooled vector, of a runner that
    declares "pooling"; None: it pools, but makes no embeddings.  class_labels: names of the
    classes, of a runner that declares "classification" beside "pooling".  prompt_embeds: numbers
    of an embedding, of a runner that declares "prompt_embeds".
    whole_prompts: a token may see later ones, so that all of a prompt must be
    computed in one step, and nothing of it can be taken from the prefix cache.  lookahead: tokens
    past those of a step for which it wants to have pages; where none are free it must do without:
    the tables then have the null page there.
    """

    layers: Mapping[str, KVCacheSpec]
    page_tokens: tuple[int, ...]
    bytes_free: int
    vocab_size: int
    features: frozenset[str]
    max_loop_depth: int = 1
    max_model_len: int | None = None
    kernel_page_tokens: Mapping[KVCacheSpec, int] = field(default_factory=dict)
    layout: CacheLayoutName = "page_outermost"
    control_ops: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    generates: bool = True
    embedding_size: int | None = None
    class_labels: tuple[str, ...] = ()
    prompt_embeds: int | None = None
    whole_prompts: bool = False
    lookahead: int = 0
