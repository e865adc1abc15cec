"""Requests with adapters, from their names to their pages."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from framework import SamplingParams
from framework.contracts.step import RunnerInfo
from framework.engine.adapters import AdapterDirectory, directory_of
from framework.engine.refusals import refuse_unadapted
from framework.errors import ConfigError, InputError, UnsupportedError

from .conftest import write_adapter

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
LONG = list(range(100, 164))  # four pages


def ids_of(outputs):
    for output in outputs:
        assert output.outputs[0].finish_reason == "length", output.outputs[0].stop_reason
    return [list(output.outputs[0].token_ids) for output in outputs]


def said(llm, name, prompt=LONG):
    return ids_of(llm.generate({"prompt_token_ids": prompt}, GREEDY, lora_request=name))[0]


def test_each_prompt_has_its_adapter_and_none_is_the_model_itself(make, adapters):
    llm = make()
    for name in "abc":
        llm.load_adapter(name, adapters / name)
    names = [None, "a", "b", "c", "a"]
    alone = {name: said(llm, name) for name in names}
    assert len({tuple(ids) for ids in alone.values()}) == 4
    prompts = [{"prompt_token_ids": LONG}] * 5
    outputs = llm.generate(prompts, GREEDY, lora_request=names)
    assert ids_of(outputs) == [alone[name] for name in names]
    assert [output.lora_request for output in outputs] == names
    assert [each.name for each in llm.list_adapters()] == ["a", "b", "c"]
    streamed = list(llm.stream({"prompt_token_ids": LONG}, GREEDY, lora_request="b"))
    assert [t for part in streamed for t in part.outputs[0].token_ids] == alone["b"]
    llm.check_integrity()


def test_a_name_that_is_loaded_again_finds_no_page_of_before(make, tmp_path):
    """Nor does another adapter, nor the model, nor a prompt that an unloaded one computed."""
    llm = make()
    llm.load_adapter("x", write_adapter(tmp_path / "x", 1))
    llm.load_adapter("other", write_adapter(tmp_path / "other", 2))
    prompt = {"prompt_token_ids": LONG}

    def cached(name):
        return llm.generate(prompt, GREEDY, lora_request=name)[0].num_cached_tokens

    assert [cached("x"), cached("x") > 0, cached("other"), cached(None)] == [0, True, 0, 0]
    before, expected = said(llm, "x"), said(llm, "other")
    with pytest.raises(InputError, match="already"):
        llm.load_adapter("x", tmp_path / "other")
    llm.load_adapter("x", tmp_path / "other", load_inplace=True)
    assert cached("x") == 0
    assert said(llm, "x") == expected != before
    llm.unload_adapter("x")
    llm.load_adapter("x", tmp_path / "x")
    assert cached("x") == 0
    assert said(llm, "x") == before


def test_three_adapters_over_two_places_of_a_step(make, adapters, monkeypatch):
    """Never more than max_loras at a time, and each request gets what it gets alone."""
    from framework_torch.adapters.bank import AdapterBank

    llm = make(max_loras=2)
    for name in "abc":
        llm.load_adapter(name, adapters / name)
    alone = {name: said(llm, name) for name in (*"abc", None)}
    groups = []
    begin = AdapterBank.begin

    def watched(self, inputs):
        begin(self, inputs)
        groups.append(len(self._groups))

    monkeypatch.setattr(AdapterBank, "begin", watched)
    names = [*"abcabccba", None, *"cab"]
    prompts = [{"prompt_token_ids": LONG}] * len(names)
    outputs = llm.generate(prompts, GREEDY, lora_request=names)
    assert ids_of(outputs) == [alone[name] for name in names]
    assert max(groups) == 2
    llm.check_integrity()


def test_who_was_used_least_lately_makes_place_and_comes_back_when_asked_for(make, adapters):
    """max_cpu_loras in memory; a pinned one stays."""
    llm = make(max_loras=1, max_cpu_loras=2)
    server = llm._engine.adapters.participant

    def there():
        told = llm._engine.client.control(server, "list", {})["adapters"]
        numbers = {each.number: each.name for each in llm.list_adapters()}
        return {numbers[each["id"]] for each in told if each["state"] == "ready"}

    for name in "abc":
        llm.load_adapter(name, adapters / name)
    assert there() == {"b", "c"}
    fresh = make()
    for name in "abc":
        fresh.load_adapter(name, adapters / name)
    for name in "acb":
        assert said(llm, name) == said(fresh, name)
    assert there() == {"b", "c"}
    llm.pin_adapter("c")
    for name in "ab":
        assert said(llm, name) == said(fresh, name)
    assert there() == {"b", "c"}
    with pytest.raises(InputError, match="no place would be left"):
        llm.pin_adapter("b")
    llm.pin_adapter("c", False)
    said(llm, "a")
    assert there() == {"a", "b"}
    llm.pin_adapter("c")  # when it comes back
    with pytest.raises(InputError, match="no place would be left"):
        llm.pin_adapter("a")
    llm.pin_adapter("c", False)
    # All at once, more than have a place.
    names = [*"abcabc"]
    prompts = [{"prompt_token_ids": LONG}] * len(names)
    outputs = ids_of(llm.generate(prompts, GREEDY, lora_request=names))
    assert outputs == [said(fresh, name) for name in names]


def test_files_that_changed_since_they_were_loaded_are_not_taken_for_the_same(make, tmp_path):
    """Pages are found under the load id, which stands for what was loaded first."""
    llm = make(max_loras=1, max_cpu_loras=1)
    for seed, name in enumerate("xy"):
        llm.load_adapter(name, write_adapter(tmp_path / name, seed))
    assert said(llm, "y")
    write_adapter(tmp_path / "x", 7)
    [output] = llm.generate({"prompt_token_ids": LONG}, GREEDY, lora_request="x")
    assert output.outputs[0].finish_reason == "error"
    assert "not those that were loaded" in output.outputs[0].stop_reason
    assert said(llm, "y")
    llm.load_adapter("x", tmp_path / "x", load_inplace=True)
    assert said(llm, "x")


def test_files_that_went_are_an_error_of_their_requests_alone_until_they_are_back(make, tmp_path):
    llm = make(max_loras=1, max_cpu_loras=1)
    for seed, name in enumerate("xy"):
        llm.load_adapter(name, write_adapter(tmp_path / name, seed))
    (tmp_path / "x").rename(tmp_path / "away")
    prompts = [{"prompt_token_ids": LONG}] * 3
    bad, good, other = llm.generate(prompts, GREEDY, lora_request=["x", "y", "x"])
    for output in (bad, other):
        assert output.outputs[0].finish_reason == "error"
        assert "cannot be used" in output.outputs[0].stop_reason
    assert good.outputs[0].finish_reason == "length"
    (tmp_path / "away").rename(tmp_path / "x")
    assert said(llm, "x")


def test_an_adapter_that_cannot_be_used_is_refused_and_the_next_is_not(make, adapters, tmp_path):
    """It is not listed, and takes no place."""
    llm = make(max_lora_rank=4, max_loras=1, max_cpu_loras=1)
    wide = write_adapter(tmp_path / "wide", 1, rank=5)
    with pytest.raises(InputError, match="rank 5 is above max_lora_rank"):
        llm.load_adapter("wide", wide)
    broken = shutil.copytree(adapters / "a", tmp_path / "broken")
    settings = json.loads((broken / "adapter_config.json").read_text())
    (broken / "adapter_config.json").write_text(json.dumps({**settings, "use_dora": True}))
    with pytest.raises(InputError, match="DoRA"):
        llm.load_adapter("broken", broken)
    with pytest.raises(InputError, match="cannot be read"):
        llm.load_adapter("nowhere", tmp_path / "nowhere")
    assert llm.list_adapters() == []
    llm.load_adapter("a", adapters / "a")
    assert said(llm, "a")


def test_names_and_folders_that_are_none_are_refused(make, adapters, model):
    llm = make()
    for name in ("", " ", 5, None, "\ud800", str(model)):
        with pytest.raises(InputError, match="lora_name"):
            llm.load_adapter(name, adapters / "a")
    for root in ("", 5, None, "a\0b"):
        with pytest.raises(InputError, match="lora_path"):
            llm.load_adapter("a", root)
    llm.load_adapter("alpha", adapters / "a")
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        llm.generate("Hello", GREEDY, lora_request="alpa")
    with pytest.raises(InputError, match="one per prompt"):
        llm.generate(["Hello"], GREEDY, lora_request=["alpha", "alpha"])
    for name in (5, {}, "x" * 10_000):
        with pytest.raises(InputError):
            llm.unload_adapter(name)
        with pytest.raises(InputError):
            llm.generate("Hello", GREEDY, lora_request=name)
    # What the engine tells the participant cannot come from a client, who could name any folder.
    forged = SamplingParams(extra_args={"lora": {"root": str(adapters / "b"), "pinned": True}})
    with pytest.raises(InputError, match="extra_args"):
        llm.generate("Hello", forged, lora_request="alpha")
    assert said(llm, "alpha")


def test_of_two_loads_of_one_name_the_first_that_is_ready_has_it():
    """Unless the other one is to take its place."""
    directory = AdapterDirectory("lora")
    one, two = (directory.begin("x", f"/{n}", pinned=False, again=False) for n in "12")
    assert directory.add(two, again=False) is None
    with pytest.raises(InputError, match="already"):
        directory.add(one, again=False)
    assert list(directory) == [two]
    assert directory.add(one, again=True) == two
    assert list(directory) == [one]


def test_an_unloaded_adapter_is_gone_for_new_requests_and_not_for_those_before(
    make, adapters, tmp_path
):
    llm = make()
    llm.load_adapter("a", adapters / "a")
    expected = said(llm, "a")
    stream = llm.stream({"prompt_token_ids": LONG}, GREEDY, lora_request="a")
    tokens = list(next(stream).outputs[0].token_ids)
    llm.unload_adapter("a")
    for part in stream:
        tokens += part.outputs[0].token_ids
    assert tokens == expected
    with pytest.raises(InputError, match="no adapter 'a'"):
        said(llm, "a")
    # One that was accepted before the name went, and gets its turn after it; with its files gone
    # it cannot be served.
    root = write_adapter(tmp_path / "own", 0)
    for there, end in ((True, "length"), (False, "error")):
        llm.load_adapter("a", root)
        waiting = llm.stream({"prompt_token_ids": LONG}, GREEDY, lora_request="a")
        llm.unload_adapter("a")
        if not there:
            root.rename(tmp_path / "away")
        *_, last = waiting
        assert last.outputs[0].finish_reason == end
        server = llm._engine.adapters.participant
        assert llm._engine.client.control(server, "list", {})["adapters"] == []
    assert "cannot be used" in last.outputs[0].stop_reason


def test_those_of_the_configuration_are_there_from_the_start(make, adapters, tmp_path):
    llm = make(lora_modules={"one": str(adapters / "a")})
    assert [each.name for each in llm.list_adapters()] == ["one"]
    assert said(llm, "one")
    with pytest.raises(InputError, match="cannot be loaded"):
        make(lora_modules={"one": str(tmp_path)})
    with pytest.raises(ConfigError, match="enable_lora"):
        make(enable_lora=False, lora_modules={"one": str(adapters / "a")})
    with pytest.raises(ConfigError, match="max_cpu_loras"):
        make(max_loras=4, max_cpu_loras=3)


def test_without_the_switch_adapters_are_refused_and_without_a_runner_that_can_the_start(make):
    llm = make(enable_lora=False)
    for call in (
        lambda: llm.generate("Hello", GREEDY, lora_request="a"),
        lambda: llm.load_adapter("a", "a"),
        lambda: llm.unload_adapter("a"),
    ):
        with pytest.raises(UnsupportedError, match="enable_lora"):
            call()
    assert llm.list_adapters() == []
    info = RunnerInfo(layers={}, page_tokens=(1,), bytes_free=1, vocab_size=1, features=frozenset())
    with pytest.raises(UnsupportedError, match="does not declare that it serves them"):
        refuse_unadapted(object(), info, "executor:x")
    config = make().config
    with pytest.raises(ConfigError, match="no active scheduler participant serves adapters"):
        directory_of(config, {})


def test_vectors_are_those_of_the_adapter(make, adapters):
    llm = make(pooling="mean")
    for name in "ab":
        llm.load_adapter(name, adapters / name)
    found = [llm.embed("Hello", lora_request=name)[0].embedding for name in (None, "a", "b", "a")]
    assert np.array_equal(found[1], found[3])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.allclose(found[one], found[other], atol=1e-3)


def test_they_outlast_sleep(make, adapters):
    llm = make()
    llm.load_adapter("a", adapters / "a")
    expected = said(llm, "a")
    for level in (1, 2):
        llm.sleep(level)
        llm.wake_up()
        assert said(llm, "a") == expected
