"""The demo model with the fast kernels says what it says with the exact ones."""

from __future__ import annotations

import pytest

FAST = {"linear": "fp16_packed", "logits": "fp16_packed", "rms_norm": "fused_norm"}


def test_packed_weights_give_the_same_tokens(goldens):
    from framework import LLM, SamplingParams

    rows = goldens[::12][:3]
    with LLM("demo", dtype="float32", max_model_len=512, kernels=FAST) as llm:
        prompts = [row["prompt"] for row in rows]
        sampling = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
    for row, output in zip(rows, outputs, strict=True):
        answer = output.outputs[0]
        assert list(answer.token_ids) == row["tokens"][:12], row["text"]
        for token, entry, true in zip(
            answer.token_ids, answer.logprobs, row["logprobs"], strict=False
        ):
            assert entry[token].logprob == pytest.approx(true, abs=0.02)
