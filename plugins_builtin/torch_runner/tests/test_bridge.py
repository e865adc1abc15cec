"""The bridge from numpy to torch and back."""

import numpy as np
import pytest
import torch

from framework.errors import UnsupportedError
from framework.plugins import PluginRegistry
from framework.testing.conformance import check
from framework_torch.bridge import TorchBridge

BRIDGE = TorchBridge()
FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")


def test_it_is_found_by_the_name_of_its_api():
    assert isinstance(PluginRegistry().create("tensor_bridge", "torch"), TorchBridge)
    assert check("tensor_bridge:torch").conformant


@pytest.mark.parametrize("dtype", BRIDGE.dtypes("cpu"))
def test_values_that_a_type_holds_go_over_and_back(dtype):
    values = np.array([[0, 1, 1], [1, 0, 0]])
    tensor = BRIDGE.tensor(values, dtype, "cpu")
    assert tensor.is_contiguous()
    np.testing.assert_array_equal(BRIDGE.array(tensor).astype(np.int64), values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_values_are_rounded_to_nearest(dtype):
    values = np.random.default_rng(0).normal(size=100)
    wanted = torch.from_numpy(values).to(BRIDGE.tensor(values, dtype, "cpu").dtype).double()
    np.testing.assert_array_equal(BRIDGE.array(BRIDGE.tensor(values, dtype, "cpu")), wanted)


def test_neither_way_shares_memory():
    values = np.zeros(3)
    tensor = BRIDGE.tensor(values, "float64", "cpu")
    values += 1
    seen = BRIDGE.array(tensor)
    tensor += 5
    assert seen.tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [name for name in BRIDGE.dtypes("cpu") if name != "bool"])
def test_a_view_writes_into_the_buffer_and_nowhere_else(dtype):
    buffer = BRIDGE.tensor(np.zeros(256), "uint8", "cpu")
    view = BRIDGE.view(buffer, dtype, (3, 2), offset=8, stride=64)
    view[1] = 1
    written = np.flatnonzero(BRIDGE.array(buffer))
    assert len(written)
    assert written.min() >= 72
    assert written.max() < 72 + 2 * view.element_size()
    np.testing.assert_array_equal(BRIDGE.array(view), [[0, 0], [1, 1], [0, 0]])


def test_an_unknown_type_is_refused():
    with pytest.raises(UnsupportedError, match="int3"):
        BRIDGE.tensor(np.zeros(1), "int3", "cpu")
    with pytest.raises(UnsupportedError, match="int3"):
        BRIDGE.view(BRIDGE.tensor(np.zeros(8), "uint8", "cpu"), "int3", (1,), 0, 8)
