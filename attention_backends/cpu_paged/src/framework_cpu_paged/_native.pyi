"""The part in C."""

part_tokens: int
most_heads: int
pool_library: str

def plan(
    rows: int,
    tokens: int,
    starts: int,
    lengths: int,
    table: int,
    table_stride: int,
    slots: int,
    causal: int,
) -> object: ...
def run(
    plan: object,
    tensors: tuple[int, int, int, int, int],
    strides: tuple[int, int, int, int],
    shape: tuple[int, int, int, int, int, int, int],
    params: tuple[int, int, int, float, float, int, int],
    threads: int,
) -> None: ...

Norm = tuple[int, float, float]

def pack(outputs: int, inputs: int, bias: int, dtype: int, lossless: bool) -> object: ...
def fill(
    packed: object, weights: int, stride: int, first: int, count: int, threads: int
) -> None: ...
def choose_instructions(most: str | None) -> str: ...
def instruction_set() -> str: ...
def fits_bfloat16(values: int, count: int) -> bool: ...
def packed_bytes(packed: object) -> int: ...
def unpack(packed: object, ids: int, count: int, out: int) -> None: ...
def multiply(packed: object, x: int, x_stride: int, rows: int, out: int, threads: int) -> None: ...
def entry(
    linear: object,
    norm: Norm,
    query_norm: Norm,
    key_norm: Norm,
    heads: int,
    kv_heads: int,
    head_size: int,
) -> object: ...
def leave(
    output: object,
    gate_up: object,
    down: object,
    attention_norm: Norm,
    norm: Norm,
    mlp_norm: Norm,
    activation: int,
) -> object: ...

Uses = tuple[tuple[object, int, int], ...]

def run_entry(
    entry: object,
    x: int,
    x_stride: int,
    cosines: int,
    sines: int,
    out: int,
    rows: int,
    threads: int,
    updates: Uses = ...,
) -> None: ...
def run_leave(
    leave: object,
    attended: int,
    attended_stride: int,
    x: int,
    x_stride: int,
    out: int,
    rows: int,
    threads: int,
    of_output: Uses = ...,
    of_gate_up: Uses = ...,
    of_down: Uses = ...,
) -> None: ...
def low_rank(down: object, outputs: int, parts: tuple[tuple[object, int, int], ...]) -> object: ...
def run_low_ranks(
    updates: Uses,
    x: int,
    x_stride: int,
    y: int,
    y_stride: int,
    rows: int,
    threads: int,
) -> None: ...
