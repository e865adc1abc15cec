"""Prompts given as embeddings: transformers' tokens for its `inputs_embeds`, whatever is beside
them, however they are cut, from a warm prefix cache and after a preemption."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from framework import SamplingParams
from framework.errors import InputError
from tests.parity.prompts import MIN_GAP
from tests.parity.test_tiny import CHUNKED, WHOLE, marked
from tests.parity.tiny import NATIVE, THROUGH_TRANSFORMERS

ALL = (*NATIVE, *THROUGH_TRANSFORMERS)
QUICK = ("llama", "gemma3", "phi3")
OUTPUT = 12


def vectors(model, ids):
    """What the model makes of ids, and a little beside it, so that no ids would give it."""
    with torch.inference_mode():
        own = model.get_input_embeddings()(torch.tensor(ids))
    noise = np.random.default_rng(len(ids)).normal(size=own.shape)
    return (own.numpy() + 0.05 * float(own.std()) * noise).astype(np.float32)


def reference(model, embeds):
    """Tokens, as far as each is best by a margin."""
    with torch.inference_mode():
        out = model.generate(
            inputs_embeds=torch.from_numpy(embeds)[None],
            attention_mask=torch.ones(1, len(embeds), dtype=torch.long),
            max_new_tokens=OUTPUT,
            min_new_tokens=OUTPUT,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    gaps = [float(np.subtract(*torch.topk(at[0], 2).values.tolist())) for at in out.logits]
    certain = next((place for place, gap in enumerate(gaps) if gap < MIN_GAP), OUTPUT)
    return out.sequences[0].tolist()[:certain]


@pytest.mark.parametrize("name", marked(ALL, [name for name in ALL if name not in QUICK]))
@pytest.mark.parametrize("budget", [pytest.param(WHOLE, marks=pytest.mark.long), CHUNKED])
def test_embeddings_give_the_tokens_of_inputs_embeds(engine, tiny, name, budget):
    model = tiny(name)
    embeds = [vectors(model.model, one.prompt) for one in model.references]
    expected = [reference(model.model, one) for one in embeds]
    assert sum(map(len, expected)) > 3 * len(expected)
    sampling = SamplingParams(temperature=0, max_tokens=OUTPUT, min_tokens=OUTPUT)
    prompts = [form for one in embeds for form in ({"prompt_embeds": one}, [1, 2, 3, 4])]
    llm = engine(name, **budget, num_pages=200, max_model_len=90)
    for _ in range(2):  # the second time out of the cache
        found = [one.outputs[0].token_ids for one in llm.generate(prompts, sampling)]
        for own, right in zip(found[::2], expected, strict=True):
            assert own[: len(right)] == right
        assert len({tuple(other) for other in found[1::2]}) == 1
    assert llm.stats.prefix_hits > 0
    assert llm.stats.pages_used == 0
    llm.check_integrity()


def test_embeddings_of_ids_give_what_the_ids_give_to_the_bit(engine, tiny):
    model = tiny("llama")
    prompt = model.references[-1].prompt
    with torch.inference_mode():
        own = model.model.get_input_embeddings()(torch.tensor(prompt))
    sampling = SamplingParams(temperature=1.3, seed=5, max_tokens=20, logprobs=3, n=2)
    llm = engine("llama", **CHUNKED, num_pages=12, max_model_len=90)
    forms = [own, own.numpy(), own.double(), own.numpy().astype(np.float64)]
    ids, *others = llm.generate([prompt, *({"prompt_embeds": form} for form in forms)], sampling)
    assert llm.stats.preemptions > 0
    for other in others:
        assert other.outputs == ids.outputs
        assert other.prompt_token_ids == [0] * len(prompt)


def test_what_is_generated_is_penalized_and_a_prompt_without_ids_is_not(engine, tiny):
    """Id 0 stands in the places of the embeddings, and must not be taken for a token."""
    model = tiny("llama")
    embeds = vectors(model.model, model.references[4].prompt)
    llm = engine("llama")
    bias = {0: 100.0, 1: 99.0}
    for extra, right in (
        ({"repetition_penalty": 4.0}, [0, 1]),
        ({"bad_words": []}, [0, 0]),
        ({"presence_penalty": 2.0}, [0, 1]),
    ):
        sampling = SamplingParams(temperature=0, max_tokens=2, logit_bias=bias, **extra)
        [found] = llm.generate({"prompt_embeds": embeds}, sampling)
        assert found.outputs[0].token_ids == right, extra


def test_other_embeddings_of_the_same_length_are_another_prompt(engine, tiny):
    model = tiny("llama")
    first = vectors(model.model, model.references[-1].prompt)
    second = first[::-1].copy()
    sampling = SamplingParams(temperature=0, max_tokens=8)
    alone = engine("llama")
    [right] = alone.generate({"prompt_embeds": second}, sampling)
    llm = engine("llama")
    llm.generate({"prompt_embeds": first}, sampling)
    [found] = llm.generate({"prompt_embeds": second}, sampling)
    assert llm.stats.prefix_hits == 0
    assert found.outputs[0].token_ids == right.outputs[0].token_ids


@pytest.mark.parametrize("proposer", ["ngram", "suffix"])
def test_drafts_are_not_looked_for_where_there_are_no_ids(engine, tiny, proposer):
    model = tiny("llama")
    embeds = vectors(model.model, model.references[-1].prompt)
    sampling = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    plain = engine("llama")
    [right] = plain.generate({"prompt_embeds": embeds}, sampling)
    llm = engine("llama", speculative_proposer=proposer)
    [found, other] = llm.generate([{"prompt_embeds": embeds}, [7] * 40], sampling)
    assert found.outputs[0].token_ids == right.outputs[0].token_ids
    assert len(other.outputs[0].token_ids) == 20


def test_the_end_of_embeddings_can_be_cut_off_as_that_of_ids(engine, tiny):
    model = tiny("llama")
    embeds = vectors(model.model, model.references[-1].prompt)
    sampling = SamplingParams(temperature=0, max_tokens=8)
    llm = engine("llama")
    [right] = llm.generate({"prompt_embeds": embeds[-5:]}, sampling)
    cut = sampling.replace(truncate_prompt_tokens=5)
    [found] = llm.generate({"prompt_embeds": embeds}, cut)
    assert found.outputs[0].token_ids == right.outputs[0].token_ids


def test_what_embeddings_cannot_answer_is_refused(engine, tiny):
    llm = engine("llama")
    width = tiny("llama").model.config.hidden_size
    good = np.zeros((3, width), np.float32)
    for prompt, params, word in (
        ({"prompt_embeds": good[:, :-1]}, {}, "hidden size"),
        ({"prompt_embeds": good}, {"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"prompt_embeds": np.zeros((300, width), np.float32)}, {}, "too long"),
        ({"prompt_embeds": good, "prompt_token_ids": [1]}, {}, "both"),
    ):
        with pytest.raises(InputError, match=word):
            llm.generate(prompt, SamplingParams(max_tokens=1, **params))
    assert llm.generate({"prompt_embeds": good}, SamplingParams(max_tokens=1))[0].finished


def test_pooled_embeddings_are_those_of_the_ids(engine, tiny):
    model = tiny("llama")
    prompt = model.references[-1].prompt
    with torch.inference_mode():
        own = model.model.get_input_embeddings()(torch.tensor(prompt))
    llm = engine("llama", pooling="last")
    first, second = llm.embed([prompt, {"prompt_embeds": own}])
    np.testing.assert_array_equal(first.embedding, second.embedding)
