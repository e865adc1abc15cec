"""Layers as compiled code: what is computed by it, and what becomes of code in files."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from framework.contracts.lora import AdapterLimits
from framework.errors import ConfigError, SelectionError, UnsupportedError
from framework.testing.driver import Driver
from framework_torch.compiling import inductor
from framework_torch.compiling.store import Store
from framework_torch.options import TorchOptions

PIECES = [
    ("layer_input", 1, 1),
    ("layer_input", 2, None),
    ("layer_output", 1, 1),
    ("layer_output", 2, None),
]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
OTHER = [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4]
STEPS = (((0, 8), (1, 11)), ((0, 1),), ((0, 1), (1, 1)))


def told(info) -> list[str]:
    return [note for note in info.notes if note.startswith("compiler: ")]


def entries(folder) -> list:
    return sorted(folder.glob("*.code"))


def bound(runner, info) -> Driver:
    driver = Driver(runner)
    driver.bind(info)
    return driver


def compare(mine: Driver, theirs: Driver, tolerance: float) -> None:
    """Steps of many rows, of one and of two."""
    for driver in (mine, theirs):
        driver.admit(0, PROMPT)
        driver.admit(1, OTHER)
    for rows in STEPS:
        one, other = mine.run(*rows), theirs.run(*rows)
        assert one.token_ids.tolist() == other.token_ids.tolist()
        np.testing.assert_allclose(one.logprobs.values, other.logprobs.values, atol=tolerance)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gemma3"])
def test_what_is_compiled_computes_what_kernels_do(tiny, compiling, drive, name) -> None:
    """Biases, norms of heads, offsets, norms behind a part, activations: all that layers have."""
    files = tiny(name).files
    runner, info = compiling.load(files)
    assert sorted(compiling.compiled, key=str) == PIECES, "layers do not share their code"
    compare(bound(runner, info), drive(files, kernel_set="plain"), 2e-5)
    assert set(compiling.called) == {19, 1, 2}


def test_the_second_start_finds_all_and_says_so(tiny, compiling) -> None:
    files = tiny("llama").files
    _, first = compiling.load(files)
    assert "4 pieces of code for 1 and from 2 rows on: 0 from " in told(first)[0]
    assert ", 4 compiled, in " in told(first)[0]
    assert len(entries(compiling.folder)) == 4
    compiling.compiled.clear()
    _, again = compiling.load(files)
    assert compiling.compiled == []
    assert f"4 from {compiling.folder}, 0 compiled, in " in told(again)[0]
    assert len(told(again)) == 1


@pytest.mark.parametrize(
    "change", ["config", "dtype", "source", "identity", "plugin", "ranges", "architecture"]
)
def test_code_of_anything_else_is_not_taken(tiny, compiling, monkeypatch, change) -> None:
    from framework_torch.compiling import apply

    compiling.load(tiny("llama").files)
    compiling.compiled.clear()
    files, more = tiny("llama").files, {}
    if change == "config":
        files = tiny("llama", rope_theta=77.0).files
    elif change == "architecture":
        files = tiny("mistral").files
    elif change == "dtype":
        more["dtype"] = "bfloat16"
    elif change == "source":
        monkeypatch.setattr(apply, "_sources", lambda: "another")
    elif change == "identity":
        import quick_compiler

        monkeypatch.setattr(quick_compiler.Quick, "identity", lambda self: "quick, next release")
    elif change == "plugin":
        compiling.module.write_text(compiling.module.read_text() + "# another release\n")
    elif change == "ranges":
        more["options"] = TorchOptions(compile_cache=compiling.folder, compile_ranges=(1, 16))
    compiling.load(files, **more)
    assert len(compiling.compiled) == 4  # of (1, 16): 2 to 16 and from 17 on


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda code: b"", "damaged"),
        (lambda code: code[: len(code) // 2], "damaged"),
        (lambda code: code[:-1], "damaged"),
        (lambda code: code[:-9] + bytes((code[-9] ^ 1,)) + code[-8:], "damaged"),
        (lambda code: b"[" * 100_000 + b"\n" + code, "damaged"),
        (lambda code: b"\x80\x05\xff no line", "damaged"),
    ],
)
def test_a_spoilt_entry_is_dropped_with_a_line_and_compiled_anew(
    tiny, compiling, drive, spoil, why
) -> None:
    files = tiny("llama").files
    compiling.load(files)
    compiling.compiled.clear()
    victim = entries(compiling.folder)[0]
    whole = victim.read_bytes()
    victim.write_bytes(spoil(whole))
    runner, info = compiling.load(files)
    assert len(compiling.compiled) == 1
    assert f"{victim} is not used, and compiled anew: " in told(info)[1]
    assert why in told(info)[1]
    assert victim.read_bytes() == whole
    compare(bound(runner, info), drive(files, kernel_set="plain"), 2e-5)


def test_whole_entries_under_each_others_names_are_not_taken(tiny, compiling) -> None:
    files = tiny("llama").files
    compiling.load(files)
    first, second, *_ = entries(compiling.folder)
    first.write_bytes(second.read_bytes())
    compiling.compiled.clear()
    _, info = compiling.load(files)
    assert len(compiling.compiled) == 1
    assert str(first) in told(info)[1]


def test_whole_entries_that_the_compiler_refuses_are_dropped(tiny, compiling, monkeypatch) -> None:
    """Whole files of code that does not load here."""
    files, put = tiny("llama").files, Store.put
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put", lambda self, of, code: put(self, of, b"no code"))
        compiling.load(files)
    compiling.compiled.clear()
    _, info = compiling.load(files)
    assert len(compiling.compiled) == 4
    assert len(told(info)) == 5


def test_what_others_may_write_to_is_not_read(tiny, compiling) -> None:
    files = tiny("llama").files
    compiling.load(files)
    victim = entries(compiling.folder)[0]
    victim.chmod(0o666)
    compiling.compiled.clear()
    _, info = compiling.load(files)
    assert len(compiling.compiled) == 1
    assert "can be written by others" in told(info)[1]
    compiling.folder.chmod(0o777)
    compiling.compiled.clear()
    _, info = compiling.load(files)
    assert len(compiling.compiled) == 4
    assert "can be written by others, so that code is compiled at every start" in told(info)[1]


def test_a_folder_that_cannot_be_made_is_told_and_does_without(tiny, compiling, tmp_path) -> None:
    (tmp_path / "code").write_text("a file where the folder should be")
    _, info = compiling.load(tiny("llama").files)
    assert len(compiling.compiled) == 4
    assert "cannot be used" in told(info)[1]
    assert "compile_cache=FOLDER" in told(info)[1]


def test_a_disk_that_is_full_is_told_and_leaves_nothing(tiny, compiling, monkeypatch) -> None:
    import os

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    _, info = compiling.load(tiny("llama").files)
    assert "cannot be written (No space left on device)" in told(info)[1]
    assert [*compiling.folder.iterdir()] == []


def test_two_that_write_at_once_leave_one_whole_entry(tmp_path) -> None:
    """A reader sees one of the two or nothing; neither disturbs the other."""
    one, other = Store(tmp_path / "c"), Store(tmp_path / "c")
    of = {"piece": "a"}
    assert one.put(of, b"1" * 5000)
    assert other.get(of) == b"1" * 5000
    assert other.put(of, b"2" * 5000)
    assert one.put(of, b"3" * 5000)
    assert one.get(of) == other.get(of) == b"3" * 5000
    assert len([*(tmp_path / "c").iterdir()]) == 1
    assert one.notes == other.notes == []


def test_what_the_operator_asked_for_beats_the_level(tiny, compiling) -> None:
    """Nothing is compiled then, and a line says why."""
    files = tiny("llama").files
    for changes, why in (
        ({"kernels": {"layer_input": "cpu_packed", "linear": "plain"}}, "`kernels` names who"),
        ({"adapters": AdapterLimits(in_step=1, kept=1, rank=8)}, "adapters change the parts"),
        ({"quantization": "int8"}, "quantization 'int8'"),
    ):
        given = {"compiler": "auto", "choices": {"platform": "cpu", "compiler": "quick"}, **changes}
        if "kernels" in changes:
            pytest.importorskip("framework_cpu_paged._native")
        if "quantization" in changes:
            given["dtype"] = "auto"
        _, info = compiling.load(files, **given)
        assert told(info) == [told(info)[0]]
        assert told(info)[0].startswith("compiler: nothing is compiled: ")
        assert why in told(info)[0]
        assert compiling.compiled == []
        with pytest.raises(ConfigError, match="would compile nothing"):
            compiling.load(files, **{**given, "compiler": "quick"})


def test_what_no_compiler_can_see_into_is_told(tiny_other, compiling, helpers, tmp_path) -> None:
    """A model of Transformers' own code has no layers that are operators."""
    tiny_other(tmp_path / "m", "GPTNeoX", num_key_value_heads=4)
    _, info = compiling.load(helpers.files_of(tmp_path / "m"), compiler="auto")
    assert "this model has no layers" in told(info)[0]


