"""What the backend can do, as rules over the query."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Answer, Rejected, Rejection
from framework.errors import UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.attention_backend import AttentionParams

FLOATS = ("float32", "bfloat16", "float16")
LANES = 16
"""Tokens of a vector: pages, and values of a head, are multiples of it."""
MOST_HEADS = 32
"""Of those that share one KV head."""
PAGE_TOKENS = (16, 32, 64, 128)

INSTRUCTIONS = ("amx", "avx512", "avx2", "plain")
VARIABLE = "FRAMEWORK_CPU_INSTRUCTIONS"
WIDENING = frozenset(("avx2", "f16c"))
"""Instructions that read fp16 as fast as float32, so that half the bytes are half the time."""

# Fields that must keep a value, and what else to do about it.
_FIXED = (
    ("tensor_api", "torch", "use a backend of that tensor api"),
    ("layer_type", "decoder", "use a backend that serves this type of layer"),
    ("mla", False, "use a backend with latent attention"),
    ("cascade", False, "switch cascade attention off"),
    ("context_parallel", 1, "set context_parallel to 1"),
    ("graph_mode", "none", "switch graphs off, or use a backend that can be captured"),
)
_CORRECT = "correct the model's configuration"
_SDPA = "use the backend sdpa"


def native_is_built() -> bool:
    """Whether the part in C is there; it is not imported."""
    return find_spec("framework_cpu_paged._native") is not None


def not_built() -> Rejection:
    """The reason against all that needs the part in C."""
    return Rejection(
        code="not_built",
        field="",
        found="the part in C was not built",
        needed="a wheel of this platform, or a C compiler while it was installed",
        remedy="install a C compiler, then install framework-plugin-cpu-paged anew",
    )


def unknown_instructions() -> Rejected | None:
    """The final answer to whatever is asked, where the operator names a set that nobody knows."""
    asked = os.environ.get(VARIABLE, "")
    if not asked or asked in INSTRUCTIONS:
        return None
    reason = Rejection(
        code="instructions",
        field=VARIABLE,
        found=f"{asked:.80}",
        needed=f"one of {', '.join(INSTRUCTIONS)}",
        remedy="correct or unset the variable",
    )
    return Rejected((reason,), final=True)


def _rules(query: AttentionQuery) -> Iterator[tuple[bool, str, object, str]]:
    """(broken, field, needed, remedy) for each rule."""
    device = query.capability is not None  # which processors have not
    yield device, "capability", None, "it computes on processors: use triton or sdpa"
    for field, needed, remedy in _FIXED:
        yield getattr(query, field) != needed, field, needed, remedy
    for field in ("dtype", "cache_dtype"):
        yield getattr(query, field) not in FLOATS, field, " or ".join(FLOATS), "choose one of these"
    masks = ("causal", "bidirectional")
    yield query.mask not in masks, "mask", " or ".join(masks), "use a backend with such masks"
    for field in ("window", "chunk"):
        value = getattr(query, field)
        yield value is not None and value < 1, field, "at least 1", _CORRECT
        hidden = query.mask == "bidirectional" and value is not None
        yield hidden, field, None, "it is served with a causal mask only"
    sinks = query.sink_tokens
    yield sinks != 0 and query.window is None, "sink_tokens", 0, "they are seen beside a window"
    yield query.head_size < 1, "head_size", "at least 1", _CORRECT
    size = query.head_size_v
    yield size < 1 or size % LANES != 0, "head_size_v", f"a multiple of {LANES}", _SDPA
    heads, kv_heads = query.num_heads, query.num_kv_heads
    fits = kv_heads >= 1 and heads >= 1 and heads % kv_heads == 0
    yield not fits, "num_heads", f"a multiple of num_kv_heads={kv_heads}", _CORRECT
    many = fits and heads // kv_heads > MOST_HEADS
    yield many, "num_heads", f"at most {MOST_HEADS} for each of {kv_heads} KV heads", _SDPA
    page = query.page_tokens
    wrong = page is not None and (page < 1 or page % LANES != 0)
    yield wrong, "page_tokens", f"a multiple of {LANES}", "leave page_size to the backend"


def answer(query: AttentionQuery, built: Callable[[], bool] = native_is_built) -> Answer:
    """All reasons against, or what is offered."""
    reasons = [
        Rejection(
            code=field, field=field, found=getattr(query, field), needed=needed, remedy=remedy
        )
        for broken, field, needed, remedy in _rules(query)
        if broken
    ]
    if not built():
        reasons.append(not_built())
    if reasons:
        return Rejected(tuple(reasons))
    unknown = unknown_instructions()
    if unknown is not None:
        return unknown
    asked = query.page_tokens
    return AttentionSupported(
        page_tokens=PAGE_TOKENS if asked is None else (asked,),
        batch_invariant=True,
        cache_dtypes=_preferred(query),
        note="fused, in C, in torch's threads",
    )


def _preferred(query: AttentionQuery) -> tuple[str, ...]:
    """fp16 for float32, where no instruction is needed that the processor lacks."""
    plain = os.environ.get(VARIABLE) == "plain"
    fast = query.cache_dtype == "float32" and query.features >= WIDENING and not plain
    return ("float16",) if fast else ()


def refuse(field: str, expected: object, found: object) -> UnsupportedError:
    """The error for what is asked for though `answer` rejects it."""
    return UnsupportedError(
        f"the cpu_paged backend does not serve this {field}",
        expected=expected,
        found=found,
        mend="ask with AttentionBackend.answer first, and choose a backend that supports it",
    )


def check_mask(params: AttentionParams, causal: bool) -> None:
    """UnsupportedError for masks that `answer` rejects."""
    for field in ("window", "chunk"):
        value = getattr(params, field)
        if value is not None and value < 1:
            raise refuse(field, "at least 1", value)
    for field, needed in (("window", None), ("chunk", None), ("sink_tokens", 0)):
        if not causal and getattr(params, field) != needed:
            raise refuse(f"{field} with a bidirectional mask", needed, getattr(params, field))
    if params.sink_tokens and params.window is None:
        raise refuse("sink_tokens without a window", 0, params.sink_tokens)
