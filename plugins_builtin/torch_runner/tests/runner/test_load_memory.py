"""Pages of a file leave the memory when what was made of them is there."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
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


MEASURE = """
import json, sys
from pathlib import Path

from framework.contracts.model_runner import RunnerContext
from framework.contracts.model_source import ModelFiles
from framework.plugins.registry import PluginRegistry
from framework_torch.gguf.loader import GgufLoader
from framework_torch.runner import TorchRunner
from framework_torch.weights.safetensors_loader import SafetensorsLoader


def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def load(folder):
    files = tuple(sorted(path for path in folder.iterdir() if path.suffix != ".json"))
    gguf = files[0].suffix == ".gguf"
    config, _ = (GgufLoader if gguf else SafetensorsLoader)().config(folder, files)
    model = ModelFiles(
        name="m", root=folder, weights=files, format=files[0].suffix[1:], config=config
    )
    context = RunnerContext(
        model=model, registry=PluginRegistry(), dtype="auto", max_slots=2, max_step_tokens=64,
        max_model_len=64, quantization=json.loads(sys.argv[3]), choices={"platform": "cpu"},
        cache_bytes=2**22,
    )
    runner = TorchRunner()
    runner.load(context)
    return runner


load(Path(sys.argv[1])).close()  # imports, and what libraries keep
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
runner = load(Path(sys.argv[2]))
used = sum(site.num_bytes for site in runner._loaded.model.operators().values())
print(json.dumps({"peak": status("VmHWM") - before, "used": used}))
"""
MIB = 2**20
SLACK = 12 * MIB
"""What a weight of one layer takes while it is packed, and what allocators round up."""


def write_llama(folder: Path, hidden: int, layers: int, vocab: int = 1024) -> None:
    """A random Llama in float32."""
    from safetensors.torch import save_file

    inner, heads = 2 * hidden, hidden // 64
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": hidden,
                "intermediate_size": inner,
                "num_hidden_layers": layers,
                "num_attention_heads": heads,
                "num_key_value_heads": heads,
                "vocab_size": vocab,
                "max_position_embeddings": 64,
                "rms_norm_eps": 1e-5,
                "hidden_act": "silu",
                "tie_word_embeddings": True,
            }
        )
    )
    torch.manual_seed(0)
    sizes = {"self_attn.o_proj": (hidden, hidden), "mlp.down_proj": (hidden, inner)}
    sizes |= {f"self_attn.{part}_proj": (hidden, hidden) for part in "qkv"}
    sizes |= {f"mlp.{part}_proj": (inner, hidden) for part in ("gate", "up")}
    made = {
        "model.embed_tokens.weight": torch.randn(vocab, hidden),
        "model.norm.weight": torch.ones(hidden),
    }
    for index in range(layers):
        start = f"model.layers.{index}"
        for name, size in sizes.items():
            made[f"{start}.{name}.weight"] = 0.02 * torch.randn(size)
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{start}.{name}.weight"] = torch.ones(hidden)
    save_file(made, folder / "model.safetensors")


IN_LAYERS, IN_THE_EMBEDDING = (512, 12), (256, 1, 2**17)
"""Where most of the weights are, 120 and 130 MiB in float32: hidden size, layers, vocabulary."""


@pytest.mark.parametrize(
    ("sizes", "quantization"),
    [
        pytest.param(IN_LAYERS, None, marks=pytest.mark.long),
        (IN_LAYERS, "int8"),
        pytest.param(IN_THE_EMBEDDING, None, marks=pytest.mark.long),
        (IN_THE_EMBEDDING, "int8"),
    ],
)
def test_the_peak_of_a_load_is_the_weights_as_used_and_little_more(
    tmp_path, sizes, quantization
) -> None:
    """At most 1.3 times as much: neither the checkpoint's pages nor unpacked copies are there for
    more than one use at a time, and of a large one not even for that."""
    pytest.importorskip("framework_cpu_paged._native")
    write_llama(tmp_path / "tiny", 64, 1)
    write_llama(tmp_path / "large", *sizes)
    asked = (tmp_path / "tiny", tmp_path / "large", json.dumps(quantization))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *asked],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["used"] > (25 if quantization else 50) * MIB
    assert found["peak"] <= 1.3 * found["used"] + SLACK, found


def test_a_weight_is_read_when_it_is_asked_for_and_once(tiny) -> None:
    """An error of its file comes then; until then nothing of it is in memory."""
    from framework_torch.models.layers import Linear

    read = []

    def make() -> torch.Tensor:
        read.append(1)
        return torch.full((3, 4), 2.0)

    linear = Linear(4, 3, bias=False)
    linear.defer("weight", make)
    assert read == []
    assert linear(torch.ones(1, 4)).tolist() == [[8.0] * 3]
    assert [*linear.weights()] == ["weight"]
    linear.to(torch.float64)
    assert linear.weight.dtype is torch.float64
    assert read == [1]
    linear.release()
    assert linear.weight is None
