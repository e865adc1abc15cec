"""What the kernel can compute, as rules over the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from framework.contracts.base import Answer, Rejected, Rejection
from framework.contracts.kernel import OPERATORS, KernelQuery, KernelSupported, Operator
from framework_cpu_paged.answer import native_is_built, not_built, unknown_instructions

LOW_RANK = "framework.low_rank"
"""An adapter's change of what a linear map gave; see docs/adapters.md."""
OPS: Mapping[str, Operator] = {
    **{op: OPERATORS[op] for op in ("linear", "logits", "layer_input", "layer_output")},
    LOW_RANK: Operator(
        call="x [T, in_features], y [T, out_features], at int64 [N] or None -> None: to rows `at` "
        "of y, all different, or to all, it adds those of x times down and up transposed",
        weights={"down": "[rank, in_features]", "up": "[out_features, rank]"},
        usual={"in_features": 576, "rank": 16, "out_features": 1536},
    ),
}
UNIT = 2.0**-24
"""Largest relative error of rounding to float32."""
HALF_UNIT = 2.0**-11
"""The same for fp16."""
SMALLEST_NORMAL = 2.0**-14
SMALLEST_IN_TILES = 2.0**-108
"""Tiles take bfloat16 below 2^-126 for zero: that is the least `error` of this."""
SHARE = 2.0**-5
"""Of whole numbers of 16 bits those from here on up are as exact as fp16."""
KEPT: Mapping[bool, str] = {
    True: "in the narrowest type that holds them exactly",
    False: "as bfloat16 if that holds them exactly, else rounded to fp16 or, for tiles (AMX), to "
    "whole numbers of 16 bits",
}
"""By whether nothing may be lost."""
_ANOTHER = "let another kernel serve it"
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh")


def _rules(query: KernelQuery) -> Iterator[tuple[bool, str, object]]:
    """(broken, field, needed) for each rule."""
    for field, allowed in (
        ("op", OPS),
        ("tensor_api", ("torch",)),
        ("device", ("cpu",)),
        ("dtype", ("float32",)),
        ("weight_dtype", ("float32",)),
        ("quantization", (None, "int8")),
        ("graph_mode", ("none",)),
    ):
        value = getattr(query, field)
        yield value not in allowed, field, " or ".join(map(str, allowed))
    operator = OPS.get(query.op)
    if operator is not None and query.op in OPS:
        yield from _sizes(query, operator)
    known = frozenset(operator.traits if operator is not None else ())
    yield not query.traits <= known, "traits", f"some of {sorted(known)}"
    activations = query.traits & set(_ACTIVATIONS)
    yield len(activations) > 1, "traits", "one activation"
    # Whole layers have weights that are read by nobody else.
    whole = query.op in ("layer_input", "layer_output")
    yield whole and query.keep_once, "keep_once", False
    low_rank = query.op == LOW_RANK
    yield low_rank and query.quantization is not None, "quantization", None


def _sizes(query: KernelQuery, operator: Operator) -> Iterator[tuple[bool, str, object]]:
    """Memory is reckoned with by them."""
    sizes = query.sizes
    whole = all(sizes.get(name, 0) >= 1 for name in operator.usual)
    yield not whole, "sizes", f"at least 1 for each of {', '.join(operator.usual)}"
    if whole and query.op == "layer_input":
        heads = sizes["heads"] + 2 * sizes["kv_heads"]
        fits = sizes["out_features"] == heads * sizes["head_size"]
        yield not fits, "sizes", "out_features of (heads + 2 * kv_heads) * head_size"
        yield sizes["head_size"] != 2 * sizes["half_head"], "sizes", "head_size of 2 * half_head"
    if whole and query.op == "layer_output":
        yield sizes["both"] != 2 * sizes["intermediate"], "sizes", "both of 2 * intermediate"


def answer(query: KernelQuery, built: Callable[[], bool] = native_is_built) -> Answer:
    """All reasons against, or what is offered."""
    reasons = [
        Rejection(
            code=field,
            field=field,
            found=sorted(query.traits) if field == "traits" else getattr(query, field),
            needed=needed,
            remedy=_ANOTHER,
        )
        for broken, field, needed in _rules(query)
        if broken
    ]
    if not built():
        reasons.append(not_built())
    if reasons:
        return Rejected(tuple(reasons))
    unknown = unknown_instructions()
    if unknown is not None:
        return unknown
    if query.quantization is not None:
        return KernelSupported(
            note="in C, in torch's threads; weights in whole numbers of eight bits, off by 1/254 "
            "of the largest of their output",
            error=1 / 127,
            packs=True,
            row_independent=True,
        )
    # Products follow one another in a layer, and each adds its own share.
    terms = sum(query.sizes.values()) + 64
    return KernelSupported(
        note=f"in C, in torch's threads; weights {KEPT[query.lossless]}, sums in float32",
        error=terms * UNIT + (0.0 if query.lossless else 4 * HALF_UNIT),
        smallest=SMALLEST_IN_TILES if query.lossless else SMALLEST_NORMAL,
        share=0.0 if query.lossless else SHARE,
        packs=True,
        row_independent=True,
    )
