"""What the reference backend can do, as rules over the query."""

from __future__ import annotations

from collections.abc import Iterator

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Answer, Rejected, Rejection

FLOATS = ("float32", "bfloat16", "float16")
# Any size works; these are offered, best first, and any other is taken when asked for.
PAGE_TOKENS = (16, 32, 64, 128, 8, 4, 2, 1)

# Fields that must keep a value, and what else to do about it.
_FIXED = (
    ("tensor_api", "torch", "use a backend of that tensor api"),
    ("layer_type", "decoder", "use a backend that serves this type of layer"),
    ("chunk", None, "use a backend with chunked attention"),
    ("mla", False, "use a backend with latent attention"),
    ("cascade", False, "switch cascade attention off"),
    ("context_parallel", 1, "set context_parallel to 1"),
    ("graph_mode", "none", "switch graphs off, or use a backend that can be captured"),
)


def _reject(query: AttentionQuery, field: str, needed: object, remedy: str) -> Rejection:
    return Rejection(
        code=field, field=field, found=getattr(query, field), needed=needed, remedy=remedy
    )


def _reasons(query: AttentionQuery) -> Iterator[Rejection]:
    for field, needed, remedy in _FIXED:
        if getattr(query, field) != needed:
            yield _reject(query, field, needed, remedy)
    for field in ("dtype", "cache_dtype"):
        if getattr(query, field) not in FLOATS:
            yield _reject(query, field, " or ".join(FLOATS), "choose one of these types")
    if query.mask == "mixed":
        yield _reject(query, "mask", "causal or bidirectional", "use a backend with mixed masks")
    if query.mask == "bidirectional" and query.window is not None:
        yield _reject(query, "window", None, "a window is served with a causal mask only")
    if query.num_kv_heads < 1 or query.num_heads % query.num_kv_heads:
        yield _reject(
            query,
            "num_heads",
            f"a multiple of num_kv_heads={query.num_kv_heads}",
            "correct the model's configuration",
        )
    if query.page_tokens is not None and query.page_tokens < 1:
        yield _reject(query, "page_tokens", "at least 1", "choose a positive page size")


def answer(query: AttentionQuery) -> Answer:
    """All reasons against, or what is offered."""
    reasons = tuple(_reasons(query))
    if reasons:
        return Rejected(reasons)
    asked = query.page_tokens
    return AttentionSupported(
        page_tokens=PAGE_TOKENS if asked is None else (asked,),
        note="reference: one row at a time, in float32",
    )
