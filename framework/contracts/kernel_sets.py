"""Sets of kernels and attention backends, by what they do to numbers."""

from __future__ import annotations

from typing import Literal, get_args

KernelSet = Literal["plain", "fused", "best"]
KERNEL_SETS: tuple[KernelSet, ...] = get_args(KernelSet)
"""What a manifest says of a kernel or an attention backend in `facts = { set = "fused" }`; each set
has those before it.  plain: operator by operator, on the weights as they are.  fused: the same
numbers but for rounding.  best: may round weights; also what says nothing.  The configuration's
`kernel_set` is the last one from which the platform's ranking may prefer some."""
