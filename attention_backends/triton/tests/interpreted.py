"""Run by test_in_the_interpreter.py, in a process with TRITON_INTERPRET=1: Triton reads the
variable while it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from framework import LLM, SamplingParams
from framework.testing.conformance import Status, check
from framework.testing.conformance.suites.attention_backend import AttentionBackendSuite
from tests.parity.tiny import make_tiny

TOKENS = 5


class QuickSuite(AttentionBackendSuite):
    """One random case of each, and fewer sizes of heads: an operation on a tile takes 0.1 ms."""

    effort = 0.01

    def head_sizes(self) -> list[int]:
        return [size for size in super().head_sizes() if size in (16, 40, 128)]


def test_it_conforms() -> None:
    report = check("attention_backend:triton", suite=QuickSuite)
    assert report.conformant
    assert not report.failures, report.text()
    passed = {o.clause.id for o in report.outcomes if o.status is Status.PASSED}
    assert {f"ATTN-{number}" for number in range(101, 116)} <= passed


@pytest.mark.long
def test_it_conforms_with_all_cases() -> None:
    report = check("attention_backend:triton")
    assert report.conformant
    assert not report.failures, report.text()


@pytest.mark.parametrize(
    ("name", "budget"),
    # Heads that share K and V; and windows, soft caps and two groups of layers.
    [("llama", 20), ("gemma2", 2048)],
)
def test_a_model_answers_as_transformers_and_as_through_sdpa(
    name: str, budget: int, tmp_path: Path
) -> None:
    """A batch of prompts, whole and in pieces."""
    made = make_tiny(name, tmp_path)
    references = [one for one in made.references if 3 <= len(one.prompt) <= 33][-3:]
    assert len(references) == 3
    prompts = [{"prompt_token_ids": one.prompt} for one in references]
    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=0)
    found = {}
    for backend in ("triton", "sdpa"):
        with LLM(
            made.folder,
            dtype="float32",
            attention_backend=backend,
            max_num_batched_tokens=budget,
        ) as llm:
            outputs = llm.generate(prompts, sampling, use_tqdm=False)
        found[backend] = [output.outputs[0] for output in outputs]
    tokens = [list(output.token_ids) for output in found["triton"]]
    assert tokens == [one.tokens[:TOKENS] for one in references]
    for ours, theirs in zip(found["triton"], found["sdpa"], strict=True):
        assert list(ours.token_ids) == list(theirs.token_ids)
        logprobs = [
            [entry[token].logprob for token, entry in zip(o.token_ids, o.logprobs, strict=True)]
            for o in (ours, theirs)
        ]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
