"""A request that is pooled ends when its prompt is computed, with a vector, among others."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.kv_cache_spec import EncoderOnlySpec
from framework.contracts.messages import EngineInput
from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import SamplingParams
from framework.errors import ConfigError, EngineDeadError, InputError
from framework.testing.harness import Harness
from framework.testing.scripts import expected_tokens, pooled

POOL = PoolingParams()
ENCODER = {"layers": {f"layer.{n}": EncoderOnlySpec() for n in range(3)}, "embedding_size": 4}


def vector(prompt, params=POOL, size=4):
    return pooled(prompt, size, params).tolist()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [3, 8, 64])
def test_pooled_and_generating_requests_run_together(depth, budget):
    one = Harness(runner={"embedding_size": 4}, loop_depth=depth, max_num_batched_tokens=budget)
    prompts = {f"p{n}": list(range(n, 2 * n + 1)) for n in (0, 3, 7, 12)}
    for name, prompt in prompts.items():
        one.add(name, prompt, pooling=POOL)
        one.add(f"g{name}", prompt, 5)
    answers = one.run()
    for name, prompt in prompts.items():
        assert answers[name].pooled == vector(prompt)
        assert (answers[name].tokens, answers[name].reason) == ([], "stop")
        assert answers[f"g{name}"].tokens == expected_tokens(prompt, 5)
        assert answers[f"g{name}"].pooled is None


@pytest.mark.parametrize("depth", [1, 2])
def test_an_encoder_computes_whole_prompts_without_pages(depth):
    one = Harness(
        runner={**ENCODER, "max_model_len": 32}, loop_depth=depth, max_num_batched_tokens=40
    )
    prompts = {f"p{n}": list(range(n)) for n in (1, 32, 31, 30, 2, 9, 17)}
    for name, prompt in prompts.items():
        one.add(name, prompt, pooling=PoolingParams(dimensions=3))
    answers = one.run()
    for name, prompt in prompts.items():
        assert answers[name].pooled == vector(prompt, PoolingParams(dimensions=3))
    for plan in one.runner.plans:
        assert not plan.computed.any(), "a prompt was cut"
        assert not plan.wants_logits.any()
        assert plan.rows_to_pool is None or plan.rows_to_pool.all()


def test_an_encoder_samples_nothing_and_wants_room_for_a_whole_prompt():
    one = Harness(runner={**ENCODER, "max_model_len": 32})
    with pytest.raises(InputError, match="samples no tokens"):
        one.add("a", [1, 2], 3)
    with pytest.raises(InputError, match="cannot fit"):
        one.add("b", range(33), pooling=POOL)
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        Harness(runner={**ENCODER, "max_model_len": 32}, max_num_batched_tokens=31)
    one.check_empty()


def test_a_runner_that_declares_no_pooling_gets_none():
    one = Harness()
    with pytest.raises(InputError, match="does not serve") as caught:
        one.add("a", [1], pooling=POOL)
    assert caught.value.parameter == "pooling"


def test_one_that_is_pooled_has_no_room_for_output():
    """Its last row would be sampled and pooled, which ends the engine."""
    one = Harness(runner={"embedding_size": 4})
    entry = EngineInput(
        request_id="a",
        tokens=np.arange(3, dtype=np.int32),
        sampling=SamplingParams(),
        seed=0,
        max_total=4,
        pooling=POOL,
    )
    with pytest.raises(InputError, match="not continued") as caught:
        one.core.add(entry)
    assert caught.value.parameter == "max_total"
    one.add("b", [0, 1, 2], pooling=POOL)
    assert one.run()["b"].pooled == vector([0, 1, 2])


def test_a_pooled_prompt_is_computed_whole_though_the_cache_has_it():
    """All hidden states are wanted, and the cache holds none of them; others may hit its pages."""
    one = Harness(runner={"embedding_size": 4})
    prompt = list(range(20))
    one.add("a", prompt, 3)
    one.run()
    one.add("b", prompt, pooling=POOL)
    assert one.run()["b"].pooled == vector(prompt)
    assert one.answers["b"].cached == 0
    one.add("c", prompt, 3)
    assert one.run()["c"].cached == 16


def test_a_preempted_prompt_is_pooled_once_and_whole():
    """The longest came last and gives way, again and again."""
    one = Harness(
        runner={"embedding_size": 4, "num_pages": 12, "page_tokens": 4}, max_num_batched_tokens=6
    )
    for n in range(3):
        one.add(f"g{n}", [n] * 6, 14)
    one.add("p", list(range(30)), pooling=POOL)
    assert one.run()["p"].pooled == vector(list(range(30)))
    assert one.core.stats.preemptions > 0


def test_a_row_with_an_error_brings_no_vector():
    one = Harness(runner={"embedding_size": 4, "fail_rows": {(1, 0): "no"}})
    one.add("a", [1, 2], pooling=POOL)
    one.add("b", [1, 2], pooling=POOL)
    answers = one.run()
    assert (answers["a"].reason, answers["a"].error, answers["a"].pooled) == ("error", "no", None)
    assert answers["b"].pooled == vector([1, 2])


@pytest.mark.parametrize(
    "made", [{}, {0: np.zeros(3)}, {0: np.zeros((1, 3), np.float32)}, {7: np.zeros(3, np.float32)}]
)
def test_vectors_that_do_not_fit_the_plan_name_the_runner(made, monkeypatch):
    one = Harness(runner={"embedding_size": 4})
    compute = one.runner._compute

    def changed(plan):
        import dataclasses

        return dataclasses.replace(compute(plan), pooled=made)

    monkeypatch.setattr(one.runner, "_compute", changed)
    one.add("a", [1, 2], pooling=POOL)
    with pytest.raises(EngineDeadError, match="does not fit the plan"):
        one.core.step()


def test_an_aborted_one_leaves_nothing():
    one = Harness(runner={"embedding_size": 4}, max_num_batched_tokens=4)
    one.add("a", list(range(10)), pooling=POOL)
    one.step()
    one.core.abort(["a"])
    assert one.run()["a"].reason == "abort"
    assert one.answers["a"].pooled is None
