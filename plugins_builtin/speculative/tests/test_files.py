"""Files of heads that are damaged are told as such."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from framework.errors import ModelError
from framework_speculative.files import Tensors


@pytest.mark.parametrize("data", [b"", b"\5" + b"\0" * 7 + b"hello", b"\xff" * 16])
def test_a_damaged_file_is_named(tmp_path, data):
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.safetensors cannot be read") as refused:
        Tensors(SimpleNamespace(name="heads", weights=[path]), "cpu")
    assert "fetch the file again" in str(refused.value)


def test_and_so_is_a_folder_without_any():
    with pytest.raises(ModelError, match="no heads") as refused:
        Tensors(SimpleNamespace(name="heads", weights=[]), "cpu")
    assert "speculative_model" in str(refused.value)
