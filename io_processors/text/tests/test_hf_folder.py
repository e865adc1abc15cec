"""Folders with tokenizer files: what is read, and which file is blamed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from framework.contracts.base import Rejected, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import WeightQuery
from framework.errors import ModelError
from framework_text.hf_loader import HfTokenizerLoader
from framework_text.text_tokenizer import TextTokenizer


@pytest.fixture
def folder(bpe_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bpe_folder, tmp_path / "copy"))


def test_ids_and_specials_are_those_of_the_library(bpe: TextTokenizer, bpe_folder: Path) -> None:
    from transformers import AutoTokenizer

    library = AutoTokenizer.from_pretrained(bpe_folder)
    text = "the fox, naïve 日本語  12\n"
    assert bpe.encode(text) == library.encode(text)
    assert bpe.vocab_size == len(library)
    assert bpe.special_ids == {0, 1}
    assert (bpe.bos_id, bpe.eos_ids) == (0, (1,))


def test_ends_come_from_all_configurations(
    bpe_folder: Path, files: Callable[..., ModelFiles]
) -> None:
    model = files(
        bpe_folder,
        generation_config={"eos_token_id": [5, 6]},
        config={"eos_token_id": 7, "bos_token_id": 0},
    )
    assert HfTokenizerLoader().load(model).eos_ids == (5, 6, 7, 1)
    odd = files(bpe_folder, config={"eos_token_id": [True, "x", None, -4, 10**9]})
    assert HfTokenizerLoader().load(odd).eos_ids == (1,)


def test_truncation_and_padding_of_the_file_do_not_touch_prompts(
    folder: Path, edit_json: Callable[[Path, str, Any], None], files: Callable[..., ModelFiles]
) -> None:
    path = folder / "tokenizer.json"
    edit_json(
        path,
        "truncation",
        {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    )
    padding = {
        "strategy": {"Fixed": 40},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<s>",
    }
    edit_json(path, "padding", padding)
    tokenizer = HfTokenizerLoader().load(files(folder))
    assert 2 < len(tokenizer.encode("the quick brown fox jumps")) < 40


def test_a_chat_template_in_its_own_file_is_found(
    folder: Path, files: Callable[..., ModelFiles]
) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    tokenizer = HfTokenizerLoader().load(files(folder))
    assert tokenizer.decode(tokenizer.render_chat([{"role": "user", "content": "a"}])) == "a!"


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("damage", ["half", "empty", "list", "binary", "deep"])
def test_a_damaged_file_is_named(
    folder: Path, files: Callable[..., ModelFiles], name: str, damage: str
) -> None:
    path = folder / name
    raw = path.read_bytes()
    path.write_bytes(
        {
            "half": raw[: len(raw) // 2],
            "empty": b"",
            "list": b"[1, 2]",
            "binary": b"\xff\xfe\x00" + raw[:50],
            "deep": b"[" * 200_000,
        }[damage]
    )
    with pytest.raises(ModelError) as caught:
        HfTokenizerLoader().load(files(folder))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", {"type": "Alien"}),
        ("model", None),
        ("model", {"type": "BPE", "vocab": {"a": -1}, "merges": []}),
        ("model", {"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}),
        ("decoder", {"type": "BPEDecoder", "suffix": "</w>"}),
        ("added_tokens", "x"),
    ],
)
def test_a_tokenizer_json_of_nonsense_is_a_model_error(
    folder: Path,
    edit_json: Callable[[Path, str, Any], None],
    files: Callable[..., ModelFiles],
    key: str,
    value: Any,
) -> None:
    edit_json(folder / "tokenizer.json", key, value)
    with pytest.raises(ModelError):
        HfTokenizerLoader().load(files(folder))


def test_a_refused_configuration_is_not_blamed_on_the_tokenizer(
    folder: Path, files: Callable[..., ModelFiles]
) -> None:
    """Of a type whose tokenizer Transformers reads; it reads the configuration first."""
    (folder / "config.json").write_text(json.dumps({"model_type": "mistral", "hidden_size": "64"}))
    with pytest.raises(ModelError, match=r"config\.json.*refuses") as caught:
        HfTokenizerLoader().load(files(folder))
    assert "hidden_size" in str(caught.value)
    assert "expected int" in str(caught.value)


def test_answers_go_by_the_files_present(bpe_folder: Path, tmp_path: Path) -> None:
    loader = HfTokenizerLoader()
    assert isinstance(loader.answer(WeightQuery(root=bpe_folder, files=())), Supported)
    answer = loader.answer(WeightQuery(root=tmp_path, files=()))
    assert isinstance(answer, Rejected)
    assert "tokenizer.json" in str(answer.reasons[0])
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({}))
    assert isinstance(loader.answer(WeightQuery(root=tmp_path, files=())), Supported)


def test_a_folder_without_a_tokenizer_is_a_model_error(
    tmp_path: Path, files: Callable[..., ModelFiles]
) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelError, match=str(tmp_path)):
        HfTokenizerLoader().load(files(tmp_path))
