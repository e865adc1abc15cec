"""SmolLM2-135M-Instruct gives transformers' tokens, in float32, greedily."""

from __future__ import annotations

import pytest

from tests.parity.prompts import MIN_GAP, OUTPUT_TOKENS

SAMPLE = slice(0, None, 9)
PROMPT = 34


def ask(llm, rows, **more):
    from framework import SamplingParams

    count = len(rows[0]["tokens"])
    sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, logprobs=0, **more)
    return llm.generate([row["prompt"] for row in rows], sampling, use_tqdm=False)


def check(rows, outputs):
    for row, output in zip(rows, outputs, strict=True):
        answer = output.outputs[0]
        assert list(answer.token_ids) == row["tokens"], row["text"]
        for token, entry, true in zip(row["tokens"], answer.logprobs, row["logprobs"], strict=True):
            assert entry[token].logprob == pytest.approx(true, abs=1e-4)


def test_goldens_are_enough_and_clear(goldens):
    assert len(goldens) >= 32
    assert all(len(row["tokens"]) == OUTPUT_TOKENS for row in goldens)
    assert all(row["gap"] >= MIN_GAP for row in goldens)


def test_prompts_are_tokenized_as_when_the_references_were_made(demo, goldens):
    tokenizer = demo.get_tokenizer()
    for row in goldens:
        assert tokenizer.encode(row["text"]) == row["prompt"], row["text"]


def shortened(row, count):
    return {**row, "tokens": row["tokens"][:count], "logprobs": row["logprobs"][:count]}


def test_a_sample_equals_transformers_in_a_mixed_batch(demo, goldens):
    rows = [shortened(row, 24) for row in goldens[SAMPLE]]
    check(rows, ask(demo, rows))


def test_one_alone_equals_transformers(demo, goldens):
    row = shortened(goldens[0], 12)
    check([row], ask(demo, [row]))


@pytest.mark.long
def test_all_equal_transformers_batched_and_alone(demo, goldens):
    check(goldens, ask(demo, goldens))
    for row in goldens:
        check([row], ask(demo, [row]))


@pytest.mark.long
def test_the_goldens_are_what_transformers_says_now(goldens):
    from tests.parity.make_goldens import smollm2

    again = smollm2()
    assert [row["tokens"] for row in again["rows"]] == [row["tokens"] for row in goldens]


@pytest.mark.long
def test_sixty_four_requests_with_a_cache_for_twelve_equal_their_references(goldens):
    """Mixed lengths; after that the pool is as it was at the start.  tests/api has the like on
    a tiny model, each request compared with itself alone."""
    from framework import LLM, SamplingParams

    lengths = [2 + (7 * k) % 13 for k in range(64)]
    rows = [row for row in goldens if len(row["prompt"]) <= PROMPT]
    rows = [rows[k % len(rows)] for k in range(64)]
    sampling = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths]
    # 37 pages: the null page and three of 16 tokens for each of twelve.
    with LLM("demo", dtype="float32", max_model_len=48, num_pages=37) as llm:
        outputs = llm.generate([row["prompt"] for row in rows], sampling, use_tqdm=False)
        assert llm.stats.preemptions > 0
        assert llm.stats.pages_used == 0
        llm.check_integrity()
    for row, output, length in zip(rows, outputs, lengths, strict=True):
        assert list(output.outputs[0].token_ids) == row["tokens"][:length]
