"""How a model pools is read from its files, and what is not served is refused by name."""

from __future__ import annotations

import json

import pytest

from framework.contracts.model_source import ModelFiles
from framework.errors import ModelError, UnsupportedError
from framework_torch.pooling.config import PoolingConfig, pooling_of

PARTS = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


def write(root, parts=("Transformer", "Pooling", "Normalize"), pooling=MEAN, length=256):
    modules = [
        {"idx": n, "path": PARTS.get(kind, kind), "type": f"sentence_transformers.models.{kind}"}
        for n, kind in enumerate(parts)
    ]
    (root / "modules.json").write_text(json.dumps(modules))
    (root / "1_Pooling").mkdir(exist_ok=True)
    (root / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (root / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    return ModelFiles(name="m", root=root, weights=(), format="safetensors", config={})


def of(files, option=None, generates=False):
    return pooling_of(files, option, needed=not generates)


@pytest.mark.parametrize(
    ("pooling", "name"),
    [
        (MEAN, "mean"),
        ({"pooling_mode_cls_token": True, "include_prompt": True}, "cls"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_the_files_say_what_counts(tmp_path, pooling, name):
    files = write(tmp_path, pooling=pooling)
    assert of(files) == PoolingConfig(pooling=name, normalize=True, max_length=256)
    files = write(tmp_path, ("Transformer", "Pooling"), pooling, None)
    assert of(files) == PoolingConfig(pooling=name, normalize=False)


def test_an_option_goes_before_the_files(tmp_path):
    files = write(tmp_path, pooling={"pooling_mode_max_tokens": True})
    assert of(files, "cls") == PoolingConfig(pooling="cls", normalize=True, max_length=256)


def test_without_files_nothing_is_guessed(tmp_path):
    files = ModelFiles(name="m", root=tmp_path, weights=(), format="safetensors", config={})
    assert of(files, generates=True) is None
    assert of(files, "last") == PoolingConfig(pooling="last", normalize=True)
    with pytest.raises(ModelError, match="does not say") as caught:
        of(files)
    assert "pooling=" in str(caught.value)


@pytest.mark.parametrize(
    "pooling",
    [
        {},
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_mean_sqrt_len_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode": "weightedmean"},
    ],
)
def test_another_pooling_is_named(tmp_path, pooling):
    with pytest.raises(UnsupportedError, match="this pooling is not served"):
        of(write(tmp_path, pooling=pooling))


@pytest.mark.parametrize(
    "parts",
    [
        (),
        ("Transformer",),
        ("Pooling", "Transformer"),
        ("Transformer", "Pooling", "Dense", "Normalize"),
        ("Transformer", "WordEmbeddings"),
    ],
)
def test_another_chain_is_named(tmp_path, parts):
    with pytest.raises(UnsupportedError, match="Transformer, Pooling") as caught:
        of(write(tmp_path, parts))
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("modules.json", "{"),
        ("modules.json", "{}"),
        ("modules.json", "[3]"),
        ("modules.json", '[{"type": 3, "path": ""}]'),
        ("modules.json", "[" * 100_000),
        ("1_Pooling/config.json", "["),
        ("1_Pooling/config.json", "[]"),
        ("1_Pooling/config.json", None),
        ("sentence_bert_config.json", "3"),
        ("sentence_bert_config.json", '{"max_seq_length": 0}'),
        ("sentence_bert_config.json", '{"max_seq_length": "256"}'),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, text):
    files = write(tmp_path)
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text)
    with pytest.raises(ModelError) as caught:
        of(files)
    assert file in str(caught.value)


@pytest.mark.parametrize("path", ["../1_Pooling", "/etc", "a/../../b"])
def test_files_outside_of_the_model_are_not_read(tmp_path, path):
    files = write(tmp_path)
    modules = json.loads((tmp_path / "modules.json").read_text())
    modules[1]["path"] = path
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="cannot be used"):
        of(files)
