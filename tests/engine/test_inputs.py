"""What may be asked, and the one clear error for everything else."""

from __future__ import annotations

import numpy as np
import pytest

from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.sampling import SamplingParams
from framework.engine.ends import end_of_sequence_ids
from framework.engine.prompts import split_prompts
from framework.engine.request_options import RequestOptions
from framework.engine.text_limit import ContextLimit
from framework.errors import InputError, ModelError, PluginError, TooLongError, UnsupportedError
from framework.testing.byte_tokenizer import EOS, STOP_WORD, ByteTokenizer

ONE = SamplingParams()


@pytest.mark.parametrize(
    "prompt",
    [
        "ab",
        [97, 98],
        (97, 98),
        np.array([97, 98]),
        [np.int64(97), 98],
        {"prompt": "ab"},
        {"prompt_token_ids": [97, 98], "cache_salt": "s"},
        {"prompt": "shown", "prompt_token_ids": [97, 98], "multi_modal_data": None},
    ],
)
def test_every_form_of_a_prompt_gives_its_ids(harness, prompt):
    request = harness().inputs.process(prompt, ONE)
    assert request.prompt_token_ids == [97, 98]
    assert request.inputs[0].tokens.tolist() == [97, 98]
    assert request.inputs[0].tokens.dtype == np.int32
    salted = isinstance(prompt, dict) and "cache_salt" in prompt
    assert request.inputs[0].salt == ("s" if salted else None)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "empty"),
        ([], "empty"),
        ({"prompt": ""}, "empty"),
        ([97, -1], r"prompt\[1\]"),
        ([97, 260], "260 is out of range"),
        ([2**63], "out of range"),
        ([10**30], "out of range"),
        ([True], r"prompt\[0\]"),
        ([1.0], r"prompt\[0\]"),
        (np.array([1.5]), r"prompt\[0\]"),
        ([97, None], r"prompt\[1\]"),
        ([[97]], r"prompt\[0\]"),
        (None, "prompt"),
        (97, "prompt"),
        (b"ab", "prompt"),
        ({"a"}, "prompt"),
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "string"),
        ({"prompt_token_ids": "ab"}, "prompt_token_ids"),
        ({"promt": "ab"}, "did you mean 'prompt'"),
        ({5: "ab"}, "no 5"),
        ({"prompt": "a", "cache_salt": ""}, "cache_salt"),
        ({"prompt": "a", "cache_salt": 5}, "cache_salt"),
        ({"prompt": "a", "cache_salt": "\ud800"}, "cache_salt"),
        ("\ud800", "not valid Unicode"),
        ("a" * 65, "too long"),
        ([97] * 64, "too long"),
    ],
)
def test_a_bad_prompt_is_one_clear_error(harness, prompt, words):
    engine = harness()
    with pytest.raises(InputError, match=words) as caught:
        engine.inputs.process(prompt, ONE)
    assert caught.value.parameter
    assert engine.run("ok", ONE).finished
    engine.check_empty()


@pytest.mark.parametrize("key", ["multi_modal_data", "mm_processor_kwargs"])
def test_what_no_plugin_serves_is_refused_with_the_reason(harness, key):
    with pytest.raises(UnsupportedError, match=key):
        harness().inputs.process({"prompt": "a", key: {"image": 1}}, ONE)
    with pytest.raises(UnsupportedError, match="structured"):
        harness().inputs.process("a", SamplingParams(structured_outputs={"regex": "a"}))


