"""Models served by Transformers' modelling code, against Transformers' own forward pass."""

import pytest
import torch

from framework.errors import IntegrityError, UnsupportedError

ARCHITECTURES = (
    "Phi3",
    "Olmo2",
    "GPTNeoX",
    "GPT2",
    "OPT",
    "Cohere",
    "Granite",
    "Gemma2",
    "GptOss",
    "Mixtral",
    "DeepseekV3",
)


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.inference_mode()
def test_log_probabilities_are_transformers_for_rows_mixed_and_chunked(name, saved, hf) -> None:
    root, reference = saved(name)
    model = hf.build(root)
    every = hf.sequences()
    context = hf.History(model.attention_layers("float32"))
    found: list[list[torch.Tensor]] = [[] for _ in every]
    done = [0] * len(every)
    for sizes in ((0, 4, 7), (1, 1, 1), (0, 3, 14), (0, 1, 1)):
        context.rows = [(row, size) for row, size in enumerate(sizes) if size]
        ids = torch.cat([every[r][done[r] : done[r] + n] for r, n in context.rows])
        positions = torch.cat([torch.arange(done[r], done[r] + n) for r, n in context.rows])
        logits = model.logits(model(model.embed(ids), positions, context))
        assert logits.dtype == torch.float32
        assert logits.shape == (len(ids), model.vocab_size)
        for (row, size), part in zip(
            context.rows, logits.split([n for _, n in context.rows]), strict=True
        ):
            found[row].append(part)
            done[row] += size
    assert done == [1, 9, 23]
    for ids, parts in zip(every, found, strict=True):
        right = reference(input_ids=ids[None]).logits[0].log_softmax(-1)
        torch.testing.assert_close(torch.cat(parts).log_softmax(-1), right, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["Phi3", "Olmo2", "GPTNeoX", "GptOss"])
def test_the_runner_serves_it_greedy_and_scored_as_transformers_does(
    name, saved, drive, hf
) -> None:
    root, reference = saved(name)
    driver = drive(hf.files_of(root))
    prompts = [ids.tolist() for ids in hf.sequences()]
    for slot, ids in enumerate(prompts):
        driver.admit(slot, ids)
    driver.run((2, 9), (1, 4))
    driver.run((0, 1), (2, 14), (1, 5))
    for _ in range(4):
        last = driver.run((1, 1), (0, 1), (2, 1))
    for row, slot in enumerate((1, 0, 2)):
        tokens = driver.requests[slot].tokens
        with torch.no_grad():
            right = reference(torch.tensor([tokens[:-1]])).logits[0].log_softmax(-1)
        count = len(tokens) - len(prompts[slot])
        assert count == 5
        assert tokens[-count:] == right[-count:].argmax(-1).tolist()
        low, high = last.logprobs.offsets[row : row + 2]
        scored = dict(zip(last.logprobs.ids[low:high], last.logprobs.values[low:high], strict=True))
        assert len(scored) == 96
        for token, value in scored.items():
            assert value == pytest.approx(float(right[-1, token]), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "windows"), [("Phi3", [6, 6]), ("GptOss", [6, None]), ("Gemma2", [5, None])]
)
def test_specs_say_of_every_layer_what_was_seen_of_it(name, windows, saved, hf) -> None:
    root, _ = saved(name)
    layers = hf.build(root).attention_layers("bfloat16")
    assert [getattr(layer.spec, "window", None) for layer in layers.values()] == windows
    assert [layer.params.window for layer in layers.values()] == windows


def test_the_native_definition_goes_before_and_this_one_can_be_chosen(
    tiny, context, helpers, hf
) -> None:
    """A Llama is served natively by rank, and here when the operator says so."""
    from framework_torch.runner import TorchRunner

    files = tiny("llama").files
    natively = TorchRunner().load(context(files))
    choices = {"platform": "cpu", "attention_backend": "sdpa", "model": "transformers"}
    chosen = TorchRunner().load(context(files, choices=choices))
    assert any("by decoder" in note for note in natively.notes)
    assert any("by transformers" in note for note in chosen.notes)
    assert chosen.layers == natively.layers
    assert chosen.max_model_len == natively.max_model_len


@torch.inference_mode()
def test_taps_are_hidden_states_before_the_final_norm(saved, hf) -> None:
    root, reference = saved("Olmo2")
    model, ids = hf.build(root), hf.sequences()[1]
    context = hf.History(model.attention_layers("float32"), rows=[(0, len(ids))])
    result, taps = model(model.embed(ids), torch.arange(len(ids)), context, taps=(0, 1))
    right = reference.model(input_ids=ids[None], output_hidden_states=True)
    torch.testing.assert_close(taps[0], right.hidden_states[1][0], atol=1e-4, rtol=0)
    torch.testing.assert_close(reference.model.norm(taps[1]), result, atol=1e-4, rtol=0)
    torch.testing.assert_close(result, right.last_hidden_state[0], atol=1e-4, rtol=0)


def test_a_part_of_the_layers_and_a_strange_tap_are_refused(saved, hf) -> None:
    model = hf.build(saved("Olmo2")[0])
    context, hidden = hf.History({}), torch.zeros(1, 64)
    with pytest.raises(UnsupportedError, match="all of its layers"):
        model(hidden, torch.arange(1), context, layers=range(1))
    with pytest.raises(UnsupportedError, match="no such layers"):
        model(hidden, torch.arange(1), context, taps=(2,))


def test_attention_that_asks_for_something_else_than_declared_stops_the_step(saved, hf) -> None:
    model = hf.build(saved("Olmo2")[0])
    model.causal_lm.model.layers[1].self_attn.scaling *= 2
    context = hf.History(model.attention_layers("float32"), rows=[(0, 3)])
    with torch.inference_mode(), pytest.raises(IntegrityError, match="something else"):
        model(torch.zeros(3, 64), torch.arange(3), context)


def test_outside_of_a_step_our_attention_is_an_error(saved, hf) -> None:
    model = hf.build(saved("Olmo2")[0])
    with pytest.raises(IntegrityError, match="outside of a step"):
        model.causal_lm(input_ids=torch.tensor([[1, 2]]))


def test_longrope_is_served_up_to_the_length_at_which_its_frequencies_switch(tmp_path, hf) -> None:
    scaling = {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7],
        "long_factor": [2.0] * 8,
    }
    hf.make(
        tmp_path,
        "Phi3",
        original_max_position_embeddings=32,
        rope_parameters=scaling,
        partial_rotary_factor=1.0,
    )
    assert hf.build(tmp_path).max_model_len == 32


def test_length_and_scales_are_what_the_configuration_says(saved, hf) -> None:
    assert hf.build(saved("GPT2")[0]).max_model_len == 128
    layers = hf.build(saved("GPT2")[0]).attention_layers("float32")
    assert [layer.params.scale for layer in layers.values()] == [0.25, 0.125]
