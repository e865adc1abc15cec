"""Pages of a file leave the memory when what was made of them is there."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

from framework.contracts.model_source import ModelFiles
from framework.errors import ConfigError
from framework_torch.gguf.loader import GgufLoader
from framework_torch.weights.safetensors_loader import SafetensorsLoader

COUNT, NUMBERS = 32, 64 * 1024  # 8 MiB in all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/smaps")


def resident(path: Path) -> int:
    """Bytes of `path` that are in this process's memory."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()
        if "-" in head[0] and not head[0].endswith(":"):
            ours = line.endswith(str(path))
        elif ours and head[0] == "Rss:":
            found += int(head[1]) * 1024
    return found


def tensors() -> dict[str, torch.Tensor]:
    return {f"t{index}": torch.full((NUMBERS,), float(index)) for index in range(COUNT)}


def open_safetensors(folder: Path):
    from safetensors.torch import save_file

    path = folder / "model.safetensors"
    save_file(tensors(), path)
    files = ModelFiles(name="m", root=folder, weights=(path,), format="safetensors", config={})
    return path, SafetensorsLoader().open(files)


def open_gguf(folder: Path):
    from gguf import GGUFWriter

    path = folder / "model.gguf"
    writer = GGUFWriter(path, "llama")
    for name, tensor in tensors().items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    files = ModelFiles(name="m", root=folder, weights=(path,), format="gguf", config={})
    return path, GgufLoader().open(files)


@pytest.mark.parametrize("opened", [open_safetensors, open_gguf])
def test_what_was_copied_out_of_a_file_is_not_kept_beside_it(tmp_path, opened) -> None:
    """Also where other tensors, between those that were copied, are used as they lie there."""
    path, weights = opened(tmp_path)
    copies, views, most = {}, {}, 0
    for index, name in enumerate(weights.names()):
        if index % 8:
            copies[name] = weights.get(name).clone()
        else:
            views[name] = weights.get(name)
            assert views[name].sum() >= 0  # read it all
        most = max(most, resident(path))
    used = sum(view.nbytes for view in views.values())
    assert used <= resident(path) <= most <= 2 * used
    for name, tensor in tensors().items():
        assert torch.equal({**copies, **views}[name], tensor)


def test_a_cache_that_no_memory_holds_is_refused_before_it_is_made(tiny, drive) -> None:
    """The system would promise it, and end the process when it is used."""
    runner = drive(tiny("llama").files).runner
    memory, _ = runner._loaded.platform.available_memory()
    pages = memory // runner._plan.page_bytes
    with pytest.raises(ConfigError, match=f"(?s)at most [0-9]+ pages.*{2 * pages} pages"):
        runner.bind(dataclasses.replace(runner._plan, num_pages=2 * pages))
