"""`framework serve`: flags, environment and file have the same names, and slips are told."""

from __future__ import annotations

import io
import sys

import pytest

from framework.cli import main
from framework.engine import serve as engine_serve


@pytest.fixture
def serve(monkeypatch, capsys, tmp_path):
    """Run `framework serve WORDS` up to where the model would be loaded; returns (configuration,
    stderr), None for one that is refused."""

    def call(*words, file=None, env=None, root=()):
        seen = []

        async def run(resolved, front_end, **more):
            seen.append(resolved)
            return 0

        monkeypatch.setattr(engine_serve, "serve", run)
        for name, value in (env or {}).items():
            monkeypatch.setenv(name, value)
        if file is not None:
            path = tmp_path / "engine.yaml"
            path.write_text(file)
            words = (*words, "--config", str(path))
        monkeypatch.setattr(sys, "argv", ["framework", *root, "serve", *words])
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as exit_:
            main()
        err = capsys.readouterr().err
        assert bool(exit_.value.code) is not bool(seen)
        return (seen[0] if seen else None), err

    return call


FIELDS = [
    ("scheduler", "max_num_seqs", "7", 7),
    ("scheduler", "max_num_batched_tokens", "99", 99),
    ("model", "max_model_len", "64", 64),
    ("model", "served_model_names", "[a, b]", ("a", "b")),
    ("cache", "enable_prefix_caching", "false", False),
    ("plugin", "stat_loggers", "[log]", ("log",)),
]
WAYS = ("flag", "flag with =", "set", "environment", "file")


def given(way, section, name, text):
    """Arguments of `serve` that say a value in one way."""
    flag = "--" + name.replace("_", "-")
    return {
        "flag": lambda: ([flag, text], {}),
        "flag with =": lambda: ([f"{flag}={text}"], {}),
        "set": lambda: (["--set", f"{name}={text}"], {}),
        "environment": lambda: ([], {"env": {f"FRAMEWORK_{section}__{name}".upper(): text}}),
        "file": lambda: ([], {"file": f"{section}: {{{name}: {text}}}"}),
    }[way]()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("section", "name", "text", "value"), FIELDS)
def test_every_way_has_the_same_name(serve, way, section, name, text, value):
    words, more = given(way, section, name, text)
    resolved, _ = serve(*words, **more)
    found = getattr(getattr(resolved.config, section), name)
    assert (tuple(found) if isinstance(found, list) else found) == value


def test_a_switch_needs_no_value(serve):
    resolved, _ = serve("--no-enable-prefix-caching", "--enforce-eager", "--max-num-seqs", "3")
    config = resolved.config
    assert config.cache.enable_prefix_caching is False
    assert config.execution.enforce_eager is True
    assert config.scheduler.max_num_seqs == 3


def test_flags_win_over_the_environment_and_that_over_the_file(serve):
    resolved, _ = serve(
        "--max-num-seqs",
        "1",
        env={
            "FRAMEWORK_SCHEDULER__MAX_NUM_SEQS": "2",
            "FRAMEWORK_SCHEDULER__MAX_NUM_BATCHED_TOKENS": "22",
        },
        file="scheduler: {max_num_seqs: 3, max_num_batched_tokens: 33, max_queued_requests: 44}",
    )
    found = resolved.config.scheduler
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.max_queued_requests) == (
        1,
        22,
        44,
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_slip_is_told_with_what_is_near(serve, way):
    words, more = given(way, "scheduler", "max_num_seq", "7")
    resolved, err = serve(*words, **more)
    assert resolved is None
    assert err.startswith("error: ")
    assert "did you mean '" in err
    assert "max_num_seqs'" in err.replace("-", "_")


def option(resolved, name):
    return resolved.config.plugin.plugin_options.get(f"front_end.http.{name}")


@pytest.mark.parametrize("name", ["root_path", "max_body_bytes"])
def test_options_of_the_front_end_have_the_same_names_too(serve, name):
    value = "77"
    pytest.importorskip("framework_http")
    flag = "--" + name.replace("_", "-")
    variable = f"FRAMEWORK_PLUGIN_OPTION__FRONT_END__HTTP__{name.upper()}"
    file = f"plugin: {{plugin_options: {{front_end: {{http: {{{name}: '77'}}}}}}}}"
    root = ("--plugin-option", f"front_end.http.{name}={value}")
    assert option(serve(flag, value)[0], name) == value
    assert option(serve(root=root)[0], name) == value
    assert option(serve(file=file)[0], name) == value
    assert option(serve(env={variable: value})[0], name) == value


def test_a_slip_in_a_flag_of_the_front_end_or_of_the_command_is_told(serve):
    assert "'--ssl-certfile'" in serve("--ssl-certfil", "x")[1]
    assert "'--port'" in serve("--prot", "1")[1]
    assert "needs a value" in serve("--max-num-seqs")[1]
    assert "belongs to no flag" in serve("demo")[1]
    assert "framework -v serve" in serve("-v")[1]


def test_known_flags_and_fields_may_be_mixed(serve):
    resolved, _ = serve("--port", "0", "--max-num-seqs", "5", "--host", "::1", "--seed", "-1")
    assert (option(resolved, "port"), option(resolved, "host")) == (0, "::1")
    assert (resolved.config.scheduler.max_num_seqs, resolved.config.model.seed) == (5, -1)
