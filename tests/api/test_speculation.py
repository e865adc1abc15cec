"""Speculation through the whole engine: not a token differs, whatever is proposed."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from framework import LLM, SamplingParams
from framework.contracts.proposer import SpeculativeProposer
from framework.errors import PluginError, UnsupportedError
from framework.testing.fake_model import MODEL, fake_plugins
from framework_torch.drafting.lengths import DraftLengths, StepCost
from tests.parity.tiny import make_tiny

LENGTH = 40
WAYS = {
    "greedy": SamplingParams(temperature=0, max_tokens=LENGTH, ignore_eos=True),
    "seeded": SamplingParams(temperature=1, seed=11, max_tokens=LENGTH, ignore_eos=True),
    "penalties": SamplingParams(
        temperature=0.9,
        seed=5,
        max_tokens=LENGTH,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=0.4,
        min_tokens=6,
    ),
    "filters": SamplingParams(
        temperature=1.2,
        seed=6,
        max_tokens=LENGTH,
        min_p=0.02,
        top_p=0.95,
        top_k=50,
        logit_bias={7: 3.0, 9: -100.0},
        bad_words=["a"],
        logprobs=3,
        prompt_logprobs=2,
    ),
    "several": SamplingParams(temperature=1, seed=2, n=3, max_tokens=LENGTH),
    "allowed": SamplingParams(
        temperature=1, seed=8, max_tokens=LENGTH, allowed_token_ids=list(range(40))
    ),
}


@pytest.fixture(autouse=True)
def steady_costs(monkeypatch):
    """How many drafts there are does not depend on how long a step takes here."""
    monkeypatch.setattr(StepCost, "share", lambda self: 0.1)


class Knows(SpeculativeProposer):
    """Proposes what really comes, for outputs that the test has seen before."""

    outputs: ClassVar[list[tuple[int, ...]]] = []

    def propose(self, step):
        return [self.guess(step.known(row).tolist(), step.wanted[row]) for row in range(len(step))]

    def guess(self, known, wanted):
        return next(
            (
                whole[len(known) : len(known) + wanted]
                for whole in self.outputs
                if list(whole[: len(known)]) == known
            ),
            [],
        )


class Misleads(Knows):
    """The last of its drafts is wrong, and so is every draft of every third request."""

    def guess(self, known, wanted):
        found = list(super().guess(known, wanted))
        if len(known) % 3 == 0:
            return [(token + 1) % 260 for token in found]
        return [*found[:-1], *[(token + 7) % 260 for token in found[-1:]]]


def told(outputs):
    """All that a client sees of the answers but their scores."""
    return [
        [(o.token_ids, o.text, o.finish_reason, o.stop_reason) for o in output.outputs]
        for output in outputs
    ]


def scores(outputs):
    """All log-probabilities, of prompts, too."""
    lists = [
        some
        for output in outputs
        for some in (output.prompt_logprobs, *(one.logprobs for one in output.outputs))
    ]
    return [
        (token, entry.rank, pytest.approx(entry.logprob, abs=1e-4))
        for some in lists
        for place in some or ()
        for token, entry in (place or {}).items()
    ]


def flat(outputs):
    return [(token, rank, value.expected) for token, rank, value in scores(outputs)]


@pytest.fixture(scope="module")
def prompts(model):
    return [reference.prompt for reference in model.references[:5]]


@pytest.fixture(scope="module")
def plain(llm, prompts):
    """Without speculation, by way."""
    return {way: llm.generate(prompts, ask, use_tqdm=False) for way, ask in WAYS.items()}


def opened(model, proposer, **more):
    return LLM(
        model.folder,
        dtype="float32",
        plugins={"speculative_proposer:own": f"{__name__}:{proposer.__name__}"},
        speculative_config={"method": "own", "num_speculative_tokens": 4},
        **more,
    )


@pytest.mark.parametrize("proposer", [Knows, Misleads])
def test_answers_are_those_without_speculation(model, prompts, plain, proposer, monkeypatch):
    # As many drafts as may be, however few are right.
    monkeypatch.setattr(
        DraftLengths, "wanted", lambda self, slots, rows: np.full(len(slots), 4, np.int32)
    )
    proposer.outputs = [
        (*output.prompt_token_ids, *one.token_ids)
        for outputs in plain.values()
        for output in outputs
        for one in output.outputs
    ]
    with opened(model, proposer) as fast:
        for way, ask in WAYS.items():
            found = fast.generate(prompts, ask, use_tqdm=False)
            assert told(found) == told(plain[way]), way
            assert flat(found) == scores(plain[way]), way
        stats = fast.stats
    assert stats.drafted > 50
    share = sum(stats.accepted) / stats.drafts
    assert share > 0.9 if proposer is Knows else 0.05 < share < 0.9


@pytest.mark.parametrize("draft", ["llama", "qwen3", "mistral_window"])
def test_a_draft_model_changes_no_token_through_the_cache_and_preemptions(
    model, prompts, plain, tmp_path, draft
):
    """One of the same layers shares their pages' group; others have groups of their own."""
    folder = model.folder if draft == "llama" else make_tiny(draft, tmp_path / "draft").folder
    said = {"method": "draft_model", "model": str(folder), "num_speculative_tokens": 3}
    with LLM(model.folder, dtype="float32", speculative_config=said) as fast:
        for way in ("greedy", "filters"):
            for _ in range(2):  # the second time from the cache
                found = fast.generate(prompts, WAYS[way], use_tqdm=False)
                assert told(found) == told(plain[way]), way
        stats = fast.stats
    if draft == "llama":  # others have larger pages than these prompts
        assert stats.prefix_hits > 0
        assert sum(stats.accepted) > 0.9 * stats.drafts > 100
    small = {"num_pages": 40, "max_model_len": 112, "max_num_batched_tokens": 12, "max_num_seqs": 3}
    with LLM(model.folder, dtype="float32", speculative_config=said, **small) as fast:
        found = fast.generate(prompts, WAYS["penalties"], use_tqdm=False)
        assert told(found) == told(plain["penalties"])


