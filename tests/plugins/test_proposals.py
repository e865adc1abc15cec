"""Plugins propose values of the configuration; the operator's count over them."""

from __future__ import annotations

import pytest

from framework import LLM
from framework.config.choices import choices_of, open_registry
from framework.config.proposals import propose
from framework.config.resolve import resolve
from framework.errors import ConfigError, PluginError
from framework.testing.fake_model import MODEL, fake_plugins

HOOKS = "from framework.contracts.hooks import HookSpecs\nclass H(HookSpecs): pass\n"
LINE = "enable_prefix_caching is off because of plugin hooks:h@d-h: it reads all pages"


@pytest.fixture
def add(house):
    """Install hooks `name` whose manifest proposes values: (field, value, reason)."""

    def call(name, *config):
        rows = "".join(
            f'[[plugin.config]]\nfield = "{f}"\nvalue = {v}\nreason = "{r}"\n' for f, v, r in config
        )
        manifest = house.manifest("hooks", name) + rows
        house.add(f"d-{name}", {f"hooks {name}": "H"}, HOOKS, manifest)

    return call


def proposed(env=None, **keywords):
    resolved = resolve({"model": "m", **keywords}, env=env or {})
    return propose(resolved, open_registry(resolved.config, env or {}))


CACHING = ("enable_prefix_caching", "false", "it reads all pages")


def test_a_proposal_counts_where_nobody_gave_a_value(add):
    """Its source is the plugin, and a line says what and why."""
    add("h", CACHING, ("max_num_seqs", "64", "it is slow"))
    allowed = {"FRAMEWORK_PLUGINS": "+h"}
    resolved, lines = proposed(allowed)
    assert resolved.config.cache.enable_prefix_caching is False
    assert resolved.config.scheduler.max_num_seqs == 64
    assert resolved.provenance["scheduler.max_num_seqs"] == "plugin hooks:h@d-h"
    assert lines == (LINE, "max_num_seqs is 64 because of plugin hooks:h@d-h: it is slow")
    resolved, lines = proposed({**allowed, "FRAMEWORK_SCHEDULER__MAX_NUM_SEQS": "8"})
    assert resolved.config.scheduler.max_num_seqs == 8
    assert lines == (LINE,)
    resolved, lines = proposed(allowed, enable_prefix_caching=True, max_num_seqs=1)
    assert resolved.config.cache.enable_prefix_caching is True
    assert lines == ()


def test_who_is_not_in_use_has_no_say(add):
    """A plugin that is denied, or of a kind of which another is chosen, proposes nothing."""
    add("h", CACHING)
    resolved, lines = proposed()
    assert (resolved.config.cache.enable_prefix_caching, lines) == (True, ())


def test_a_chosen_plugin_of_which_one_runs_is_heeded(house):
    """A scheduling policy that the configuration names may propose, another may not."""
    for name in ("x", "y"):
        manifest = house.manifest("scheduling_policy", name)
        manifest += f'[[plugin.config]]\nfield = "watermark"\nvalue = 0.{len(name)}\nreason = "r"\n'
        house.add(f"d-{name}", {f"scheduling_policies {name}": "P"}, "", manifest)
    resolved, _ = proposed(scheduling_policy="x")
    assert resolved.provenance["scheduler.watermark"] == "plugin scheduling_policy:x@d-x"
    assert proposed()[0].provenance["scheduler.watermark"] == "default"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("max_num_seq", "1", "r"), r"did you mean 'max_num_seqs'"),
        (("model", "'x'", "r"), "the operator's alone"),
        (("trust_remote_code", "true", "r"), "the operator's alone"),
        (("plugin_options", "{}", "r"), "the operator's alone"),
        (("scheduling_policy", "'x'", "r"), "it chooses plugins"),
    ],
)
def test_what_is_not_for_plugins_is_refused_by_name(add, row, words):
    """Neither an unknown field nor whom to trust nor which plugins is open to proposals."""
    add("h", row)
    with pytest.raises(PluginError, match=words) as caught:
        proposed({"FRAMEWORK_PLUGINS": "h"})
    assert caught.value.distribution == "d-h"


def test_a_value_that_the_field_does_not_take_names_the_plugin(add):
    """The configuration is validated with its proposals."""
    add("h", ("max_num_seqs", "0", "r"))
    with pytest.raises(ConfigError, match="plugin hooks:h@d-h"):
        proposed({"FRAMEWORK_PLUGINS": "h"})


def test_contradicting_plugins_are_both_named_unless_the_operator_decides(add):
    """Neither of two is preferred; equal proposals are one."""
    add("h", CACHING)
    add("i", ("enable_prefix_caching", "true", "it likes them"))
    add("j", CACHING)
    with pytest.raises(PluginError, match="hooks:h@d-h and hooks:i@d-i propose different"):
        proposed({"FRAMEWORK_PLUGINS": "h,i"})
    decided, lines = proposed({"FRAMEWORK_PLUGINS": "h,i"}, enable_prefix_caching=True)
    assert (decided.provenance["cache.enable_prefix_caching"], lines) == ("keyword", ())
    assert proposed({"FRAMEWORK_PLUGINS": "h,j"})[1] == (LINE,)


def test_an_engine_says_what_was_turned_off(add, monkeypatch, caplog):
    """The line is in the start-up log, the source in the provenance of LLM."""
    add("h", CACHING)
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "+h")
    with caplog.at_level("INFO"), LLM(MODEL, plugins=fake_plugins(), executor="echo") as llm:
        assert LINE in caplog.messages
        assert llm.provenance["cache.enable_prefix_caching"] == "plugin hooks:h@d-h"
        assert llm.config.cache.enable_prefix_caching is False


def test_choices_are_what_fields_named_after_kinds_say():
    """One name, a list, and the values of a mapping; names of models are none."""
    config = resolve(
        {"model": "m", "tokenizer": "t", "platform": "cpu", "logits_processors": ("a", "b")}
    ).config
    assert choices_of(config) == {
        "executor": ("in_process",),
        "platform": ("cpu",),
        "scheduling_policy": ("fcfs",),
        "logits_processor": ("a", "b"),
    }