@pytest.mark.parametrize(
    ("length", "asked", "total"),
    [
        (62, {"max_tokens": 16}, 64),
        (63, {"max_tokens": 1}, 64),
        (63, {"max_tokens": None}, 64),
        (10, {"max_tokens": None}, 64),
        (10, {"max_tokens": 5}, 15),
        (64, {"max_tokens": 0, "prompt_logprobs": 1}, 64),
        (64, {"max_tokens": 1}, None),
        (65, {"max_tokens": 0, "prompt_logprobs": 1}, None),
        (65, {"max_tokens": None}, None),
        (500, {"max_tokens": 4, "truncate_prompt_tokens": 60}, 64),
        (500, {"max_tokens": 4, "truncate_prompt_tokens": 64}, None),
    ],
)
def test_prompt_and_output_share_the_context(harness, length, asked, total):
    """Field bug 24, at L - 1, L and L + 1."""
    inputs = harness().inputs
    for prompt in ("a" * length, [97] * length):
        if total is None:
            with pytest.raises(InputError, match="too long"):
                inputs.process(prompt, SamplingParams(**asked))
        else:
            request = inputs.process(prompt, SamplingParams(**asked))
            assert request.inputs[0].max_total == total


def test_a_text_that_cannot_fit_is_refused_without_tokenizing_it(harness):
    engine = harness()
    with pytest.raises(InputError, match="10000000 characters"):
        engine.inputs.process("a" * 10_000_000, ONE)
    assert engine.tokenizer.encoded == 0


def test_what_just_fits_by_characters_is_tokenized():
    limit = ContextLimit(ByteTokenizer(["x" * 50]), 3)
    assert limit.characters == 150
    limit.check("x" * 150)
    with pytest.raises(TooLongError, match="151 characters, at least 3 tokens"):
        limit.check("x" * 151)


def test_truncation_keeps_the_end(harness):
    request = harness().inputs.process("abcdef", SamplingParams(truncate_prompt_tokens=2))
    assert request.prompt_token_ids == list(b"ef")


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"max_tokens": 4}, 60),
        ({"max_tokens": None}, 63),
        ({"max_tokens": 0, "prompt_logprobs": 1}, 64),
        ({"max_tokens": 1000}, 1),
    ],
)
def test_as_many_tokens_are_kept_as_leave_room_for_the_output(harness, asked, kept):
    sampling = SamplingParams(truncate_prompt_tokens=-1, **asked)
    ids = [token % 250 for token in range(500)]
    for prompt, expected in ((ids, ids[-kept:]), ("abc", list(b"abc")[-kept:])):
        assert harness().inputs.process(prompt, sampling).prompt_token_ids == expected


def test_stop_ids_are_the_models_and_the_requests(harness):
    inputs = harness(eos_ids=(EOS, STOP_WORD, 9999)).inputs
    stop_ids = [
        inputs.process("a", SamplingParams(**asked)).inputs[0].stop_ids
        for asked in ({}, {"ignore_eos": True}, {"ignore_eos": True, "stop_token_ids": [7]})
    ]
    assert stop_ids == [(EOS, STOP_WORD), (), (7,)]
    assert inputs.process("a", SamplingParams(stop_token_ids=[7])).inputs[0].stop_ids == (
        7,
        EOS,
        STOP_WORD,
    )


def test_end_of_sequence_comes_from_tokenizer_and_generation_configuration(caplog):
    def ids(generation, config):
        return end_of_sequence_ids(ByteTokenizer(), generation, config, 260)

    assert ids({"eos_token_id": [1, 2]}, {"eos_token_id": 3}) == {1, 2, EOS}
    assert ids({}, {"eos_token_id": 3}) == {3, EOS}
    assert ids({}, {}) == {EOS}
    assert not caplog.records
    assert ids({}, {"eos_token_id": [-1, 4, 260]}) == {4, EOS}
    assert "[-1, 260] is not in the vocabulary of 260 tokens" in caplog.text


@pytest.mark.parametrize("value", [[[1]], "2", 1.5, True, [1, None], {"id": 1}])
def test_an_end_that_is_no_id_is_an_error_that_names_its_key(value):
    for pair in (({"eos_token_id": value}, {}), ({}, {"eos_token_id": value})):
        with pytest.raises(ModelError, match="eos_token_id"):
            end_of_sequence_ids(ByteTokenizer(), *pair, 260)


def test_bad_words_are_banned_with_and_without_a_space(harness):
    engine = harness(tokenizer=ByteTokenizer([" bad", "bad"]))
    found = engine.inputs.process("a", SamplingParams(bad_words=["bad", " x"])).inputs[0].bad_words
    assert set(found) == {(260,), (261,), (ord(" "), ord("x")), (ord("x"),)}