@pytest.mark.parametrize("depth", [1, 2])
def test_nor_do_preemptions_and_small_budgets_change_a_token(model, prompts, plain, depth):
    Misleads.outputs = [
        (*output.prompt_token_ids, *output.outputs[0].token_ids)
        for way in ("greedy", "penalties")
        for output in plain[way]
    ]
    small = {"num_pages": 14, "max_model_len": 112, "max_num_batched_tokens": 12}
    with opened(model, Misleads, loop_depth=depth, **small) as fast:
        for way in ("greedy", "penalties"):
            found = fast.generate(prompts, WAYS[way], use_tqdm=False)
            assert told(found) == told(plain[way]), way
        assert fast.stats.preemptions > 0
        assert sum(fast.stats.accepted) > 0


def test_prompts_that_are_in_the_cache_change_nothing(model, llm):
    prompt = list(range(1, 50)) * 2
    ask = WAYS["seeded"]
    right = told(llm.generate([prompt], ask, use_tqdm=False))
    with LLM(model.folder, dtype="float32", speculative_config={"method": "ngram"}) as fast:
        for _ in range(2):
            assert told(fast.generate([prompt], ask, use_tqdm=False)) == right
        assert fast.stats.prefix_hits > 0


def test_a_stop_string_within_drafts_ends_as_without(model, llm, prompts):
    text = llm.generate(prompts[:1], WAYS["greedy"], use_tqdm=False)[0]
    whole = text.outputs[0].text
    ask = WAYS["greedy"].replace(stop=[whole[9:12], whole[14:16]])
    right = told(llm.generate(prompts[:1], ask, use_tqdm=False))
    Knows.outputs = [(*text.prompt_token_ids, *text.outputs[0].token_ids)]
    with opened(model, Knows) as fast:
        assert told(fast.generate(prompts[:1], ask, use_tqdm=False)) == right


def test_an_unknown_proposer_or_option_is_named(model):
    with pytest.raises(PluginError, match="did you mean 'ngram'"):
        LLM(model.folder, speculative_config={"method": "n-gram"})
    with pytest.raises(PluginError, match="prompt_lookup_max"):
        LLM(model.folder, speculative_config={"method": "ngram", "prompt_lookup_mx": 4})


def test_a_runner_that_asks_no_proposer_is_not_used_with_one():
    with pytest.raises(UnsupportedError, match="'ngram' would propose nothing"):
        LLM(MODEL, plugins=fake_plugins(), executor="echo", speculative_proposer="ngram")