def test_without_a_compiler_of_cpp_it_is_refused_with_what_to_do(
    tiny, compiling, monkeypatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert inductor.cpp_compiler() is None
    with pytest.raises(SelectionError, match=r"(?s)a compiler of C.*apt-get install g.*-O2"):
        compiling.load(tiny("llama").files, compiler="inductor")


@pytest.mark.parametrize("ends", [(0,), (4, 4), (9, 2)])
def test_ranges_that_are_none_are_refused(ends) -> None:
    with pytest.raises(ValueError, match="larger than the one before"):
        TorchOptions(compile_ranges=ends)


CPP = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler of C++")


@CPP
@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_inductor_computes_what_kernels_do_and_is_found_again(tiny, compiling, drive, name) -> None:
    files = tiny(name).files
    options = TorchOptions(compile_cache=compiling.folder, compile_ranges=(1, 2))
    _, first = compiling.load(files, options, compiler="inductor")
    assert "1, 2 and from 3 rows on: 0 from " in told(first)[0]
    runner, again = compiling.load(files, options, compiler="inductor")
    assert ", 0 compiled, in " in told(again)[0]
    compare(bound(runner, again), drive(files, kernel_set="plain"), 1e-4)


@CPP
@pytest.mark.long
@pytest.mark.timeout(3000)
def test_what_the_compiler_of_cpp_says_is_told(tiny, compiling, monkeypatch, tmp_path) -> None:
    program = tmp_path / "broken-g++"
    program.write_text("#!/bin/sh\necho this compiler is out of order >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    with pytest.raises(UnsupportedError, match=r"(?s)cannot be compiled.*CXX") as error:
        compiling.load(tiny("llama").files, compiler="inductor")
    assert program.name in str(error.value.found)
    assert [*compiling.folder.iterdir()] == []
