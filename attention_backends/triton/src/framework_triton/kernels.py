"""The kernels, in Triton.  Importing this imports triton, which reads TRITON_INTERPRET then.

    keys of a row   |0 .. sinks|  not read  |low(first query) ........ high(last query)| length |
    blocks of them  |== head ==|            |=============== body ====================|

A program has one tile of queries (see `work`) and one KV head.  It walks over the blocks of keys
that any query of its tile sees, and keeps the greatest score so far, the sum of the weights and the
weighted sum of values (online softmax: Milakov and Gimelshein 2018; FlashAttention-2, Dao 2023).
Scores are in base 2.  What no query of the tile sees is not read: it may be anything, be it NaN.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def write(
    k,
    v,
    cache,
    slots,
    tokens,
    k_stride,
    v_stride,
    page_stride,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_V: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,
    WIDE_V: tl.constexpr,
):
    """K and V into their slots.  Grid: blocks of BLOCK pairs of a token and a KV head.

    k [T, HEADS, SIZE], v [T, HEADS, SIZE_V]; cache [pages, HEADS, PAGE, SIZE + SIZE_V]; slots
    int64 [T].  WIDE, WIDE_V: powers of two that hold the sizes.
    """
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    token = pair // HEADS
    head = pair % HEADS
    real = token < tokens
    slot = tl.load(slots + token, mask=real, other=0)
    page = slot // PAGE
    place = cache + page * page_stride + (head * PAGE + slot % PAGE) * (SIZE + SIZE_V)
    token = token.to(tl.int64)
    at = tl.arange(0, WIDE)[None, :]
    mask = real[:, None] & (at < SIZE)
    x = tl.load(k + (token * k_stride + head * SIZE)[:, None] + at, mask=mask, other=0.0)
    tl.store(place[:, None] + at, x.to(tl.float32).to(cache.dtype.element_ty), mask=mask)
    at = tl.arange(0, WIDE_V)[None, :]
    mask = real[:, None] & (at < SIZE_V)
    x = tl.load(v + (token * v_stride + head * SIZE_V)[:, None] + at, mask=mask, other=0.0)
    tl.store(place[:, None] + SIZE + at, x.to(tl.float32).to(cache.dtype.element_ty), mask=mask)


@triton.jit
def attend(
    q,
    cache,
    table,
    starts,
    lengths,
    work,
    sinks,
    slopes,
    out,
    best_out,
    sum_out,
    count,
    q_stride,
    page_stride,
    table_stride,
    scale,
    softcap,
    window,
    sink_tokens,
    chunk,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_WIDE: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_V: tl.constexpr,
    WIDE: tl.constexpr,
    WIDE_V: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CHUNK: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    PIECE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """One tile of queries over its keys.  Grid: tiles or pieces, KV heads.

    q [T, heads, SIZE]; table int32 [R, P]; starts int32 [R + 1]; lengths int32 [R]; work int32
    [2 or 3, count]: row, first token and, where PIECE, first key.
    Without PIECE, out is [T, heads, SIZE_V].  With it what comes out is one piece of SPLIT keys:
    out float32 [count, KV_HEADS, TILE, WIDE_V] not yet divided, best_out and sum_out float32
    [count, KV_HEADS, TILE], for `merge`.
    COMPUTE: the element type of products; sums are in float32.
    """
    item = tl.program_id(0)
    kv_head = tl.program_id(1)
    row = tl.load(work + item)
    first = tl.load(work + count + item)
    end = tl.load(starts + row + 1)
    length = tl.load(lengths + row)

    # Of the rows of the tile: token in the step, head, position in the request.
    of_tile = tl.arange(0, TILE)
    token = first + of_tile // GROUP_WIDE
    member = of_tile % GROUP_WIDE
    head = kv_head * GROUP + member
    real = (token < end) & (member < GROUP)
    position = length - end + token
    wide_token = token.to(tl.int64)

    at = tl.arange(0, WIDE)
    at_v = tl.arange(0, WIDE_V)[None, :]
    queries = tl.load(
        q + (wide_token * q_stride + head * SIZE)[:, None] + at[None, :],
        mask=real[:, None] & (at < SIZE)[None, :],
        other=0.0,
    ).to(COMPUTE)
    at = at[:, None]
    in_size = at < SIZE
    in_size_v = at_v < SIZE_V

    # Keys [low, high) are what some query of the tile sees, sink tokens aside.
    low = length * 0
    high = length
    if CAUSAL:
        earliest = length - end + first
        latest = earliest + (TILE // GROUP_WIDE) - 1
        high = tl.minimum(length, latest + 1)
        if HAS_WINDOW:
            low = tl.maximum(low, earliest - window + 1)
        if HAS_CHUNK:
            low = tl.maximum(low, earliest // chunk * chunk)
    body = low // BLOCK
    body_end = (high + BLOCK - 1) // BLOCK
    head_begin = body * 0
    head_end = head_begin
    if HAS_WINDOW:
        head_end = tl.minimum((sink_tokens + BLOCK - 1) // BLOCK, body)
    if PIECE:
        key = tl.load(work + 2 * count + item)
        head_begin = key // BLOCK
        piece_end = head_begin + SPLIT // BLOCK
        head_end = tl.maximum(tl.minimum(head_end, piece_end), head_begin)
        body = tl.maximum(body, head_begin)
        body_end = tl.maximum(tl.minimum(body_end, piece_end), body)
    in_head = head_end - head_begin
    blocks = in_head + body_end - body

    best = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    if HAS_SINKS and not PIECE:
        best = tl.load(sinks + head, mask=real, other=0.0) * LOG2E
        total = total + 1.0
    if HAS_SLOPES:
        slope = tl.load(slopes + head, mask=real, other=0.0)
    summed = tl.zeros([TILE, WIDE_V], tl.float32)

    width = SIZE + SIZE_V
    pages = table + row.to(tl.int64) * table_stride
    of_head = cache + kv_head * (PAGE * width)
    in_block = tl.arange(0, BLOCK)
    position = position[:, None]
    real_row = real[:, None]
    for i in range(blocks):
        block = tl.where(i < in_head, head_begin + i, body + i - in_head)
        keys = block * BLOCK + in_block
        wanted = (keys >= low) & (keys < high)
        if HAS_WINDOW:
            wanted = wanted | ((keys < sink_tokens) & (keys < high))
            if HAS_CHUNK:
                wanted = wanted & (keys >= earliest // chunk * chunk)
        page = tl.load(pages + keys // PAGE, mask=wanted, other=0)
        place = of_head + page.to(tl.int64) * page_stride + (keys % PAGE) * width
        k = tl.load(place[None, :] + at, mask=wanted[None, :] & in_size, other=0.0)
        scores = tl.dot(queries, k.to(COMPUTE), input_precision="ieee") * scale
        if HAS_SOFTCAP:
            # tanh(x) by an exponential that may overflow to infinity without harm.
            scores = softcap * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * LOG2E / softcap)) + 1.0))
        if HAS_SLOPES:
            scores += slope[:, None] * (keys[None, :] - position).to(tl.float32)
        seen = wanted[None, :] & real_row
        if CAUSAL:
            seen = seen & (keys[None, :] <= position)
            if HAS_WINDOW:
                near = keys[None, :] > position - window
                seen = seen & (near | (keys < sink_tokens)[None, :])
            if HAS_CHUNK:
                seen = seen & (keys[None, :] >= position // chunk * chunk)
        scores = tl.where(seen, scores * LOG2E, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, 1))
        # A query that has seen nothing yet has no greatest score to subtract.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(best - base)
        total = total * shrink + tl.sum(weights, 1)
        place += SIZE
        v = tl.load(place[:, None] + at_v, mask=wanted[:, None] & in_size_v, other=0.0)
        summed = tl.dot(
            weights.to(COMPUTE), v.to(COMPUTE), summed * shrink[:, None], input_precision="ieee"
        )
        best = higher

    if PIECE:
        place = (item.to(tl.int64) * KV_HEADS + kv_head) * TILE + of_tile
        tl.store(best_out + place, best)
        tl.store(sum_out + place, total)
        tl.store(out + place[:, None] * WIDE_V + at_v, summed)
    else:
        place = (wide_token * (KV_HEADS * GROUP) + head) * SIZE_V
        tl.store(
            out + place[:, None] + at_v,
            (summed / tl.where(real, total, 1.0)[:, None]).to(out.dtype.element_ty),
            mask=real_row & in_size_v,
        )


@triton.jit
def merge(
    pieces,
    best_in,
    sum_in,
    starts,
    work,
    sinks,
    out,
    count,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_WIDE: tl.constexpr,
    SIZE_V: tl.constexpr,
    WIDE_V: tl.constexpr,
    TILE: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """The pieces of each tile into its output, in order of keys.  Grid: tiles, KV heads.

    pieces, best_in, sum_in: what `attend` left.  work int32 [4, count]: row, first token, first
    piece, number of pieces.  out [T, heads, SIZE_V].
    """
    item = tl.program_id(0)
    kv_head = tl.program_id(1)
    end = tl.load(starts + tl.load(work + item) + 1)
    first = tl.load(work + count + item)
    piece = tl.load(work + 2 * count + item)
    number = tl.load(work + 3 * count + item)

    of_tile = tl.arange(0, TILE)
    at = tl.arange(0, WIDE_V)
    token = first + of_tile // GROUP_WIDE
    member = of_tile % GROUP_WIDE
    head = kv_head * GROUP + member
    real = (token < end) & (member < GROUP)

    best = tl.full([TILE], float("-inf"), tl.float32)
    total = tl.zeros([TILE], tl.float32)
    if HAS_SINKS:
        best = tl.load(sinks + head, mask=real, other=0.0) * LOG2E
        total = total + 1.0
    summed = tl.zeros([TILE, WIDE_V], tl.float32)
    for i in range(number):
        place = ((piece + i).to(tl.int64) * KV_HEADS + kv_head) * TILE + of_tile
        theirs = tl.load(best_in + place)
        higher = tl.maximum(best, theirs)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        mine = tl.exp2(best - base)
        other = tl.exp2(theirs - base)
        total = total * mine + tl.load(sum_in + place) * other
        values = tl.load(pieces + place[:, None] * WIDE_V + at[None, :])
        summed = summed * mine[:, None] + values * other[:, None]
        best = higher
    place = (token.to(tl.int64) * (KV_HEADS * GROUP) + head) * SIZE_V
    tl.store(
        out + place[:, None] + at[None, :],
        (summed / tl.where(real, total, 1.0)[:, None]).to(out.dtype.element_ty),
        mask=real[:, None] & (at < SIZE_V)[None, :],
    )