def test_bad_words_are_tokenized_without_the_frame_of_a_prompt(harness):
    class Framing(ByteTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            return [*([EOS] if add_special_tokens else ()), *super().encode(text)]

    prepared = harness(tokenizer=Framing()).inputs.process("a", SamplingParams(bad_words=["b"]))
    assert prepared.prompt_token_ids == [EOS, ord("a")]
    assert set(prepared.inputs[0].bad_words) == {(ord("b"),), (ord(" "), ord("b"))}


@pytest.mark.parametrize(("special", "frame"), [(None, [EOS]), (True, [EOS]), (False, [])])
def test_a_text_may_come_without_the_frame_of_a_prompt(harness, special, frame):
    class Framing(ByteTokenizer):
        def encode(self, text, *, add_special_tokens=True):
            return [*([EOS] if add_special_tokens else ()), *super().encode(text)]

    inputs = harness(tokenizer=Framing()).inputs
    asked = {"prompt": "a", "add_special_tokens": special}
    assert inputs.process(asked, SamplingParams()).prompt_token_ids == [*frame, ord("a")]
    with pytest.raises(InputError, match="add_special_tokens"):
        inputs.process({"prompt": "a", "add_special_tokens": "no"}, SamplingParams())


@pytest.mark.parametrize(
    "asked",
    [{"stop_token_ids": [260]}, {"allowed_token_ids": [10**9]}, {"logit_bias": {260: 1.0}}],
)
def test_ids_in_parameters_must_be_in_the_vocabulary(harness, asked):
    with pytest.raises(InputError, match=next(iter(asked))):
        harness().inputs.process("a", SamplingParams(**asked))


@pytest.mark.parametrize("params", [None, {}, "greedy", SamplingParams])
def test_parameters_must_be_sampling_params(harness, params):
    with pytest.raises(InputError, match="sampling_params"):
        harness().inputs.process("a", params)


@pytest.mark.parametrize("priority", [True, 1.5, "high", None, 2**63])
def test_a_priority_must_be_an_integer(harness, priority):
    with pytest.raises(InputError, match="priority"):
        harness().inputs.process("a", ONE, RequestOptions(priority=priority))


def test_several_outputs_are_fanned_out_after_processing(harness):
    """Field bug 10: children carry what was worked out, and seeds of their own."""
    inputs = harness().inputs
    asked = {"seed": -5, "max_tokens": None, "prompt_logprobs": 0, "bad_words": ["x"]}
    single = inputs.process("ab", SamplingParams(**asked)).inputs[0]
    children = inputs.process("ab", SamplingParams(n=3, **asked)).inputs
    assert [child.request_id for child in children] == ["1.0", "1.1", "1.2"]
    for child in children:
        assert (child.stop_ids, child.max_total) == (single.stop_ids, single.max_total)
        assert (child.bad_words, child.sampling.n) == (single.bad_words, 1)
    assert [child.sampling.prompt_logprobs for child in children] == [0, None, None]
    seeds = [child.seed for child in children]
    assert seeds[0] == single.seed == 2**64 - 5
    assert len(set(seeds)) == 3
    again = inputs.process("other", SamplingParams(n=3, **asked)).inputs
    assert [child.seed for child in again] == seeds


def test_seeds_without_one_follow_from_the_engine(harness):
    seeds = [
        [engine.inputs.process("a", ONE).inputs[0].seed for _ in range(3)]
        for engine in (harness(seed=1), harness(seed=1), harness(seed=2))
    ]
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 6


class Picky(LogitsProcessor):
    def validate(self, sampling):
        if (sampling.extra_args or {}).get("picky") == "bad":
            raise InputError("picky refuses", parameter="extra_args")

    def apply(self, logits, slots, outputs):
        raise NotImplementedError


def test_several_outputs_may_only_score_a_prompt(harness):
    """With no tokens to make, the scores are all there is: each child keeps them."""
    asked = SamplingParams(n=2, max_tokens=0, prompt_logprobs=1)
    children = harness().inputs.process("ab", asked).inputs
    assert [child.sampling.prompt_logprobs for child in children] == [1, 1]


def test_ends_that_are_ignored_end_nothing_and_hide_nothing(harness):
    inputs = harness().inputs
    assert inputs.process("a", SamplingParams()).eos_ids == {EOS}
    assert inputs.process("a", SamplingParams(ignore_eos=True)).eos_ids == frozenset()


def test_extra_arguments_reach_active_plugins_only(harness):
    inputs = harness(logits_processors={"picky": Picky()}, participants=["gate"]).inputs
    request = inputs.process("a", SamplingParams(extra_args={"picky": [1], "gate": {}}))
    assert dict(request.inputs[0].extras) == {"picky": b"\x91\x01", "gate": b"\x80"}
    with pytest.raises(InputError, match="picky refuses"):
        inputs.process("a", SamplingParams(extra_args={"picky": "bad"}))
    with pytest.raises(InputError, match="did you mean 'picky'"):
        inputs.process("a", SamplingParams(extra_args={"pickyy": 1}))


class Serving:
    """The front-end half of a participant that serves a field."""

    serves = frozenset({"thinking_token_budget"})

    def read(self, sampling):
        return None if sampling.thinking_token_budget is None else b"\x01"


def test_a_field_that_a_participant_serves_is_no_argument(harness):
    """What its halves tell each other no client can write."""
    inputs = harness(participants=["budget"], readers={"budget": Serving()}).inputs
    request = inputs.process("a", SamplingParams(thinking_token_budget=1))
    assert dict(request.inputs[0].extras) == {"budget": b"\x01"}
    with pytest.raises(InputError, match="takes none"):
        inputs.process("a", SamplingParams(extra_args={"budget": {"a": 1}}))
    with pytest.raises(UnsupportedError, match="thinking_token_budget is not supported"):
        harness().inputs.process("a", SamplingParams(thinking_token_budget=1))


def test_one_prompt_and_several_are_told_apart():
    assert split_prompts("ab") == ["ab"]
    assert split_prompts([1, 2]) == [[1, 2]]
    assert split_prompts([[1], [2]]) == [[1], [2]]
    assert split_prompts(["a", {"prompt": "b"}, [1]]) == ["a", {"prompt": "b"}, [1]]
    assert split_prompts({"prompt": "b"}) == [{"prompt": "b"}]
    assert split_prompts([]) == []
    assert split_prompts(np.array([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    for bad in (None, 5, {"a"}, object()):
        with pytest.raises(InputError, match="prompts"):
            split_prompts(bad)


class Careless(LogitsProcessor):
    def validate(self, sampling):
        raise KeyError("oops")

    def apply(self, logits, slots, outputs):
        return


def test_a_processor_that_fails_in_validate_is_named(harness):
    inputs = harness(logits_processors={"careless": Careless()}).inputs
    with pytest.raises(PluginError, match=r"Careless.*validating a request.*oops"):
        inputs.process("ab", ONE)


def test_values_nested_beyond_all_bounds_are_named_and_not_written_out(harness):
    deep = "x"
    for _ in range(5000):
        deep = [deep]
    for prompt in ({"prompt": "a", "cache_salt": deep}, {"prompt": deep}, [deep]):
        with pytest.raises(InputError) as error:
            harness().inputs.process(prompt, ONE)
        assert len(str(error.value)) < 1000
    with pytest.raises(InputError, match="priority"):
        harness().inputs.process("a", ONE, RequestOptions(priority=deep))


@pytest.mark.parametrize("name", ["request_id", "tenant"])
@pytest.mark.parametrize("text", ["a\udfff", 5, ["a"]])
def test_names_are_text_that_can_be_sent(name, text):
    with pytest.raises(InputError) as caught:
        RequestOptions(**{name: text})
    assert caught.value.parameter == name
