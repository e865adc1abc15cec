"""Grammars beside what else changes steps: speculation, preemption, two steps in flight, and the
parameters of sampling.  None of them changes a token."""

from __future__ import annotations

import re

import pytest

from framework import SamplingParams

ITEM = "(red|green|blue)"
LIST = f"{ITEM}(, {ITEM}){{3,5}}[.]"
ASKED = [
    {"regex": LIST},
    {"json": {"type": "array", "items": {"enum": ["left", "right"]}, "minItems": 4, "maxItems": 9}},
    None,
]
PROMPT = "red, green, red, green, red, green, red, green, "


def outputs(llm, **more):
    params = [
        SamplingParams(max_tokens=40, seed=seed, structured_outputs=asked, **more)
        for seed, asked in enumerate(ASKED)
    ]
    found = [output.outputs[0] for output in llm.generate([PROMPT] * len(params), params)]
    return [(one.text, one.finish_reason, one.token_ids) for one in found]


@pytest.fixture(scope="module")
def plain(random_model):
    return random_model()


@pytest.mark.parametrize(
    "options",
    [
        {"speculative_proposer": "ngram", "num_speculative_tokens": 4},
        pytest.param({"loop_depth": 2}, marks=pytest.mark.long),
        pytest.param({"max_num_seqs": 6, "max_num_batched_tokens": 8}, marks=pytest.mark.long),
    ],
    ids=lambda options: next(iter(options)),
)
def test_the_same_tokens_come(random_model, plain, options):
    wanted = outputs(plain, temperature=1.0)
    assert outputs(random_model(**options), temperature=1.0) == wanted
    for text, reason, _ in wanted[:1]:
        assert reason == "stop"
        assert re.fullmatch(LIST, text)


def test_requests_that_were_preempted_go_on_in_their_grammar(random_model, plain):
    asked = {"regex": "([ab]{40}|[cd]{40})"}
    params = [
        SamplingParams(max_tokens=60, seed=seed, structured_outputs=asked) for seed in range(6)
    ]
    wanted = [output.outputs[0].token_ids for output in plain.generate([PROMPT] * 6, params)]
    tight = random_model(max_model_len=96, num_pages=12)
    found = tight.generate([PROMPT] * 6, params)
    assert [output.outputs[0].token_ids for output in found] == wanted


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"loop_depth": 2}, marks=pytest.mark.long)],
    ids=["plain", "two in flight"],
)
def test_a_grammar_applies_behind_reasoning_that_is_made_to_end(random_model, options):
    """The model writes the mark in several tokens; speculation changes nothing."""
    drafts = {"speculative_proposer": "ngram", "num_speculative_tokens": 4}
    thinks = random_model(reasoning_parser="deepseek_r1", **drafts, **options)
    asked = {"temperature": 1.0, "max_tokens": 12, "seed": 1}
    [free] = thinks.generate([PROMPT], SamplingParams(**asked))
    params = [
        SamplingParams(**asked, thinking_token_budget=budget, structured_outputs=structure)
        for budget in (0, 3)
        for structure in (None, {"choice": ["yes", "no"]})
    ]
    found = [one.outputs[0] for one in thinks.generate([PROMPT] * 4, params)]
    for one, budget in zip(found, (0, 0, 3, 3), strict=True):
        assert one.token_ids[:budget] == free.outputs[0].token_ids[:budget]
        mark = len(thinks.get_tokenizer().encode("</think>", add_special_tokens=False))
        ids = one.token_ids[budget : budget + mark]
        assert thinks.get_tokenizer().decode(ids) == "</think>"
    for one in found[1::2]:
        assert one.text.rpartition("</think>")[2] in ("yes", "no")
        assert one.finish_reason == "stop"


def test_other_parameters_hold_as_well(plain):
    sampling = SamplingParams(
        max_tokens=60,
        seed=3,
        n=2,
        structured_outputs={"regex": LIST},
        logit_bias=dict.fromkeys(range(100, 4000), -50.0),
        presence_penalty=1.5,
        min_p=0.01,
        logprobs=2,
    )
    [output] = plain.generate([PROMPT], sampling)
    for one in output.outputs:
        assert re.fullmatch(LIST, one.text)
        assert one.logprobs is not None
        assert len(one.logprobs) == len(one.token_ids)


def test_the_end_may_be_left_out_of_account(plain):
    """With ignore_eos an output that has ended is ended again and again."""
    sampling = SamplingParams(
        max_tokens=12, ignore_eos=True, structured_outputs={"choice": ["yes", "no"]}
    )
    [output] = plain.generate([PROMPT], sampling)
    assert output.outputs[0].text in ("yes", "no")
    assert output.outputs[0].finish_reason == "length"
    assert set(output.outputs[0].token_ids[-8:]) == {2}
