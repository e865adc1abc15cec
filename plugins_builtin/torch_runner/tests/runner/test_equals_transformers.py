"""Every native architecture against Transformers' own modelling code."""

import numpy as np
import pytest

from framework.contracts.sampling import SamplingParams

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3")
PROMPTS = {0: 23, 1: 1, 2: 9, 3: 16, 4: 4}
SCORED = SamplingParams(temperature=0.0, max_tokens=64, logprobs=-1, prompt_logprobs=-1)


def prompt(slot: int) -> list[int]:
    return np.random.default_rng(slot).integers(0, 96, PROMPTS[slot]).tolist()


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("page_tokens", [1, 5])
def test_alone_every_log_probability_and_token_is_transformers(
    name, page_tokens, tiny, drive, helpers
) -> None:
    model = tiny(name)
    driver = drive(model.files, page_tokens=page_tokens)
    driver.admit(0, prompt(0), SCORED)
    first = driver.run((0, PROMPTS[0]))
    right = model.log_softmax(prompt(0))
    (part,) = first.prompt_logprobs
    assert part.start == 1
    for index in range(PROMPTS[0] - 1):
        np.testing.assert_allclose(helpers.whole(part.logprobs, index), right[index], atol=1e-4)
    np.testing.assert_allclose(helpers.whole(first.logprobs, 0), right[-1], atol=1e-4)
    driver.generate(0, 11)
    assert driver.requests[0].tokens[PROMPTS[0] :] == model.greedy(prompt(0), 12)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_mixed_and_chunked_every_row_equals_itself_alone(name, tiny, drive, helpers) -> None:
    model = tiny(name)
    driver = drive(model.files)
    for slot in PROMPTS:
        driver.admit(slot, prompt(slot))
    # Long prompts come in chunks of unequal size beside rows that decode already.
    driver.run((0, 7), (1, 1), (2, 5))
    driver.run((1, 1), (0, 1), (2, 4), (3, 15))
    driver.run((3, 1), (0, 15), (4, 4), (2, 1), (1, 1))
    last = None
    for _ in range(6):
        last = driver.run((4, 1), (2, 1), (0, 1), (1, 1), (3, 1))
    for row, slot in enumerate((4, 2, 0, 1, 3)):
        tokens = driver.requests[slot].tokens
        count = len(tokens) - PROMPTS[slot]
        assert tokens[PROMPTS[slot] :] == model.greedy(prompt(slot), count), slot
        right = model.log_softmax(tokens[:-1])[-1]
        np.testing.assert_allclose(helpers.whole(last.logprobs, row), right, atol=1e-4)


SCALINGS = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "yarn with all keys": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 16,
        "beta_slow": 2,
        "mscale": 0.7,
        "mscale_all_dim": 0.4,
        "truncate": False,
    },
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scaled_rotary_embeddings_equal_transformers(scaling, tiny, drive, helpers) -> None:
    model = tiny("llama", rope_parameters={"rope_theta": 500.0, **SCALINGS[scaling]})
    driver = drive(model.files)
    # As long as the model allows: every position that there is.
    ids = np.random.default_rng(7).integers(0, 96, 128).tolist()
    driver.admit(0, ids, SCORED)
    (part,) = driver.run((0, 128)).prompt_logprobs
    right = model.log_softmax(ids)
    got = np.stack([helpers.whole(part.logprobs, index) for index in range(127)])
    np.testing.assert_allclose(got, right[:127], atol=1e-4)


def test_bfloat16_weights_computed_in_float32_equal_the_same_weights_upcast(
    tiny, drive, helpers, tmp_path
) -> None:
    model = tiny("llama")
    import copy

    half = copy.deepcopy(model.reference).bfloat16()
    half.save_pretrained(tmp_path)
    upcast = type(model)(tmp_path, half.float())
    driver = drive(helpers.files_of(tmp_path))
    driver.admit(0, prompt(0))
    result = driver.run((0, PROMPTS[0]))
    np.testing.assert_allclose(
        helpers.whole(result.logprobs, 0), upcast.log_softmax(prompt(0))[-1], atol=1e-4
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_types_stay_near_float32(tiny, drive, helpers, dtype) -> None:
    model = tiny("qwen3")
    driver = drive(model.files, dtype=dtype)
    driver.admit(0, prompt(0))
    result = driver.run((0, PROMPTS[0]))
    right = model.log_softmax(prompt(0))[-1]
    np.testing.assert_allclose(helpers.whole(result.logprobs, 0), right, atol=0.2)
