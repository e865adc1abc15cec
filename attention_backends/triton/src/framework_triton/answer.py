"""What the backend can do, as rules over the query.  Neither torch nor triton is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Answer, Rejected, Rejection
from framework.errors import UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.attention_backend import AttentionParams

FLOATS = ("float32", "bfloat16", "float16")
MOST_HEAD_SIZE = 256
"""A tile of queries and one of keys must fit into the memory of a multiprocessor."""
MOST_HEADS = 128
"""Of those that share one KV head: they are rows of one tile."""
# Any size works; these are offered, best first, and any other is taken when asked for.
PAGE_TOKENS = (16, 32, 64, 128)
FEATURE = "triton"
"""What a platform has among its features where Triton compiles for its devices."""
INTERPRETER = "TRITON_INTERPRET"
"""Triton's own variable: kernels run in its interpreter, on the host, slowly."""

_CORRECT = "correct the model's configuration"
# Fields that must keep a value, and what else to do about it.
_FIXED = (
    ("tensor_api", "torch", "use a backend of that tensor api"),
    ("layer_type", "decoder", "use the backend sdpa"),
    ("mla", False, "use a backend with latent attention"),
    ("cascade", False, "switch cascade attention off"),
    ("context_parallel", 1, "set context_parallel to 1"),
    ("graph_mode", "none", "switch graphs off, or use a backend that can be captured"),
)
# What a mask that hides nothing leaves no meaning for.
_CAUSAL_ONLY: Mapping[str, object] = {"window": None, "chunk": None, "sink_tokens": 0}


def triton_is_installed() -> bool:
    """Whether triton is there; it is not imported."""
    return find_spec("triton") is not None


def interpreter_is_on() -> bool:
    """Whether kernels run in Triton's interpreter, by the words that Triton takes for yes."""
    return os.environ.get(INTERPRETER, "").lower() in ("1", "true", "yes", "on", "y")


def _rules(query: AttentionQuery) -> Iterator[tuple[bool, str, object, str]]:
    """(broken, field, needed, remedy) for each rule."""
    runs = FEATURE in query.features or interpreter_is_on()
    yield (
        not runs,
        "platform",
        f"one whose devices run Triton's kernels (feature {FEATURE!r}), or {INTERPRETER}=1",
        f"use the backend sdpa, or try it slowly with {INTERPRETER}=1",
    )
    for field, needed, remedy in _FIXED:
        yield getattr(query, field) != needed, field, needed, remedy
    for field in ("dtype", "cache_dtype"):
        yield getattr(query, field) not in FLOATS, field, " or ".join(FLOATS), "choose one of these"
    masks = ("causal", "bidirectional")
    yield query.mask not in masks, "mask", " or ".join(masks), "use a backend with such masks"
    for field, neutral in _CAUSAL_ONLY.items():
        hidden = query.mask == "bidirectional" and getattr(query, field) != neutral
        yield hidden, field, neutral, "it is served with a causal mask only"
    for field in ("window", "chunk"):
        value = getattr(query, field)
        yield value is not None and value < 1, field, "at least 1", _CORRECT
    without = query.sink_tokens != 0 and query.window is None
    yield without, "sink_tokens", 0, "they are seen beside a window"
    for field in ("head_size", "head_size_v"):
        yield getattr(query, field) < 1, field, "at least 1", _CORRECT
        large = getattr(query, field) > MOST_HEAD_SIZE
        yield large, field, f"at most {MOST_HEAD_SIZE}", "use the backend sdpa"
    heads, kv_heads = query.num_heads, query.num_kv_heads
    fits = kv_heads >= 1 and heads >= 1 and heads % kv_heads == 0
    yield not fits, "num_heads", f"a multiple of num_kv_heads={kv_heads}", _CORRECT
    many = fits and heads // kv_heads > MOST_HEADS
    needed = f"at most {MOST_HEADS} for each of {kv_heads} KV heads"
    yield many, "num_heads", needed, "use the backend sdpa"
    page = query.page_tokens
    yield page is not None and page < 1, "page_tokens", "at least 1", "choose a positive page size"


def answer(query: AttentionQuery, installed: Callable[[], bool] = triton_is_installed) -> Answer:
    """All reasons against, or what is offered."""
    reasons = [
        Rejection(
            code=field, field=field, found=getattr(query, field), needed=needed, remedy=remedy
        )
        for broken, field, needed, remedy in _rules(query)
        if broken
    ]
    if not installed():
        reasons.append(
            Rejection(
                code="not_installed",
                field="tensor_api",
                found=query.tensor_api,
                needed="triton beside it, which is not installed",
                remedy="pip install triton (for Linux; elsewhere use another backend)",
            )
        )
    if reasons:
        return Rejected(tuple(reasons))
    asked = query.page_tokens
    where = "in Triton's interpreter, slowly" if interpreter_is_on() else "compiled by Triton"
    return AttentionSupported(
        page_tokens=PAGE_TOKENS if asked is None else (asked,),
        batch_invariant=True,
        note=f"fused, {where}",
    )


def refuse(field: str, expected: object, found: object) -> UnsupportedError:
    """The error for what is asked for though `answer` rejects it."""
    return UnsupportedError(
        f"the triton backend does not serve this {field}",
        expected=expected,
        found=found,
        mend="ask with AttentionBackend.answer first, and choose a backend that supports it",
    )


def check_params(params: AttentionParams, causal: bool) -> None:
    """UnsupportedError for masks that `answer` rejects."""
    for field, neutral in _CAUSAL_ONLY.items():
        if not causal and getattr(params, field) != neutral:
            raise refuse(f"{field} with a bidirectional mask", neutral, getattr(params, field))
    for field in ("window", "chunk"):
        value = getattr(params, field)
        if value is not None and value < 1:
            raise refuse(field, "at least 1", value)
    if params.sink_tokens and params.window is None:
        raise refuse("sink_tokens without a window", 0, params.sink_tokens)
