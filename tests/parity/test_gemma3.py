"""Gemma 3 270M, from its real GGUF file, gives transformers' tokens: 15 layers that see 512
tokens and 3 that see everything, in float32, greedily."""

from __future__ import annotations

import pytest

from tests.parity.prompts import GEMMA_OUTPUT_TOKENS, MIN_GAP

WINDOW = 512
TEMPLATE = """{{ bos_token }}{% for message in messages -%}
<start_of_turn>{{ message.role }}
{{ message.content }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""


def ask(llm, rows, count=GEMMA_OUTPUT_TOKENS):
    from framework import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, logprobs=0)
    return llm.generate([row["prompt"] for row in rows], sampling, use_tqdm=False)


def check(rows, outputs, count=GEMMA_OUTPUT_TOKENS):
    for row, output in zip(rows, outputs, strict=True):
        answer = output.outputs[0]
        assert list(answer.token_ids) == row["tokens"][:count], row["text"][:60]
        for token, entry, true in zip(
            row["tokens"][:count], answer.logprobs, row["logprobs"], strict=False
        ):
            assert entry[token].logprob == pytest.approx(true, abs=1e-3)


def test_goldens_are_enough_clear_and_longer_than_the_window(gemma_goldens):
    assert len(gemma_goldens) >= 6
    assert all(len(row["tokens"]) == GEMMA_OUTPUT_TOKENS for row in gemma_goldens)
    assert all(row["gap"] >= MIN_GAP for row in gemma_goldens)
    assert max(len(row["prompt"]) for row in gemma_goldens) > 600 > WINDOW


def test_a_sample_equals_transformers_within_and_beyond_the_window(gemma, gemma_goldens):
    """One short prompt beside one of more than 600 tokens; then all pages are given back."""
    tokenizer = gemma.get_tokenizer()
    for row in gemma_goldens:
        assert tokenizer.encode(row["text"]) == row["prompt"], row["text"]
    rows = [gemma_goldens[1], gemma_goldens[-1]]
    assert len(rows[1]["prompt"]) > 600
    check(rows, ask(gemma, rows, 6), 6)
    assert gemma.stats.pages_used == 0
    gemma.check_integrity()


def test_a_chat_template_of_gemma_is_rendered_to_the_special_tokens_of_the_file(gemma):
    """The file is of the base model and brings none of its own, which is a clear error."""
    from framework.errors import InputError

    messages = [{"role": "user", "content": "Hi"}]
    with pytest.raises(InputError, match="no chat template"):
        gemma.render_chat(messages)
    rendered = gemma.render_chat(messages, chat_template=TEMPLATE)
    start, end, line = 105, 106, 107
    ids = rendered["prompt_token_ids"]
    assert rendered["prompt"].startswith("<bos><start_of_turn>user\nHi<end_of_turn>\n")
    assert (ids[0], ids[1], ids[3], ids[5:8]) == (2, start, line, [end, line, start])
    assert gemma.get_tokenizer().decode(ids[8:]) == "model\n"


@pytest.mark.long
def test_all_equal_transformers_batched_alone_and_by_prefix_hits(gemma, gemma_goldens):
    check(gemma_goldens, ask(gemma, gemma_goldens))
    hits = gemma.stats.prefix_hits
    for row in gemma_goldens:
        check([row], ask(gemma, [row]))
    longest = max(len(row["prompt"]) for row in gemma_goldens)
    assert gemma.stats.prefix_hits - hits > longest - 32


@pytest.mark.long
def test_windowed_layers_keep_the_window_and_no_more(gemma_path, gemma_goldens):
    """753 tokens take 48 pages in the layers that see everything; each of five groups of three
    windowed layers keeps 512 tokens, a step of 64, and a page that is partly used."""
    from framework import LLM

    row = max(gemma_goldens, key=lambda row: len(row["prompt"]))
    whole = -(-(len(row["prompt"]) + GEMMA_OUTPUT_TOKENS) // 16)
    windowed = 5 * (-(-(WINDOW - 1 + 64) // 16) + 1)
    with LLM(
        gemma_path,
        dtype="float32",
        max_model_len=len(row["prompt"]) + GEMMA_OUTPUT_TOKENS,
        max_num_batched_tokens=64,
        num_pages=1 + whole + windowed,
    ) as llm:
        check([row], ask(llm, [row]))
        assert llm.stats.preemptions == 0
        assert llm.stats.pages_used == 0
        llm.check_integrity()


@pytest.mark.long
def test_the_goldens_are_what_transformers_says_now(gemma_goldens):
    from tests.parity.make_goldens import gemma3

    again = gemma3()
    assert [row["tokens"] for row in again["rows"]] == [row["tokens"] for row in gemma_goldens]
