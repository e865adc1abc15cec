"""The head of GGUF files: what a good one says, and that a bad one is a quick, clear error."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framework.errors import ModelError
from framework_text.gguf_metadata import is_gguf, read_head

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.eps": 0.5,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.tokens": ["a", "é", "日本", ""],
    "tokenizer.ggml.scores": np.array([0.5, -1.0, 2.0, 0.0], np.float32),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, write: Callable[..., Path]) -> Path:
    tensors = {
        "a.weight": np.arange(64, dtype=np.float32).reshape(2, 32),
        "b.weight": np.arange(32, dtype=np.float16),
    }
    return write(tmp_path_factory.mktemp("gguf") / "good.gguf", METADATA, tensors)


def test_metadata_and_tensors_are_those_that_were_written(good: Path) -> None:
    head = read_head(good)
    assert head.architecture == "llama"
    assert head.integer("llama.block_count") == 2
    assert head.number("llama.eps") == 0.5
    assert head.flag("tokenizer.ggml.add_bos_token") is True
    assert head.strings("tokenizer.ggml.tokens") == ["a", "é", "日本", ""]
    scores = head.numbers("tokenizer.ggml.scores")
    assert scores is not None
    assert scores.tolist() == [0.5, -1.0, 2.0, 0.0]
    assert head.text("absent") is None
    raw = good.read_bytes()
    a = head.tensors["a.weight"]
    assert (a.shape, a.nbytes) == ((2, 32), 256)
    stored = np.frombuffer(raw[a.start : a.start + a.nbytes], np.float32)
    assert stored.tolist() == list(range(64))
    assert head.tensors["b.weight"].shape == (32,)


def test_the_library_reads_the_same_head(good: Path) -> None:
    from gguf import GGUFReader

    head, reader = read_head(good), GGUFReader(good)
    assert list(head.metadata) == [key for key in reader.fields if not key.startswith("GGUF.")]
    for key, value in head.metadata.items():
        theirs = reader.fields[key].contents()
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == theirs, key
    for tensor in reader.tensors:
        info = head.tensors[tensor.name]
        assert info.shape == tuple(reversed(tensor.shape.tolist()))
        assert (info.start, info.nbytes) == (tensor.data_offset, tensor.n_bytes)


def test_a_key_of_the_wrong_type_is_an_error_that_names_it(good: Path) -> None:
    head = read_head(good)
    for ask in (head.integer, head.flag, head.strings, head.numbers, head.number):
        with pytest.raises(ModelError, match=r"general\.architecture"):
            ask("general.architecture")


def test_every_truncation_is_a_clear_error(good: Path, tmp_path: Path) -> None:
    raw, path = good.read_bytes(), tmp_path / "cut.gguf"
    for length in range(0, len(raw) - 64, 3):  # the last tensor has 64 bytes
        path.write_bytes(raw[:length])
        with pytest.raises(ModelError, match=r"cut\.gguf"):
            read_head(path)


def test_what_is_not_gguf_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for raw in (b"ggml" + bytes(100), b"PK\3\4" + bytes(100)):
        path.write_bytes(raw)
        assert not is_gguf(path)
        with pytest.raises(ModelError, match="not a GGUF file"):
            read_head(path)
    (tmp_path / "x.bin").write_bytes(b"GG")
    assert not is_gguf(tmp_path / "x.bin")
    assert not is_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="cannot read"):
        read_head(tmp_path)


@pytest.mark.parametrize("raw", [b"", b"G", b"GGU"])
def test_one_that_ends_within_its_magic_is_a_damaged_one(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x.GGUF"
    path.write_bytes(raw)
    assert is_gguf(path)
    with pytest.raises(ModelError, match=f"damaged.*magic\n  found:    {len(raw)} bytes"):
        read_head(path)


@pytest.mark.parametrize("count", [1 << 16, 1 << 32, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize("at", [8, 16, 24])
def test_absurd_counts_are_refused_at_once(good: Path, tmp_path: Path, count: int, at: int) -> None:
    """At 8 the number of tensors, at 16 of keys, at 24 the length of the first key."""
    raw = bytearray(good.read_bytes())
    raw[at : at + 8] = struct.pack("<Q", count)
    path = tmp_path / "absurd.gguf"
    path.write_bytes(raw)
    # Whoever believed them would make room first.
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match=r"absurd\.gguf"):
            read_head(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


def test_a_tensor_that_would_be_huge_is_refused(good: Path, tmp_path: Path) -> None:
    raw = bytearray(good.read_bytes())
    at = raw.index(b"a.weight") + len(b"a.weight") + 4
    raw[at : at + 16] = struct.pack("<QQ", 1 << 62, 1 << 62)
    path = tmp_path / "huge.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match="beyond the end"):
        read_head(path)


def test_names_that_are_there_twice_are_named(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.gguf"
    for old, new, words in (
        (b"llama.eps", b"llama.EPS", None),
        (b"tokenizer.ggml.scores", b"tokenizer.ggml.tokens", "key 'tokenizer.ggml.tokens'"),
        (b"b.weight", b"a.weight", "tensor 'a.weight'"),
    ):
        path.write_bytes(good.read_bytes().replace(old, new))
        if words is None:
            read_head(path)
        else:
            with pytest.raises(ModelError, match=f"{words} is there twice"):
                read_head(path)


@pytest.mark.parametrize("alignment", [0, 3, 24, 1 << 21, -8, True, "8", 8.0])
def test_an_impossible_alignment_is_refused(
    write: Callable[..., Path], tmp_path: Path, alignment: object
) -> None:
    path = write(tmp_path / "aligned.gguf", {"general.name": "x"}, {})
    kinds = {bool: (7, "<?"), str: (8, "<Q"), float: (6, "<f"), int: (5, "<i")}
    number, form = kinds[type(alignment)]
    packed = struct.pack(form, 1) + b"8" if alignment == "8" else struct.pack(form, alignment)
    key = b"general.alignment"
    raw = path.read_bytes()
    # One more key in front of the others.
    (keys,) = struct.unpack_from("<Q", raw, 16)
    head = raw[:16] + struct.pack("<Q", keys + 1)
    pair = struct.pack("<Q", len(key)) + key + struct.pack("<I", number) + packed
    path.write_bytes(head + pair + raw[24:])
    with pytest.raises(ModelError, match="alignment is impossible"):
        read_head(path)


def test_shapes_that_no_tensor_has_are_refused(good: Path, tmp_path: Path) -> None:
    raw = good.read_bytes()
    at = raw.index(b"a.weight") + len(b"a.weight")
    path = tmp_path / "shape.gguf"
    path.write_bytes(raw[:at] + struct.pack("<I", 9) + raw[at + 4 :])
    with pytest.raises(ModelError, match=r"'a\.weight' has too many dimensions"):
        read_head(path)
    # Type 8 (Q8_0) has blocks of 32 numbers; rows of 31 are none.
    row = struct.pack("<IQQI", 2, 31, 2, 8)
    path.write_bytes(raw[:at] + row + raw[at + len(row) :])
    with pytest.raises(ModelError, match=r"rows of 'a\.weight' are not whole blocks"):
        read_head(path)


def test_other_versions_and_byte_orders_are_named(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    for version, words in ((1, "version 1"), (99, "version 99"), (3 << 24, "big-endian")):
        raw = bytearray(good.read_bytes())
        raw[4:8] = struct.pack("<I", version)
        path.write_bytes(raw)
        with pytest.raises(ModelError, match=words):
            read_head(path)


RELAXED = [HealthCheck.function_scoped_fixture]


@settings(max_examples=300, deadline=None, suppress_health_check=RELAXED)
@given(data=st.data())
def test_damaged_bytes_give_a_head_or_a_clear_error(
    good: Path, tmp_path: Path, data: st.DataObject
) -> None:
    raw = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.gguf"
    path.write_bytes(raw)
    try:
        head = read_head(path)
    except ModelError:
        return
    assert all(info.start + info.nbytes <= len(raw) for info in head.tensors.values())
