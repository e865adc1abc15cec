"""A draft model is made as the model is: compiled where that is."""

from __future__ import annotations


def drafting(compiling, model, draft, **changes):
    """The start-up lines."""
    runner, info = compiling.load(
        model.files, proposer="draft_model", draft_model=draft, max_drafts=2, **changes
    )
    runner.close()
    return info.notes


def test_a_draft_model_is_compiled_beside_its_model(tiny, compiling) -> None:
    notes = drafting(compiling, tiny("llama"), tiny("qwen3").files)
    own, its = (line for line in notes if "compiler: layer_input quick (" in line)
    assert own.startswith("compiler: ")
    assert its.startswith("draft model: compiler: ")
    assert any(line.startswith("draft model: kernels: ") for line in notes)
    both = len(compiling.compiled)
    assert both
    drafting(compiling, tiny("llama"), tiny("qwen3").files)
    assert len(compiling.compiled) == both, "all of both is found again"


def test_one_that_no_compiler_sees_into_serves_all_the_same_and_is_told(
    tiny, tiny_other, compiling, helpers, tmp_path
) -> None:
    """Also of one that was named: it serves the model."""
    tiny_other(tmp_path / "m", "GPTNeoX", num_key_value_heads=4)
    draft = helpers.files_of(tmp_path / "m")
    notes = drafting(compiling, tiny("llama"), draft, max_model_len=32)
    (line,) = (line for line in notes if line.startswith("draft model: compiler: "))
    assert "this model has no layers" in line


def test_a_draft_model_is_not_compiled_unasked(tiny, compiling) -> None:
    notes = drafting(compiling, tiny("llama"), tiny("qwen3").files, compiler=None)
    assert compiling.compiled == []
    assert not any("compiler" in line for line in notes)
