"""What a third party writes, installed into a folder of its own, is found through its entry
points and works; nothing in the workspace knows of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from framework.testing.fake_model import MODEL, fake_plugins
from tests.parity.tiny import make_tiny

ROOT = Path(__file__).parents[2]


def listed(run, **env):
    rows = json.loads(run("plugins", "list", "--json", env=env))
    rows = rows if isinstance(rows, list) else rows["plugins"]
    return {row["name"]: row for row in rows}


def test_examples_are_listed_with_their_distribution(run):
    rows = listed(run)
    assert rows["shortest_first"]["distribution"] == "framework-example-shortest-first"
    assert rows["shortest_first"]["state"] == "discovered"
    for name in ("ban_tokens", "tenant_limit"):
        assert rows[name]["state"] == "denied", "it sees requests, so it must be named first"


def test_naming_an_example_admits_it(run):
    rows = listed(run, FRAMEWORK_PLUGINS="+tenant_limit, +logits_processor:ban_*")
    assert rows["tenant_limit"]["state"] == rows["ban_tokens"]["state"] == "discovered"
    assert listed(run, FRAMEWORK_PLUGINS="")["shortest_first"]["state"] == "denied"


def test_the_policy_serves_the_shortest_prompt_first(run):
    out = run(
        script="""
        from framework import LLM, SamplingParams
        from framework.testing.fake_model import MODEL, fake_plugins

        with LLM(
            MODEL, plugins=fake_plugins(), executor="echo",
            scheduling_policy="shortest_first", max_num_seqs=1,
        ) as llm:
            prompts = ["a long prompt", "short", "middling"]
            outputs = llm.generate(prompts, SamplingParams(max_tokens=30), use_tqdm=False)
            print([o.outputs[0].text for o in outputs])
            order = sorted(outputs, key=lambda o: o.metrics.first_token_time)
            print([o.prompt for o in order])
        """
    )
    texts, order = out.strip().splitlines()
    assert texts == "['a long prompt', 'short', 'middling']"
    assert order == "['short', 'middling', 'a long prompt']"


def test_the_participant_limits_what_runs_at_one_time(run):
    out = run(
        script="""
        from framework import LLM, SamplingParams
        from framework.testing.fake_model import MODEL, fake_plugins

        most = 0
        with LLM(
            MODEL, plugins=fake_plugins(), executor="echo",
            scheduler_participants=["tenant_limit"],
            plugin_options={"scheduler_participant.tenant_limit.most": 2},
        ) as llm:
            step = llm._engine.client.core.step
            def watched():
                global most
                outputs = step()
                most = max(most, outputs.stats.running)
                return outputs
            llm._engine.client.core.step = watched
            outputs = llm.generate(["abc"] * 6, SamplingParams(max_tokens=30), use_tqdm=False)
            print([o.outputs[0].text for o in outputs], most)
        """
    )
    assert out.strip() == f"{['abc'] * 6} 2"


def test_the_participant_keeps_nothing_of_tenants_that_have_gone(run):
    out = run(
        script="""
        from example_one_per_tenant import TenantLimit
        from framework.testing.harness import Harness

        limit = TenantLimit()
        one = Harness(participants={"limit": limit}, max_num_seqs=4)
        for number in range(20):
            one.add(str(number), [number] * 5, 3, tenant=f"t{number % 10}")
        most = 0
        while one.core.has_work():
            one.step()
            most = max(most, len(limit._inside))
        print(most, limit._inside, {answer.reason for answer in one.answers.values()})
        """
    )
    assert out.strip() == "4 {} {'length'}"


def test_the_cache_spec_is_served_by_its_own_manager_with_bounded_memory(run):
    out = run(
        script="""
        from example_first_tokens import FirstTokensSpec
        from framework.contracts.kv_cache_spec import FullAttentionSpec
        from framework.plugins import PluginRegistry
        from framework.testing.harness import Harness

        registry = PluginRegistry()
        managers = [made for _, made in registry.create_activated("kv_cache_spec")]
        sizes = dict(num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32")
        few = {"few": FirstTokensSpec(**sizes, first=6)}
        both = {"all": FullAttentionSpec(**sizes), **few}

        def ask(layers):
            one = Harness(
                runner={"layers": layers, "num_pages": 90, "managers": managers,
                        "max_model_len": 120},
                managers=managers, max_num_batched_tokens=8,
            )
            most, answers = 0, []
            for name in ("cold", "warm"):
                one.add(name, [1] * 60, 40)
                while one.core.has_work():
                    one.step()
                    most = max(most, one.core.stats.pages_used)
                answers.append(one.answers[name])
            same = answers[0].tokens == answers[1].tokens
            return most, same, answers[1].cached, len(answers[1].tokens)

        print(ask(few), ask(both))
        """
    )
    assert out.strip() == "(3, True, 56, 40) (28, True, 56, 40)"


def test_the_logits_processor_bans_tokens_of_its_request_alone(installed, monkeypatch, tmp_path):
    """In this process, which has the large libraries already."""
    from framework import LLM, InputError, SamplingParams

    monkeypatch.syspath_prepend(str(installed))
    reference = make_tiny("llama", tmp_path).references[0]
    prompt, tokens = reference.prompt, reference.tokens
    greedy = SamplingParams(temperature=0, max_tokens=len(tokens), ignore_eos=True)
    with LLM(tmp_path, logits_processors=["ban_tokens"], dtype="float32") as llm:
        banned = greedy.replace(extra_args={"ban_tokens": [tokens[0]]})
        plain, other = llm.generate([prompt, prompt], [greedy, banned], use_tqdm=False)
        assert list(plain.outputs[0].token_ids) == tokens
        assert tokens[0] not in other.outputs[0].token_ids
        with pytest.raises(InputError) as error:
            llm.generate([prompt], greedy.replace(extra_args={"ban_tokens": "x"}), use_tqdm=False)
        assert error.value.parameter == "extra_args"
    monkeypatch.delitem(sys.modules, "example_ban_token")


def test_the_platform_serves_a_model_when_it_is_named(installed, monkeypatch, tmp_path):
    """In this process, which has the large libraries already."""
    import torch

    from framework import LLM, SamplingParams
    from framework.errors import ConfigError

    monkeypatch.syspath_prepend(str(installed))
    threads = torch.get_num_threads()
    reference = make_tiny("llama", tmp_path).references[0]
    greedy = SamplingParams(temperature=0, max_tokens=len(reference.tokens), ignore_eos=True)
    try:
        with LLM(tmp_path, platform="polite_cpu", dtype="float32") as llm:
            (output,) = llm.generate([reference.prompt], greedy, use_tqdm=False)
        assert torch.get_num_threads() == 1
        with pytest.raises(ConfigError, match="more than the platform gives"):
            LLM(tmp_path, platform="polite_cpu", kv_cache_memory_bytes=1 << 40)
    finally:
        torch.set_num_threads(threads)
    assert list(output.outputs[0].token_ids) == reference.tokens
    monkeypatch.delitem(sys.modules, "example_polite_cpu")


def test_the_command_is_listed_and_counts(run):
    assert "Say how many tokens a text is for a model." in run("--help", env={"COLUMNS": "150"})
    plugins = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
    assert run(*plugins, "count-tokens", "--model", MODEL, "hello") == "5\n"


def test_the_io_processor_ranks_texts(run):
    out = run(
        script="""
        from framework import LLM
        from framework.testing.fake_model import MODEL, fake_plugins

        with LLM(
            MODEL, plugins=fake_plugins(), executor="echo", io_processors=["rank"],
            plugin_options={"executor.echo.encoder": True},
        ) as llm:
            ranked = llm.ask("rank", {"query": "abc", "texts": ["xyzzy", "abc", "abd"]})
            print([one["index"] for one in ranked], round(ranked[0]["score"], 4))
        """
    )
    assert out.strip() == "[1, 2, 0] 1.0"
