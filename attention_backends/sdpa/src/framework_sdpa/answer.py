"""What the reference backend can do, as rules over the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Answer, Rejected, Rejection
from framework.errors import UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.attention_backend import AttentionParams

FLOATS = ("float32", "bfloat16", "float16")
# Any size works; these are offered, best first, and any other is taken when asked for.
PAGE_TOKENS = (16, 32, 64, 128, 8, 4, 2, 1)

# Fields that must keep a value, and what else to do about it.
_FIXED = (
    ("tensor_api", "torch", "use a backend of that tensor api"),
    ("mla", False, "use a backend with latent attention"),
    ("cascade", False, "switch cascade attention off"),
    ("context_parallel", 1, "set context_parallel to 1"),
    ("graph_mode", "none", "switch graphs off, or use a backend that can be captured"),
)


# What a mask that hides nothing leaves no meaning for.
_CAUSAL_ONLY: Mapping[str, object] = {"window": None, "chunk": None, "sink_tokens": 0}


ENCODER_ONLY = "encoder_only"
# What attention without a cache is served without.
_ENCODER_ONLY: Mapping[str, object] = {
    "mask": "bidirectional",
    "softcap": None,
    "alibi": False,
    "sinks": False,
}


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
    if query.layer_type not in ("decoder", ENCODER_ONLY):
        remedy = "use a backend that serves this type of layer"
        yield _reject(query, "layer_type", f"decoder or {ENCODER_ONLY}", remedy)
    for field, needed in _ENCODER_ONLY.items() if query.layer_type == ENCODER_ONLY else ():
        if getattr(query, field) != needed:
            yield _reject(query, field, needed, "it is served with a cache only")
    if query.mask not in ("causal", "bidirectional"):
        yield _reject(query, "mask", "causal or bidirectional", "use a backend with such masks")
    if query.mask == "bidirectional":
        for field, needed in _CAUSAL_ONLY.items():
            if getattr(query, field) != needed:
                yield _reject(query, field, needed, "it is served with a causal mask only")
    for field in ("window", "chunk"):
        if getattr(query, field) is not None and getattr(query, field) < 1:
            yield _reject(query, field, "at least 1", "correct the model's configuration")
    if query.sink_tokens and query.window is None:
        yield _reject(query, "sink_tokens", 0, "they are what is seen beside a window")
    for field in ("head_size", "head_size_v"):
        if getattr(query, field) < 1:
            yield _reject(query, field, "at least 1", "correct the model's configuration")
    if query.num_kv_heads < 1 or query.num_heads < 1 or query.num_heads % query.num_kv_heads:
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
        batch_invariant=True,
        note="reference: one row at a time, in float32",
    )


def refuse(field: str, expected: object, found: object) -> UnsupportedError:
    """The error for what is asked for though `answer` rejects it."""
    return UnsupportedError(
        f"the sdpa backend does not serve this {field}",
        expected=expected,
        found=found,
        mend="ask with AttentionBackend.answer first, and choose a backend that supports it",
    )


def check_mask(params: AttentionParams, causal: bool) -> None:
    """UnsupportedError for masks that `answer` rejects."""
    for field, needed in _CAUSAL_ONLY.items():
        if not causal and getattr(params, field) != needed:
            raise refuse(f"{field} with a bidirectional mask", needed, getattr(params, field))
    if params.sink_tokens and params.window is None:
        raise refuse("sink_tokens without a window", 0, params.sink_tokens)


def check_inside(params: AttentionParams, causal: bool) -> None:
    """UnsupportedError for attention without a cache that `answer` rejects."""
    for field in ("softcap", "sinks", "alibi_slopes"):
        if getattr(params, field) is not None:
            raise refuse(f"{field} without a cache", None, getattr(params, field))
    if causal:
        raise refuse("causal mask without a cache", "bidirectional", "causal")
    check_mask(params, causal)
