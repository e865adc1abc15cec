"""Folders that are read without Transformers: as that would read them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.contracts.model_source import ModelFiles
from framework_text.hf_loader import HfTokenizerLoader
from framework_text.plain_folder import _MODELS, read_plain

TEXT = "the fox</s> naïve <s>日本語  12\n"


@pytest.fixture
def folder(bpe_folder: Path, tmp_path: Path) -> Path:
    made = Path(shutil.copytree(bpe_folder, tmp_path / "plain"))
    write(made, "config.json", {"model_type": "llama"})
    return made


def write(folder: Path, name: str, value: object) -> None:
    (folder / name).write_text(json.dumps(value))


def change(folder: Path, **values: Any) -> None:
    file = folder / "tokenizer_config.json"
    write(folder, file.name, {**json.loads(file.read_text()), **values})


@pytest.mark.parametrize("model_type", sorted(_MODELS))
@pytest.mark.parametrize("name", ["TokenizersBackend", "PreTrainedTokenizerFast"])
def test_it_is_what_transformers_makes_of_the_folder(
    folder: Path, files: Callable[..., ModelFiles], model_type: str, name: str
) -> None:
    from transformers import AutoTokenizer

    write(folder, "config.json", {"model_type": model_type})
    change(folder, tokenizer_class=name)
    found = read_plain(folder)
    assert found is not None
    source, eos = found
    library = AutoTokenizer.from_pretrained(folder)
    assert type(library).__name__ == "TokenizersBackend"
    assert source.backend.encode(TEXT).ids == library.encode(TEXT)
    assert (source.bos_id, eos) == (library.bos_token_id, library.eos_token_id)
    assert set(source.special_ids) == set(library.all_special_ids)
    ours = HfTokenizerLoader().load(files(folder))
    assert ours.unwrap().encode(TEXT) == ours.encode(TEXT)


@pytest.mark.parametrize("where", ["file", "setting", "both"])
def test_the_chat_template_is_found(folder: Path, where: str) -> None:
    from transformers import AutoTokenizer

    if where in ("file", "both"):
        (folder / "chat_template.jinja").write_text("of the file")
    if where in ("setting", "both"):
        change(folder, chat_template="of the setting")
    found = read_plain(folder)
    assert found is not None
    assert found[0].chat_template == AutoTokenizer.from_pretrained(folder).chat_template


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_class": "GPT2Tokenizer"},
        {"tokenizer_class": None},
        {"add_bos_token": True},
        {"auto_map": {"AutoTokenizer": ["a.B", None]}},
        {"chat_template": [{"name": "default", "template": "x"}]},
        {"bos_token": {"content": "<s>", "lstrip": True}},
        {"pad_token": "<not in tokenizer.json>"},
        {"some_day": 1},
    ],
)
def test_what_may_change_ids_is_left_to_transformers(folder: Path, settings: Any) -> None:
    assert read_plain(folder) is not None
    change(folder, **settings)
    assert read_plain(folder) is None


@pytest.mark.parametrize("name", ["special_tokens_map.json", "added_tokens.json"])
def test_further_files_are_left_to_transformers(folder: Path, name: str) -> None:
    write(folder, name, {})
    assert read_plain(folder) is None


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("text", [None, "{", "[]", '{"model_type": "mistral"}'])
def test_damaged_and_other_files_are_left_to_transformers(
    folder: Path, name: str, text: str | None
) -> None:
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    assert read_plain(folder) is None


LOADS = """
import pathlib, sys
from framework.contracts.model_source import ModelFiles
from {module} import {name}
path = pathlib.Path({path!r})
root, weights = (path, ()) if path.is_dir() else (path.parent, (path,))
model = ModelFiles(name="m", root=root, weights=weights, config={{}}, format="x")
tokenizer = {name}().load(model)
tokenizer.decode(tokenizer.encode("a text"))
print(sorted(name for name in ("transformers", "torch", "jinja2") if name in sys.modules))
"""


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_tokenizing_imports_neither_transformers_nor_torch(
    folder: Path, spm_path: Path, kind: str
) -> None:
    """In a process of its own: these imports would take most of a start."""
    name = "HfTokenizerLoader" if kind == "hf" else "GgufTokenizerLoader"
    path = str(folder if kind == "hf" else spm_path)
    code = LOADS.format(module=f"framework_text.{kind}_loader", name=name, path=path)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "[]"


def test_a_gguf_tokenizer_is_what_transformers_makes_of_it(
    spm_path: Path, files: Callable[..., ModelFiles]
) -> None:
    """Around the same backend, which it finds as it would have made it."""
    from framework_text.gguf_loader import GgufTokenizerLoader

    tokenizer = GgufTokenizerLoader().load(files(spm_path))
    text = "the cat <unk> in</s> it"
    before = tokenizer.encode(text)
    library = tokenizer.unwrap()
    assert tokenizer.encode(text) == before == library.encode(text)
    assert tokenizer.bos_id == library.bos_token_id
    assert set(library.all_special_ids) <= tokenizer.special_ids
    assert 0 in before  # a role makes a token one that is matched whole
