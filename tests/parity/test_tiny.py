"""Every architecture gives transformers' tokens: alone and in a mixed batch, chunked and
whole, with a cold and a warm prefix cache, and with a preemption forced in between."""

from __future__ import annotations

import pytest

from tests.parity.reference import token_logprobs
from tests.parity.tiny import NATIVE, OUTPUT_TOKENS, THROUGH_TRANSFORMERS

ARCHITECTURES = (*NATIVE, *THROUGH_TRANSFORMERS)
WHOLE = {"max_num_batched_tokens": 2048}
CHUNKED = {"max_num_batched_tokens": 9}


@pytest.fixture
def engine(tiny):
    """Makes an LLM over the tiny model of an architecture; all are closed at the end."""
    from framework import LLM

    opened = []

    def make(name, **options):
        llm = LLM(tiny(name).folder, dtype="float32", **options)
        opened.append(llm)
        return llm

    yield make
    for llm in opened:
        llm.close()


def params(**more):
    from framework import SamplingParams

    return SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True, **more)


def ask(llm, references, sampling=None):
    prompts = [{"prompt_token_ids": reference.prompt} for reference in references]
    outputs = llm.generate(prompts, sampling or params(), use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_equal_alone(engine, tiny, name):
    references = tiny(name).references[-3:]
    llm = engine(name)
    for reference in references:
        assert ask(llm, [reference]) == [reference.tokens]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("budget", [WHOLE, CHUNKED], ids=["whole", "chunked"])
@pytest.mark.parametrize("loop_depth", [1, 2])
def test_tokens_equal_in_a_mixed_batch_cold_and_hit(engine, tiny, name, budget, loop_depth):
    references = tiny(name).references
    llm = engine(name, loop_depth=loop_depth, **budget)
    expected = [reference.tokens for reference in references]
    assert ask(llm, references) == expected
    assert ask(llm, references) == expected
    assert llm.stats.prefix_hits > 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_equal_with_preemptions(engine, tiny, name):
    references = tiny(name).references
    llm = engine(name, num_pages=12, max_model_len=96)
    assert ask(llm, references) == [reference.tokens for reference in references]
    assert llm.stats.preemptions > 0
    assert llm.stats.pages_used == 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_log_probabilities_equal_a_direct_computation(engine, tiny, name):
    """Of prompt and output, alone and in a batch, chunked and whole, to 1e-4."""
    model = tiny(name)
    references = model.references
    for options in (WHOLE, CHUNKED | {"num_pages": 20, "max_model_len": 96}):
        llm = engine(name, **options)
        prompts = [{"prompt_token_ids": reference.prompt} for reference in references]
        outputs = llm.generate(prompts, params(logprobs=2, prompt_logprobs=0), use_tqdm=False)
        for reference, output in zip(references, outputs, strict=True):
            true = token_logprobs(model.model, reference.prompt + reference.tokens)
            ids = reference.prompt[1:] + reference.tokens
            found = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
            for token, entry, value in zip(ids, found, true, strict=True):
                assert entry[token].logprob == pytest.approx(value, abs=1e-4)
            for entry in output.outputs[0].logprobs:
                assert sorted(e.rank for e in entry.values()) == [1, 2]
