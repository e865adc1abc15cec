"""What is lost by keeping weights in fewer bits, on SmolLM2."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from framework import LLM, SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, logprobs=1)
SCORED = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
EXACT = {"dtype": "float32", "kernels": {"linear": "plain", "logits": "plain"}}
WINDOW, TOKENS = 500, 20_000


def text_ids(llm: LLM) -> list[int]:
    """Of the project's own pages and sources: prose, tables and code."""
    root = Path(__file__).parents[2]
    paths = [*sorted((root / "docs").rglob("*.md")), *sorted((root / "framework").rglob("*.py"))]
    ids: list[int] = []
    for path in paths:
        ids += llm.get_tokenizer().encode(path.read_text())
        if len(ids) >= TOKENS:
            return ids[:TOKENS]
    raise AssertionError("too little text")


def perplexity(llm: LLM, ids: list[int]) -> float:
    windows = [ids[at : at + WINDOW] for at in range(0, len(ids), WINDOW)]
    outputs = llm.generate([{"prompt_token_ids": window} for window in windows], SCORED)
    told = [
        scores[token].logprob
        for window, output in zip(windows, outputs, strict=True)
        for token, scores in zip(window, output.prompt_logprobs, strict=True)
        if scores is not None
    ]
    assert len(told) == len(ids) - len(windows)
    return math.exp(-sum(told) / len(told))


def random_prompts(llm: LLM, count: int) -> list[dict[str, list[int]]]:
    ids, rng = text_ids(llm), random.Random(0)
    starts = [rng.randrange(len(ids) - 40) for _ in range(count)]
    return [{"prompt_token_ids": ids[at : at + rng.randrange(8, 40)]} for at in starts]


def test_int8_answers_and_no_request_changes_another():
    with LLM("demo", quantization="int8", max_model_len=128) as llm:
        prompts = random_prompts(llm, 4)
        together = llm.generate(prompts, GREEDY)
        alone = [llm.generate([prompt], GREEDY)[0] for prompt in prompts[:2]]
        for one, other in zip(alone, together, strict=False):
            assert one.outputs[0].token_ids == other.outputs[0].token_ids
            assert one.outputs[0].logprobs == other.outputs[0].logprobs
        [answer] = llm.chat(
            [{"role": "user", "content": "What is the capital of France? One word."}],
            SamplingParams(temperature=0, max_tokens=12),
        )
        assert "Paris" in answer.outputs[0].text


@pytest.mark.long
def test_what_is_lost_in_perplexity(record_property):
    found = {}
    for name, options in (("exact", EXACT), ("default", {}), ("int8", {"quantization": "int8"})):
        with LLM("demo", max_model_len=512, enable_prefix_caching=False, **options) as llm:
            found[name] = perplexity(llm, text_ids(llm))
    record_property("perplexity", found)
    print(found)
    assert abs(found["default"] / found["exact"] - 1) < 0.0005
    assert abs(found["int8"] / found["exact"] - 1) < 0.01


@pytest.mark.long
def test_greedy_answers_differ_only_where_two_tokens_are_nearly_level():
    answers = {}
    for name, options in (("exact", EXACT), ("default", {})):
        with LLM("demo", max_model_len=512, **options) as llm:
            prompts = random_prompts(llm, 200)
            answers[name] = [
                o.outputs[0] for o in llm.generate(prompts, GREEDY.replace(logprobs=2))
            ]
    same, gaps = 0, []
    for exact, default in zip(answers["exact"], answers["default"], strict=True):
        pairs = zip(exact.token_ids, default.token_ids, strict=True)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if at is None:
            same += 1
            continue
        best, second = sorted((s.logprob for s in exact.logprobs[at].values()), reverse=True)[:2]
        gaps.append(best - second)
    print(same, gaps)
    assert same >= 190
    assert all(gap < 0.05 for gap in gaps)
