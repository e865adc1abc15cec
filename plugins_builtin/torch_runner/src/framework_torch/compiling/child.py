"""The program that compiles: `python -m framework_torch.compiling.child`, tied to its parent.

A process of its own, as the compiler changes the state of the one that it works in, takes memory
that is not given back, and may be ended by the system.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from framework.plugins.tied import orders

ERROR = "error.txt"
LAST = 4000
"""Characters of an error that are told: its end, where a compiler says what is wrong."""


def main() -> int:
    """Writes NUMBER.pt2 for each piece into the folder, or ERROR."""
    order = orders()
    folder = Path(order["folder"])
    # All that is written on the way goes with the folder.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        import pickle

        import torch

        torch.set_num_threads(order["threads"])
        for number, piece in enumerate(pickle.loads(order["pieces"])):
            _compile(piece, folder / f"{number}.pt2")
    except Exception:
        text = traceback.format_exc()
        (folder / ERROR).write_text(text[-LAST:], encoding="utf-8", errors="replace")
        return 1
    return 0


def _compile(piece: Any, path: Path) -> None:
    import torch
    from torch._inductor import config
    from torch.export import Dim, export

    class Module(torch.nn.Module):
        """What can be exported."""

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = piece.function(*tensors)
            return result.contiguous()

    one = piece.least == piece.most
    # An example in the midst of the range: the ends are special to tracing, 0 and 1 as well.
    rows = piece.least if one else max(piece.least + 1, 2)
    rows = rows if piece.most is None else min(rows, piece.most)
    size = None if one else Dim("rows", min=piece.least, max=piece.most)
    examples = tuple(
        torch.zeros([rows if n is None else n for n in argument.shape]).to(
            getattr(torch, argument.dtype)
        )
        for argument in piece.arguments
    )
    moving = tuple(
        {at: size for at, n in enumerate(argument.shape) if n is None} or None
        for argument in piece.arguments
    )
    with torch.no_grad(), config.patch(_settings()):
        program = export(
            Module(), examples, dynamic_shapes=None if one else (moving,), strict=False
        )
        torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def _settings() -> dict[str, object]:
    """Headers that are compiled beforehand would lie in a folder that all users share."""
    return {"cpp_cache_precompile_headers": False, "cpp.dynamic_threads": True}


if __name__ == "__main__":
    sys.exit(main())
