"""Layers as TorchScript, which its interpreter runs without Python."""

from __future__ import annotations

import io
import platform
from collections.abc import Callable, Sequence
from typing import Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.compiler import Compiler, CompilerQuery, Piece
from framework.errors import ModelError, UnsupportedError

# Each field, and the value of it that is served.
SERVED = {"tensor_api": "torch", "device": "cpu", "dtype": "float32"}


class TorchScript(Compiler):
    """Code is an archive of TorchScript."""

    def answer(self, query: CompilerQuery) -> Answer:
        reasons = tuple(
            Rejection(
                code=field,
                field=field,
                found=getattr(query, field),
                needed=value,
                remedy="choose another compiler",
            )
            for field, value in SERVED.items()
            if getattr(query, field) != value
        )
        return Rejected(reasons) if reasons else Supported()

    def identity(self) -> str:
        import torch

        return f"torch {torch.__version__} {platform.machine()}"

    def compile(self, pieces: Sequence[Piece]) -> Sequence[bytes]:
        return [_traced(piece) for piece in pieces]

    def load(self, code: bytes) -> Callable[..., Any]:
        import torch

        try:
            call: Callable[..., Any] = torch.jit.load(io.BytesIO(code))
        except (RuntimeError, ValueError, EOFError) as error:
            raise ModelError(
                "this is no whole archive of TorchScript", found=error, mend="compile it anew"
            ) from error
        return call


def _traced(piece: Piece) -> bytes:
    import torch

    shapes = [[piece.least if n is None else n for n in each.shape] for each in piece.arguments]
    buffer = io.BytesIO()
    try:
        traced = torch.jit.trace(piece.function, tuple(torch.ones(shape) for shape in shapes))
        torch.jit.save(traced, buffer)
    except Exception as error:
        raise UnsupportedError(
            f"{piece.name} cannot be traced",
            found=f"{type(error).__name__}: {error}",
            mend="leave out `compiler`",
        ) from error
    return buffer.getvalue()
