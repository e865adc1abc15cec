"""Building blocks equal Transformers' of the same name."""

from __future__ import annotations

import pytest
import torch
from transformers.activations import ACT2FN

from framework_torch.models.layers import ACTIVATIONS


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_an_activation_is_what_its_name_means(name) -> None:
    x = torch.linspace(-6, 6, 1001)
    torch.testing.assert_close(ACTIVATIONS[name](x), ACT2FN[name](x), rtol=0, atol=1e-6)
