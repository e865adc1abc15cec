"""Configuration: four layers, one source per value, errors with near matches."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

from framework.config.layers import OWNER
from framework.config.levels import LEVELS
from framework.config.plugin_options import nested_options
from framework.config.resolve import read_yaml, resolve
from framework.config.sections import EngineConfig
from framework.engine.llm_options import LLMOptions
from framework.engine.meaning import compiler_of
from framework.errors import ConfigError


def test_later_layers_win_and_every_value_knows_its_source(tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text(
        "model: {model: from-file, seed: 1, dtype: float16}\nplugin: {logits_processors: [a]}\n"
    )
    env = {"FRAMEWORK_MODEL__SEED": "2", "FRAMEWORK_MODEL__DTYPE": "bfloat16", "PATH": "/x__y"}
    resolved = resolve({"dtype": "float32"}, env=env, file=file, word="flag")
    model = resolved.config.model
    assert (model.model, model.seed, model.dtype) == ("from-file", 2, "float32")
    assert resolved.config.plugin.logits_processors == ("a",)
    sources = [resolved.provenance[f"model.{name}"] for name in ("model", "seed", "dtype")]
    assert sources == [f"file {file}", "environment FRAMEWORK_MODEL__SEED", "flag"]
    assert resolved.provenance["cache.page_size"] == "default"


def test_a_level_is_a_set_of_defaults_that_everything_else_beats(tmp_path):
    def found(keywords, **more):
        resolved = resolve({"model": "m", **keywords}, **more)
        return resolved.config.execution.kernel_set, resolved.provenance["execution.kernel_set"]

    assert found({}) == ("best", "level 2")
    assert found({"optimization_level": 0}) == ("plain", "level 0")
    env = {"FRAMEWORK_EXECUTION__OPTIMIZATION_LEVEL": "1"}
    assert found({}, env=env) == ("fused", "level 1")
    assert found({"optimization_level": 0}, env=env) == ("plain", "level 0")
    assert found({"kernel_set": "best", "optimization_level": 0}) == ("best", "keyword")
    env |= {"FRAMEWORK_EXECUTION__KERNEL_SET": "plain"}
    source = "environment FRAMEWORK_EXECUTION__KERNEL_SET"
    assert found({"optimization_level": 2}, env=env) == ("plain", source)
    file = tmp_path / "engine.yaml"
    file.write_text("execution: {optimization_level: 1}\n")
    assert found({}, file=file) == ("fused", "level 1")


@pytest.mark.parametrize(
    ("keywords", "compiler"),
    [
        ({}, None),
        ({"optimization_level": 3}, "auto"),
        ({"optimization_level": 3, "compiler": "mine"}, "mine"),
        ({"optimization_level": 0, "compiler": "mine"}, "mine"),
        ({"optimization_level": 3, "compile_layers": False}, None),
        ({"optimization_level": 3, "enforce_eager": True}, None),
        ({"compile_layers": True}, "auto"),
    ],
)
def test_who_compiles(keywords, compiler):
    assert compiler_of(resolve({"model": "m", **keywords}).config) == compiler


@pytest.mark.parametrize("level", [-1, 4, "x", None, [1]])
def test_a_level_that_is_none_is_an_error(level):
    with pytest.raises(ConfigError, match="optimization_level"):
        resolve({"model": "m", "optimization_level": level})


def test_every_level_sets_fields_that_there_are():
    for level, fields in LEVELS.items():
        resolved = resolve({"model": "m", "optimization_level": level})
        for name, value in fields.items():
            assert resolved.provenance[f"{OWNER[name]}.{name}"] == f"level {level}"
            assert getattr(getattr(resolved.config, OWNER[name]), name) == value


def test_none_can_be_written_in_the_environment_where_a_field_may_be_none():
    file_like = {"max_model_len": 8, "revision": "v1"}
    env = {"FRAMEWORK_MODEL__MAX_MODEL_LEN": "null", "FRAMEWORK_MODEL__REVISION": " None "}
    model = resolve({"model": "m"}, defaults=file_like, env=env).config.model
    assert (model.max_model_len, model.revision) == (None, None)
    env = {"FRAMEWORK_MODEL__DTYPE": "none", "FRAMEWORK_SCHEDULER__LONG_PREFILL_THRESHOLD": "auto"}
    config = resolve({"model": "m"}, env=env).config
    assert (config.model.dtype, config.scheduler.long_prefill_threshold) == ("none", "auto")
    assert resolve({"model": "m", "revision": "null"}).config.model.revision == "null"
    with pytest.raises(ConfigError, match=r"(?s)dtype is invalid.*found: +None \(environment"):
        resolve({"model": "m"}, env={"FRAMEWORK_MODEL__DTYPE": "null"})


@pytest.mark.parametrize("field", ["dtype", "kv_cache_dtype"])
def test_what_is_no_name_of_a_type_is_answered_with_one(field):
    """As a type of an array library is."""
    with pytest.raises(ConfigError, match="a text, such as 'auto', 'float"):
        resolve({"model": "m", field: np.float16})


def test_lists_and_mappings_in_the_environment_are_yaml():
    env = {
        "FRAMEWORK_PLUGIN__LOGITS_PROCESSORS": "[a, b]",
        "FRAMEWORK_PLUGIN__PLUGINS": '{"tokenizer:x": "m:X"}',
        "FRAMEWORK_MODEL__REVISION": "0123",
    }
    config = resolve({"model": "m"}, env=env).config
    assert config.plugin.logits_processors == ("a", "b")
    assert config.plugin.plugins == {"tokenizer:x": "m:X"}
    assert config.model.revision == "0123"


@pytest.mark.parametrize(
    ("keywords", "env", "words"),
    [
        ({}, {}, "model is missing"),
        ({"model": "m", "sed": 1}, {}, "did you mean 'seed'"),
        ({"model": 5}, {}, "model is invalid"),
        ({"model": "m", "loop_depth": 3}, {}, r"(?s)loop_depth.*less than or equal to 2.*3"),
        ({"model": "m"}, {"FRAMEWORK_MODEL__SED": "1"}, "FRAMEWORK_MODEL__SED"),
        ({"model": "m"}, {"FRAMEWORK_MODLE__SEED": "1"}, "did you mean 'model'"),
        ({"model": "m"}, {"FRAMEWORK_MODEL__SEED": "x"}, "environment FRAMEWORK_MODEL__SEED"),
        ({"model": "m"}, {"FRAMEWORK_PLUGIN__PLUGINS": "{"}, "FRAMEWORK_PLUGIN__PLUGINS"),
    ],
)
def test_a_bad_value_names_field_and_source(keywords, env, words):
    with pytest.raises(ConfigError, match=words):
        resolve(keywords, env=env)


@pytest.mark.parametrize(
    "text", ["[1]", "model: 5", "nope: {a: 1}", "{", "\xff", "2001-99-99", "[" * 9999, "!!int ''"]
)
def test_a_bad_file_names_itself(tmp_path, text):
    file = tmp_path / "engine.yaml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"engine\.yaml"):
        resolve({"model": "m"}, file=file)
    with pytest.raises(ConfigError, match=r"missing\.yaml"):
        resolve({"model": "m"}, file=tmp_path / "missing.yaml")


def test_mappings_are_merged_by_key_and_each_key_knows_its_source(tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text(
        "model: {model: m}\n"
        "plugin:\n"
        "  plugins: {'tokenizer:a': 'm:A', 'tokenizer:b': 'm:B'}\n"
        "  plugin_options: {executor: {echo: {delay: 1, pages: 2, depth: 3}}}\n"
    )
    env = {
        "FRAMEWORK_PLUGIN_OPTION__EXECUTOR__ECHO__PAGES": "4",
        "FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{executor.echo.pages: 5, executor.echo.depth: 6}",
        "FRAMEWORK_PLUGIN__PLUGINS": "{'tokenizer:b': 'm:C'}",
    }
    resolved = resolve({"plugin_options": {"executor.echo.depth": "7"}}, env=env, file=file)
    plugin = resolved.config.plugin
    assert plugin.plugins == {"tokenizer:a": "m:A", "tokenizer:b": "m:C"}
    assert nested_options(plugin.plugin_options) == {
        "executor": {"echo": {"delay": 1, "pages": "4", "depth": "7"}}
    }
    found = {path: source for path, source in resolved.provenance.items() if "executor." in path}
    assert {path.rpartition(".")[2]: source for path, source in found.items()} == {
        "delay": f"file {file}",
        "pages": "environment FRAMEWORK_PLUGIN_OPTION__EXECUTOR__ECHO__PAGES",
        "depth": "keyword",
    }
    assert resolved.provenance["plugin.plugins.tokenizer:a"] == f"file {file}"


def test_options_of_plugins_are_never_shown():
    env = {"FRAMEWORK_PLUGIN_OPTION__ENDPOINT__X__TOKEN": "hush"}
    resolved = resolve({"model": "m", "token": "hush"}, env=env)
    assert "hush" not in repr(resolved)
    for bad in (
        {"FRAMEWORK_PLUGIN_OPTION__ENDPOINT__X": "hush"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "hush"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{a: hush}"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{a: hush"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{a: *hush}"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{a: !hush}"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{a: !hu's'h}"},
        {"FRAMEWORK_PLUGIN__PLUGIN_OPTIONS": "{a: !!int hush}"},
    ):
        with pytest.raises(ConfigError) as caught:
            resolve({"model": "m"}, env=bad)
        shown = "".join(traceback.format_exception(caught.value))
        assert "hush" not in shown
        assert "hu's'h" not in shown
        assert next(iter(bad)) in str(caught.value)


def test_options_of_plugins_may_be_flat_or_nested():
    given = {"executor.echo.delay": 1, "executor": {"echo": {"pages": 2}}, "a.b.c.d": 3}
    assert nested_options(given) == {
        "executor": {"echo": {"delay": 1, "pages": 2}},
        "a": {"b": {"c.d": 3}},
    }
    for bad in ({"executor.echo": 1}, {"executor": 1}, {"executor": {"echo": 1}}, {"..x": 1}):
        with pytest.raises(ConfigError, match="plugin_options"):
            nested_options(bad)


def test_the_options_of_llm_are_the_fields_of_all_sections():
    sections = [field.annotation for field in EngineConfig.model_fields.values()]
    fields = [name for section in sections for name in section.model_fields]
    assert len(fields) == len(set(fields))
    assert {"model", *LLMOptions.__annotations__} == set(fields)


def test_a_nested_value_that_unfolds_to_any_length_is_told_shortly(tmp_path):
    folded = "&a0 [x]"
    for i in range(12):
        folded = f"&a{i + 1} [{folded}{f', *a{i}' * 9}]"
    file = tmp_path / "engine.yaml"
    file.write_text(f"model: {folded}")
    with pytest.raises(ConfigError, match=r"this stands for more than \d+ values") as caught:
        resolve({}, file=file)
    assert len(str(caught.value)) < 500
    file.write_text(f"model: {'[x, ' * 3}[x, x]]]]")
    with pytest.raises(ConfigError, match="section 'model'"):
        resolve({}, file=file)


@pytest.mark.parametrize("text", ["a: &a [*a]", "&a {b: {c: *a}}", "a: &a {*a : 1}"])
def test_what_is_part_of_itself_is_told(text):
    with pytest.raises(ConfigError, match=r"line 1, column \d+: this is part of itself"):
        read_yaml(text, "a text")


def test_an_alias_may_stand_for_what_is_there_elsewhere():
    assert read_yaml("a: &a [1]\nb: [*a, *a]", "a text") == {"a": [1], "b": [[1], [1]]}


def test_an_option_that_is_written_in_both_ways_is_told(tmp_path):
    """The value stays out of it."""
    file = tmp_path / "engine.yaml"
    file.write_text("plugin: {plugin_options: {a.b.c: hush, a: {b: {c: hush}}}}")
    with pytest.raises(ConfigError, match=r"a\.b\.c is there twice \(file ") as caught:
        resolve({"model": "m"}, file=file)
    assert "hush" not in str(caught.value)


def test_speculation_may_be_said_in_one_mapping(tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text(
        "speculation:\n"
        "  speculative_config: {method: ngram, prompt_lookup_max: 3, num_speculative_tokens: 7}\n"
    )
    env = {"FRAMEWORK_SPECULATION__SPECULATIVE_CONFIG": '{"num_speculative_tokens": 2}'}
    resolved = resolve({"model": "m"}, env=env, file=file)
    speculation, plugin = resolved.config.speculation, resolved.config.plugin
    assert speculation.speculative_proposer == "ngram"
    assert speculation.num_speculative_tokens == 2
    assert nested_options(plugin.plugin_options) == {
        "speculative_proposer": {"ngram": {"prompt_lookup_max": 3}}
    }
    assert resolved.provenance["speculation.speculative_proposer"] == f"file {file}"
    (source,) = env
    assert resolved.provenance["speculation.num_speculative_tokens"] == f"environment {source}"
    said = {"method": "eagle", "model": "heads"}
    resolved = resolve({"model": "m", "speculative_config": said}, env=env, file=file)
    assert resolved.config.speculation.speculative_proposer == "eagle"
    assert resolved.config.speculation.speculative_model == "heads"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"prompt_lookup_max": 4}, "does not say of which proposer"),
        ({"method": 5, "prompt_lookup_max": 4}, "does not say of which proposer"),
        ({"method": 5}, "speculative_proposer is invalid"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "num_speculative_tokens is invalid"),
        ("ngram", "speculative_config is invalid"),
        ({"model": "small"}, "model needs method"),
    ],
)
def test_a_bad_mapping_of_speculation_is_named(value, words):
    with pytest.raises(ConfigError, match=words):
        resolve({"model": "m", "speculative_config": value})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("scheduler: {max_num_seqs: 1, max_num_seqs: 2}", 1),
        ("scheduler:\n  max_num_seqs: 1\nscheduler:\n  max_num_seqs: 2", 3),
        ("plugin:\n  plugin_options:\n    a: {k: 1}\n    'a': {k: 2}", 4),
    ],
)
def test_a_key_that_stands_twice_is_an_error_that_says_where(tmp_path, text, line):
    (tmp_path / "engine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"engine\.yaml .*line {line}, .*already"):
        resolve({"model": "m"}, file=tmp_path / "engine.yaml")


def test_what_is_merged_in_by_name_may_be_given_anew():
    assert read_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}", "a text")["b"] == {"x": 1, "y": 3}


def test_settings_that_contradict_each_other_name_who_set_them():
    with pytest.raises(ConfigError) as caught:
        resolve({"model": "m", "lora_modules": {"a": "/x"}})
    assert caught.value.message == "lora_modules needs enable_lora"
    assert "lora_modules (keyword)" in str(caught.value)
