"""The weights of a use of an operator, as kernels take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.contracts.kernel import OperatorSite

if TYPE_CHECKING:
    import torch

    from framework.contracts.weight_rows import WeightRows


def sources_of(site: OperatorSite) -> Mapping[str, torch.Tensor | WeightRows]:
    """Of a `framework.contracts.kernel.RowSite`; the weights of others."""
    found: Mapping[str, torch.Tensor | WeightRows] = getattr(site, "sources", site.weights)()
    return found
