"""Tensors of GGUF files, by memory map; quantized ones become float32 when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from framework.errors import ModelError
from framework_text.gguf_head import MEND, GgufHead, TensorInfo
from framework_torch.weights.mapped import MappedFile

ROW_BLOCKS = 128
AT_A_TIME = 256
"""Rows of ROW_BLOCKS blocks, as copies of a whole tensor would be as large as itself."""
# Read as they are.  The rest is dequantized, or is not a weight.
_PLAIN = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}


class GgufWeights:
    """The tensors of one model, in one file or in the parts of a split one.

    `get` of a plain type is a view of a private map of the file: nothing is copied, and
    writing to it changes this process only.
    """

    naming = "gguf"

    def __init__(self, heads: Sequence[GgufHead]) -> None:
        self._parts: list[MappedFile] = []
        self._where: dict[str, tuple[int, TensorInfo]] = {}
        self._heads = tuple(heads)
        for index, head in enumerate(self._heads):
            try:
                self._parts.append(MappedFile(head.path))
            except OSError as error:
                raise ModelError(f"cannot map {head.path}", found=error, mend=MEND) from error
            for name, info in head.tensors.items():
                if name in self._where:
                    raise ModelError(
                        f"{head.path}: tensor {name!r} is in another part too", mend=MEND
                    )
                self._where[name] = (index, info)

    def names(self) -> Iterator[str]:
        return iter(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """Outermost first: [outputs, inputs] of a linear weight."""
        return self._find(name)[1].shape

    def source(self, name: str) -> str:
        """The file that holds the tensor, for messages."""
        return str(self._heads[self._find(name)[0]].path)

    def get(self, name: str) -> torch.Tensor:
        """float32, float16 or bfloat16, row-major, of `shape(name)`."""
        _, info = self._find(name)
        return self._read(name, info.start, info.nbytes, info.shape)

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        """See `framework.contracts.weight_loader.RowWeights`."""
        _, info = self._find(name)
        count, *rest = info.shape
        # Rows are whole blocks.
        each = info.nbytes // count
        return self._read(
            name, info.start + start * each, (stop - start) * each, (stop - start, *rest)
        )

    def _read(self, name: str, start: int, length: int, shape: tuple[int, ...]) -> torch.Tensor:
        """A tensor of `shape` out of `length` bytes."""
        index, info = self._find(name)
        try:
            raw = self._parts[index].part(start, length)
        except (OSError, ValueError) as error:
            raise self._damaged(name, f"the file has become shorter, or: {error}") from error
        kind = GGMLQuantizationType(info.type_id)
        if kind in _PLAIN:
            dtype = _PLAIN[kind]
            if start % dtype.itemsize:
                raw = raw.copy()
            return torch.from_numpy(raw).view(dtype).reshape(shape)
        if kind == GGMLQuantizationType.F64:
            return torch.from_numpy(raw).view(torch.float64).reshape(shape).float()
        return self._dequantize(name, raw, kind, shape)

    def _dequantize(
        self, name: str, raw: np.ndarray, kind: GGMLQuantizationType, shape: tuple[int, ...]
    ) -> torch.Tensor:
        per_block, size = GGML_QUANT_SIZES[kind]
        # gguf takes 16 rows at a time: with a thousand numbers each it is busy with itself.
        count = len(raw) // size
        blocks = raw.reshape(-1, gcd(count, ROW_BLOCKS) * size) if count else raw
        values = np.empty((len(blocks), count * per_block // max(len(blocks), 1)), np.float32)
        try:
            for start in range(0, len(blocks), AT_A_TIME):
                part = slice(start, start + AT_A_TIME)
                values[part] = dequantize(blocks[part], kind)
        except (NotImplementedError, ValueError, KeyError) as error:
            raise ModelError(
                f"{self.source(name)}: tensor {name!r} is of the type {kind.name}, "
                "which cannot be read",
                found=str(error) or type(error).__name__,
                mend="use another quantization of the model",
            ) from error
        return torch.from_numpy(values).reshape(shape)

    def _find(self, name: str) -> tuple[int, TensorInfo]:
        found = self._where.get(name)
        if found is None:
            raise self._damaged(name, "it has no such tensor")
        return found

    def _damaged(self, name: str, found: str) -> ModelError:
        return ModelError(
            f"{self._heads[0].path}: tensor {name!r} cannot be read", found=found, mend=MEND
        )
