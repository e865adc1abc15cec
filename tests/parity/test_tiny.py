"""Every architecture gives transformers' tokens: alone and in a mixed batch, chunked and
whole, with a cold and a warm prefix cache, and with a preemption forced in between; those
with a window far beyond it."""

from __future__ import annotations

import pytest

from tests.parity.prompts import MIN_GAP
from tests.parity.reference import greedy, token_logprobs
from tests.parity.tiny import NATIVE, THROUGH_TRANSFORMERS, WINDOW, WINDOWED

# What another one shows too: these without their windows, OLMo3 beside Phi-3.
SELDOM_TELLING = ("qwen2", "mistral", "olmo3")


def marked(names, long=SELDOM_TELLING):
    return [pytest.param(n, marks=pytest.mark.long) if n in long else n for n in names]


ARCHITECTURES = marked((*NATIVE, *THROUGH_TRANSFORMERS))
WHOLE = {"max_num_batched_tokens": 2048}
CHUNKED = {"max_num_batched_tokens": 9}
PAGE = 16
LONG = 112
# A window and a step of 9 tokens fill two pages and reach into a third.
WINDOW_PAGES = -(-(WINDOW - 1 + 9) // PAGE) + 1
# Groups of layers with a window beside one without.
EXTRA_GROUPS = {"qwen2_window": 1, "gemma2": 1, "olmo3": 1, "gemma3": 2}
SMALL = marked((*WINDOWED, "phi3", "olmo3"), long=())


def answers(llm, references, **more):
    from framework import SamplingParams

    count = len(references[0].tokens)
    sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, **more)
    prompts = [{"prompt_token_ids": reference.prompt} for reference in references]
    return llm.generate(prompts, sampling, use_tqdm=False)


def ask(llm, references):
    return [list(output.outputs[0].token_ids) for output in answers(llm, references)]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tokens_equal_alone(engine, tiny, name):
    references = tiny(name).references
    llm = engine(name)
    for reference in (references[0], references[-1]):
        assert ask(llm, [reference]) == [reference.tokens]


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(
    ("budget", "loop_depth"),
    [
        pytest.param(WHOLE, 1, id="whole-1"),
        pytest.param(CHUNKED, 2, id="chunked-2"),
        pytest.param(WHOLE, 2, id="whole-2", marks=pytest.mark.long),
        pytest.param(CHUNKED, 1, id="chunked-1", marks=pytest.mark.long),
    ],
)
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
    pages = 9 + WINDOW_PAGES * EXTRA_GROUPS.get(name, 0)
    llm = engine(name, num_pages=pages, max_model_len=90, **CHUNKED)
    assert ask(llm, references) == [reference.tokens for reference in references]
    assert llm.stats.preemptions > 0
    assert llm.stats.pages_used == 0
    llm.check_integrity()


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("budget", [pytest.param(WHOLE, marks=pytest.mark.long), CHUNKED])
def test_log_probabilities_equal_a_direct_computation(engine, tiny, name, budget):
    """Of prompt and output, in a batch that is chunked and preempted too, to 1e-4."""
    model = tiny(name)
    references = model.references
    llm = engine(name, num_pages=30, max_model_len=90, **budget)
    outputs = answers(llm, references, logprobs=2, prompt_logprobs=0)
    for reference, output in zip(references, outputs, strict=True):
        true = token_logprobs(model.model, reference.prompt + reference.tokens)
        ids = reference.prompt[1:] + reference.tokens
        found = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
        for token, entry, value in zip(ids, found, true, strict=True):
            assert entry[token].logprob == pytest.approx(value, abs=1e-4)
        for entry in output.outputs[0].logprobs:
            assert sorted(e.rank for e in entry.values()) == [1, 2]


@pytest.mark.parametrize("name", SMALL)
def test_a_long_request_runs_in_the_pages_of_its_windows(engine, tiny, name):
    """In a pool that has no page to spare: all pages of the request for the layers that see all,
    if there are any, and three for each group of the others."""
    model = tiny(name)
    reference = greedy(model.model, model.references[-1].prompt, LONG - 60)
    groups = EXTRA_GROUPS.get(name)
    pages = WINDOW_PAGES if groups is None else -(-LONG // PAGE) + groups * WINDOW_PAGES
    llm = engine(name, num_pages=1 + pages, max_model_len=LONG, **CHUNKED)
    (answer,) = answers(llm, [reference])
    certain = next((i for i, gap in enumerate(reference.gaps) if gap < MIN_GAP), LONG)
    assert certain > 3 * WINDOW
    assert list(answer.outputs[0].token_ids)[:certain] == reference.tokens[:certain]
    assert llm.stats.preemptions == 0
    assert llm.stats.pages_used == 0
    llm.check_integrity()


@pytest.mark.parametrize("name", SMALL)
def test_a_prefix_is_hit_where_only_its_last_window_is_left(engine, tiny, name):
    """The prompt of 60 tokens has three full pages, of which layers with a window need one."""
    reference = tiny(name).references[-1]
    llm = engine(name, **CHUNKED)
    for hits in (0, 48):
        before = llm.stats.prefix_hits
        assert ask(llm, [reference]) == [reference.tokens]
        assert llm.stats.prefix_hits - before == hits
