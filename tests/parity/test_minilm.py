"""all-MiniLM-L6-v2 gives the vectors of its reference: Transformers' forward, mean, length 1."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from framework import LLM, PoolingParams, SamplingParams
from framework.errors import ConfigError, InputError, TooLongError, UnsupportedError
from tests.parity.reference import minilm_folder

MODEL = minilm_folder()
WORDS = "The quick brown fox jumps over the lazy dog and runs far away from it. "
TEXTS = ["x", "Hello world", WORDS, WORDS * 15, "Z\u00fcrich \u4e2d\u6587 \U0001f600", "a b c"]


@pytest.fixture(scope="module")
def llm():
    with LLM(MODEL, dtype="float32") as made:
        yield made


@pytest.fixture(scope="module")
def reference():
    """text -> (ids, mean of the last hidden states)."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = transformers.AutoModel.from_pretrained(MODEL, attn_implementation="eager").float()

    @torch.no_grad()
    def encode(text):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        return ids[0].tolist(), model.eval()(ids).last_hidden_state[0].mean(0).numpy()

    return encode


def test_vectors_are_those_of_the_reference_alone_and_together(llm, reference):
    together = llm.embed(TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        ids, mean = reference(text)
        assert found.prompt_token_ids == ids
        right = mean / np.linalg.norm(mean)
        [alone] = llm.embed(text)
        for one in (found, alone):
            assert one.embedding.shape == (384,)
            np.testing.assert_allclose(one.embedding, right, atol=1e-4, rtol=0)
    llm.check_integrity()


def test_likeness_is_that_of_meaning(llm):
    cat, kitten, tax = (
        one.embedding
        for one in llm.embed(["A cat sleeps.", "A kitten is napping.", "Taxes are due in May."])
    )
    assert cat @ kitten > 0.6 > 0.2 > cat @ tax


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_request_may_choose_pooling_length_and_size(llm, reference, pooling):
    _, mean = reference(WORDS)
    params = PoolingParams(pooling=pooling, normalize=False, dimensions=64)
    [found] = llm.embed(WORDS, params)
    assert found.embedding.shape == (64,)
    equal = np.allclose(found.embedding, mean[:64], atol=1e-4)
    assert equal == (pooling == "mean")
    [scaled] = llm.embed(WORDS, PoolingParams(pooling=pooling, dimensions=64))
    length = np.linalg.norm(found.embedding)
    np.testing.assert_allclose(scaled.embedding, found.embedding / length, atol=1e-6)


def test_a_prompt_is_as_long_as_the_model_was_trained_for_or_cut(llm):
    assert llm.max_model_len == 256
    with pytest.raises(TooLongError):
        llm.embed(WORDS * 20)
    [cut] = llm.embed(WORDS * 20, PoolingParams(truncate_prompt_tokens=-1))
    assert len(cut.prompt_token_ids) == 256
    assert (cut.prompt_token_ids[0], cut.prompt_token_ids[-1]) == (101, 102)


@pytest.mark.parametrize("prompt", ["", [], [[]], [30522], [-1], None])
def test_bad_input_is_one_clear_error(llm, prompt):
    with pytest.raises(InputError):
        llm.embed(prompt)


def test_it_does_not_generate(llm):
    for ask in (
        lambda: llm.generate("a"),
        lambda: llm.chat([{"role": "user", "content": "a"}]),
    ):
        with pytest.raises(UnsupportedError, match="it does not generate text"):
            ask()


def test_a_step_must_hold_a_whole_prompt():
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        LLM(MODEL, load_format="dummy", max_num_batched_tokens=255)


def test_a_decoder_makes_vectors_where_that_is_asked(tiny):
    """Whole or in parts, beside requests that generate: those of Transformers' hidden states."""
    model = tiny("llama")
    prompts = [reference.prompt for reference in model.references]
    greedy = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    for budget in (2048, 16):
        with LLM(
            str(model.folder), pooling="last", max_num_batched_tokens=budget, dtype="float32"
        ) as llm:
            found = {
                pooling: llm.embed(prompts, PoolingParams(pooling=pooling, normalize=False))
                for pooling in ("last", "mean", "cls")
            }
            [scaled] = llm.embed([prompts[-1]])
            outputs = llm.generate(prompts, greedy, use_tqdm=False)
            llm.check_integrity()
        for place, reference in enumerate(model.references):
            ids = torch.tensor([reference.prompt])
            with torch.no_grad():
                hidden = model.model.model(input_ids=ids).last_hidden_state[0]
            right = {"last": hidden[-1], "mean": hidden.mean(0), "cls": hidden[0]}
            for pooling, vector in right.items():
                one = found[pooling][place].embedding
                np.testing.assert_allclose(one, vector.numpy(), atol=1e-4, rtol=0)
            assert outputs[place].outputs[0].token_ids == list(reference.tokens[:5])
        assert np.linalg.norm(scaled.embedding) == pytest.approx(1, abs=1e-5)
