"""What GGUF conversion did to tensors, undone.

The names are those of `Parameter.gguf_transform`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

LLAMA_ROPE_PERMUTE = "llama_rope_permute"
GEMMA_NORM_MINUS_ONE = "gemma_norm_minus_one"


def undo_rope_permute(tensor: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of q or k of the llama architecture, from interleaved pairs to halves.

    tensor: weight [num_heads * head_size, inputs] or bias [num_heads * head_size]; num_heads
    is that of the tensor (heads of q, KV heads of k).  Returns the same shape, a copy.

        one head in the file:  a0 b0 a1 b1 a2 b2      here:  a0 a1 a2 b0 b1 b2

    ggml rotates neighbouring rows (a, b), as the paper does; Transformers rotates row i with
    row i + head_size / 2.  Both compute the same attention.
    """
    rows, *rest = tensor.shape
    pairs = tensor.reshape(num_heads, rows // num_heads // 2, 2, *rest)
    return pairs.transpose(1, 2).reshape(tensor.shape)


def undo_gemma_norm(tensor: torch.Tensor) -> torch.Tensor:
    """Weights of Gemma's norms, stored in files as the factor 1 + w.  float32 in and out:
    near one, a narrower type would lose most of w."""
    return tensor.float() - 1.0
