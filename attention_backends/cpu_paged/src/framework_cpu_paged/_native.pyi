"""The part in C."""

instruction_set: str
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
