"""`framework config`: every value with its source, and no secret."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from framework.cli.app import build_app
from framework.errors import ConfigError
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry

SOURCE = """
from pydantic import AliasChoices, BaseModel, Field, SecretStr
from framework.contracts.scheduling_policy import SchedulingPolicy

class Inner(BaseModel):
    key: SecretStr

class WithOptions(SchedulingPolicy):
    class Options(BaseModel):
        depth: int = 1
        token: SecretStr | None = None
        inner: Inner | None = None
        quiet: str = Field(default="", repr=False)
        text: str = ""
        names: list[str] = []
        limits: dict[str, int] = {}
        wide: int = Field(default=1, validation_alias=AliasChoices("wide", "width"))
    def __init__(self, options):
        super().__init__(options)
        self.options = options
    def keys(self, requests):
        return requests.arrival.astype(float)
"""


def show(*flags):
    return CliRunner().invoke(build_app(), [*flags[:-1], "config", *flags[-1]])


def values(ended):
    return {
        row["field"]: (row["value"], row["source"]) for row in json.loads(ended.stdout)["values"]
    }


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """--plugin for a scheduling policy with options, as a file without packaging."""
    (tmp_path / "policy_with_options.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "--plugin=scheduling_policy:p=policy_with_options:WithOptions"


def test_every_value_has_its_source(tmp_path, monkeypatch):
    file = tmp_path / "engine.yaml"
    file.write_text("scheduler: {max_num_seqs: 3}\n")
    monkeypatch.setenv("FRAMEWORK_MODEL__SEED", "7")
    monkeypatch.setenv("FRAMEWORK_MODEL__TOKEN", "hush")
    flags = ["--json", "--config", str(file), "--set", "dtype=float32"]
    ended = show("--no-plugins", flags)
    found = values(ended)
    assert found["scheduler.max_num_seqs"] == (3, f"file {file}")
    assert found["model.seed"] == (7, "environment FRAMEWORK_MODEL__SEED")
    assert found["model.dtype"] == ("float32", "flag")
    assert found["plugin.no_plugins"] == (True, "flag")
    assert found["cache.page_size"] == (None, "default")
    assert found["model.token"] == ("**********", "environment FRAMEWORK_MODEL__TOKEN")
    assert "hush" not in ended.output
    assert "flag" in show(["--set", "dtype=float32"]).stdout


def test_options_of_plugins_are_checked_and_secrets_hidden(plugin, monkeypatch):
    prefix = "scheduling_policy.p"
    monkeypatch.setenv("FRAMEWORK_PLUGIN_OPTION__SCHEDULING_POLICY__P__TOKEN", "hush")
    flags = [f"--plugin-option={prefix}.{each}" for each in ("depth=2", "quiet=hush", "width=3")]
    ended = show(plugin, *flags, ["--json"])
    found = {key.rpartition(".")[2]: value for key, value in values(ended).items() if prefix in key}
    assert ended.exit_code == 0
    assert found == {
        "token": (
            "**********",
            "environment FRAMEWORK_PLUGIN_OPTION__SCHEDULING_POLICY__P__TOKEN",
        ),
        "depth": ("2", "flag"),
        "quiet": ("**********", "flag"),
        "width": ("3", "flag"),
    }
    assert "hush" not in ended.output


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_an_option_that_is_a_list_or_a_mapping_may_be_written_as_one(plugin, monkeypatch, way):
    """Where the plugin takes a text it stays one, whatever it begins with."""
    given = {"names": "[a, b]", "limits": '{"a": "1"}', "inner": "{key: hush}", "text": "[a]"}
    flags = []
    for key, value in given.items():
        if way == "flag":
            flags.append(f"--plugin-option=scheduling_policy.p.{key}={value}")
        else:
            monkeypatch.setenv(
                f"FRAMEWORK_PLUGIN_OPTION__SCHEDULING_POLICY__P__{key.upper()}", value
            )
    ended = show(plugin, *flags, ["--json"])
    assert (ended.exit_code, "hush" in ended.output) == (0, False), ended.output
    found = {key.rpartition(".")[2]: value for key, (value, _) in values(ended).items()}
    assert {key: found[key] for key in given} == given | {"inner": "**********"}


def test_a_text_that_spells_a_list_becomes_one(plugin):
    """Where the options are made; also a secret in it stays out of messages."""
    registry = PluginRegistry(
        policy=Policy(),
        ad_hoc={"scheduling_policy:p": plugin.rpartition("p=")[2]},
        options={
            "scheduling_policy": {"p": {"names": "[a, b]", "limits": "{a: '1'}", "text": "[a]"}}
        },
    )
    options = registry.create("scheduling_policy", "p").options
    assert (options.names, options.limits, options.text) == (["a", "b"], {"a": 1}, "[a]")


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--plugin-option", ["scheduling_policy.p.token=hush", "scheduling_policy.p.token=hash"]),
        ("--set", ["token=hush", "token=hash"]),
    ],
)
def test_what_is_given_twice_is_an_error_and_not_shown(plugin, flag, values):
    texts = [f"{flag}={value}" for value in values]
    ended = show(plugin, *texts, []) if flag != "--set" else show(texts)
    assert isinstance(ended.exception, ConfigError)
    told = str(ended.exception)
    assert "twice" in told
    assert not [word for word in ("hush", "hash") if word in told]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("scheduling_policy.p.names=[hush", "names"),
        ("scheduling_policy.p.limits={a: hush}", "limits.a: Input should be a valid integer"),
        ("scheduling_policy.p.dept=hush", "did you mean 'depth'"),
        ("scheduling_policy.p.depth=hush", "depth: Input should be a valid integer"),
        ("scheduling_policy.p.inner=hush", "inner: "),
        ("scheduling_policy.q.depth=hush", "unknown plugin"),
    ],
)
def test_a_wrong_option_is_an_error_and_its_value_is_not_shown(plugin, option, words):
    ended = show(plugin, f"--plugin-option={option}", [])
    assert ended.exit_code == 1
    assert words in ended.output + str(ended.exception)
    assert "hush" not in ended.output + str(ended.exception)


def test_what_a_plugin_proposes_is_shown_with_its_line(monkeypatch, tmp_path):
    package = tmp_path / "proposing_hooks"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from framework.contracts.hooks import HookSpecs\nclass H(HookSpecs): pass\n"
    )
    (package / "framework-plugin.toml").write_text(
        'schema = 1\n[[plugin]]\nkind = "hooks"\nname = "h"\ncontract = ">=1.0,<2"\n'
        '[[plugin.config]]\nfield = "max_num_seqs"\nvalue = 4\nreason = "it is slow"\n'
    )
    info = tmp_path / "dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[framework.hooks]\nh = proposing_hooks:H\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "+h")
    ended = show(["--json"])
    assert values(ended)["scheduler.max_num_seqs"] == (4, "plugin hooks:h@dist")
    line = "max_num_seqs is 4 because of plugin hooks:h@dist: it is slow"
    assert json.loads(ended.stdout)["notes"] == [line]
    assert line in show([]).stderr
