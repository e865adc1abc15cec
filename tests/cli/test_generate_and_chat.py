"""The commands that run a model, over the echo model."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

import framework
from framework import LLM
from framework.cli import main
from framework.errors import TooLongError
from framework.testing.fake_model import MODEL, fake_plugins
from framework_commands.conversation import Conversation

ROOT = [part for key, value in fake_plugins().items() for part in ("--plugin", f"{key}={value}")]
ECHO = ["--model", MODEL, "--set", "executor=echo"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `framework ROOT COMMAND ECHO ARGUMENTS`; returns (exit code, stdout, stderr)."""

    def call(command, *arguments, root=(), stdin=""):
        argv = ["framework", *ROOT, *root, command, *ECHO, *arguments]
        return call_main(monkeypatch, capsys, argv, stdin)

    return call


def call_main(monkeypatch, capsys, argv, stdin=""):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    with pytest.raises(SystemExit) as exit_:
        main()
    shown = capsys.readouterr()
    lines = [line for line in shown.err.splitlines() if not line.startswith("framework: importing")]
    return exit_.value.code or 0, shown.out, "\n".join(lines)


def test_generate_prints_the_text(run):
    assert run("generate", "hello") == (0, "hello\n", "")
    code, out, _ = run("generate", "one", "two")
    assert (code, out) == (0, "# one\none\n# two\ntwo\n")


def test_generate_heeds_its_flags(run):
    assert run("generate", "abcdef", "--max-tokens", "3")[1] == "abc\n"
    assert run("generate", "abcdef", "--stop", "d", "--stop", "c")[1] == "ab\n"
    assert run("generate", "ab", "-n", "2", "--temperature", "1")[1] == "ab\nab\n"
    assert run("generate", "hi", "--chat")[1] == "user: hiassistant: \n"


@pytest.mark.parametrize("command", [("generate", "hello"), ("chat",)])
@pytest.mark.parametrize("flag", ["--temperature=nan", "--top-p=0", "--max-tokens=-1"])
def test_a_flag_out_of_range_is_told_before_a_model_is_looked_for(run, monkeypatch, command, flag):
    monkeypatch.setattr("framework.cli.options.resolved_of", lambda *arguments: pytest.fail("late"))
    code, out, err = run(*command, flag)
    assert (code, out) == (1, "")
    assert f"{flag[2:].split('=')[0].replace('-', '_')} is invalid" in err


def test_a_chat_samples_as_the_model_recommends_or_else_coolly(run, monkeypatch):
    seen = []
    stream = LLM.stream

    def spy(self, prompt, params):
        seen.append(params)
        return stream(self, prompt, params)

    monkeypatch.setattr(LLM, "stream", spy)
    for flags in ((), ("--top-p", "0.5", "--max-tokens", "7")):
        run("chat", *flags, stdin="hi\n")
    assert [(p.temperature, p.top_p, p.max_tokens) for p in seen] == [
        (0.5, 0.95, None),
        (0.5, 0.5, 7),
    ]


def test_generate_prints_json(run):
    code, out, _ = run("generate", "ab", "--json", "--logprobs", "0")
    [output] = json.loads(out)
    assert code == 0
    assert output["prompt_token_ids"] == [97, 98]
    [completion] = output["outputs"]
    assert (completion["text"], completion["finish_reason"]) == ("ab", "stop")
    assert completion["logprobs"][0]["97"]["bytes"] == [97]


def test_generate_streams_to_a_terminal_and_tells_how_fast(run, monkeypatch):
    from framework import LLM

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delattr(LLM, "generate")
    code, out, err = run("generate", "hello")
    assert (code, out) == (0, "hello\n")
    assert re.fullmatch(r"\[6 tokens in [0-9.]+ s, [0-9.]+ tokens/s\]", err)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((""), "the prompt is empty"),
        (("a", "--temperature", "nan"), "temperature is invalid"),
        (("a", "--top-p", "0"), "top_p is invalid"),
        (("a", "--max-model-len", "0"), "max_model_len is invalid"),
        (("a", "--set", "max_num_seq=3"), "did you mean 'max_num_seqs'"),
        (("a", "--set", "max_num_seqs"), "FIELD=VALUE"),
        (("a", "--set", "plugins={"), "JSON or YAML"),
        (("a", "--config", "missing.yaml"), "missing.yaml"),
        (("a", "--set", "logits_processors=x"), "a list, such as [NAME, NAME]"),
        (("a", "--set", "plugins=[2001-99-99]"), "--set plugins is not JSON or YAML"),
        (("a", "--model", "://unknown"), "no model source knows"),
        (("a" * 300,), "too long"),
    ],
)
def test_an_error_is_a_message_and_no_trace(run, arguments, words):
    arguments = (arguments,) if isinstance(arguments, str) else arguments
    code, out, err = run("generate", *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (("--plugin-option", "executor.echo.delai=1"), "no option 'delai'"),
        (("--plugin-option", "executor"), "kind.name.key=value"),
        (("--plugin", "executor"), "kind:name=module:attr"),
        (("--plugin", "tokenizer:x=no_such_module:X"), "no_such_module"),
        (("--no-plugins",), "exclude each other"),
    ],
)
def test_root_options_reach_the_engine(run, root, words):
    code, _, err = run("generate", "a", root=root)
    assert code == 1
    assert words in err
    assert run("generate", "a", root=("--plugin-option", "executor.echo.delay=0.001"))[0] == 0


def test_a_request_that_fails_makes_the_command_fail(run, monkeypatch):
    from framework.testing.fake_model import EchoExecutor

    init = EchoExecutor.__init__

    def fail_first(self, options=None):
        init(self, options)
        self.fail_rows = {(1, 0): "the row is bad"}

    monkeypatch.setattr(EchoExecutor, "__init__", fail_first)
    code, _, err = run("generate", "a")
    assert (code, err) == (1, "error: the row is bad")


def test_a_configuration_file_is_read(run, tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text("model: {max_model_len: 8}")
    assert "max_model_len=8" in run("generate", "a" * 9, "--config", str(file))[2]


def test_a_flag_can_take_back_what_a_file_says(run, tmp_path):
    file = tmp_path / "engine.yaml"
    file.write_text("model: {max_model_len: 8}")
    assert run("generate", "a" * 9, "--config", str(file), "--set", "max_model_len=null")[0] == 0


def test_the_version_is_printed(monkeypatch, capsys):
    code, out, _ = call_main(monkeypatch, capsys, ["framework", "--version"])
    assert (code, out) == (0, f"framework {framework.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--version"], ["plugins", "list"]])
def test_with_only_the_core_every_use_says_what_to_install(monkeypatch, capsys, arguments):
    monkeypatch.setattr("framework.cli.app.only_the_core", lambda: True)
    code, _, err = call_main(monkeypatch, capsys, ["framework", *arguments])
    assert code == 0
    assert 'pip install "framework[default]"' in err


@pytest.mark.parametrize("command", [["generate", "a"], ["chat"]])
def test_without_plugins_a_model_cannot_run_and_says_what_to_install(monkeypatch, capsys, command):
    from framework.plugins.registry import PluginRegistry

    monkeypatch.setattr(PluginRegistry, "records", lambda self, kind=None: [])
    code, _, err = call_main(monkeypatch, capsys, ["framework", *command])
    assert code == 1
    assert 'mend:     pip install "framework[default]"' in err


def test_chat_answers_lines_from_a_pipe(run):
    code, out, err = run("chat", stdin="hi\n\nyou\n")
    assert (code, err) == (0, "")
    first = "user: hiassistant: "
    assert out == f"{first}\nuser: hiassistant: {first}user: youassistant: \n"


def test_chat_has_a_system_message_and_commands(run):
    lines = "hi\n/reset\nyou\n/nope\n/exit\nnever asked\n"
    code, out, err = run("chat", "--system", "S", stdin=lines)
    assert code == 0
    answers = [f"system: Suser: {text}assistant: " for text in ("hi", "you")]
    assert out.splitlines() == answers
    assert "starts anew" in err
    assert "unknown command /nope" in err


def test_chat_tells_when_it_forgets_and_when_it_cuts(run):
    code, out, err = run("chat", "--max-model-len", "64", stdin="aaaaa\nbbbbb\nccccc\n")
    assert code == 0
    assert out.splitlines()[-1].endswith("user: cccccassistant: ")
    assert "oldest exchange(s) were forgotten" in err
    _, out, err = run("chat", "--max-tokens", "4", stdin="hi\n")
    assert out == "use\n"  # the first token of the echo is <turn>
    assert "the answer was cut" in err


def test_a_question_that_is_too_long_is_told_and_the_next_one_answered(run):
    code, out, err = run("chat", "--max-model-len", "64", stdin="a" * 80 + "\nhi\n")
    assert code == 1
    assert "error: the prompt is too long" in err
    assert out == "user: hiassistant: \n"


def test_ctrl_c_stops_the_answer_and_not_the_programme(run, monkeypatch):
    from framework.engine.client import InProcessClient

    step, left = InProcessClient.step, [4]

    def interrupted(self):
        step(self)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr(InProcessClient, "step", interrupted)
    code, out, err = run("chat", stdin="hi\n/reset\nyou\n")
    assert code == 0
    assert err.split()[0] == "stopped"
    assert out.endswith("user: youassistant: \n")
    assert out.startswith("us")


def test_a_conversation_drops_its_oldest_exchanges_and_keeps_the_question():
    conversation = Conversation("S")
    for number in range(3):
        conversation.ask(f"q{number}")
        conversation.answer(f"a{number}")
    conversation.ask("last")

    def render(messages):
        return {"prompt_token_ids": list(range(len(messages)))}

    prompt, dropped = conversation.fit(render, 4)
    assert (len(prompt["prompt_token_ids"]), dropped) == (4, 2)
    assert [m["content"] for m in conversation.messages] == ["S", "q2", "a2", "last"]
    assert conversation.fit(render, 0)[1] == 1
    assert [m["content"] for m in conversation.messages] == ["S", "last"]


def test_a_question_that_cannot_fit_costs_the_conversation_nothing():
    conversation = Conversation()
    conversation.ask("q0")
    conversation.answer("a0")

    def render(messages):
        length = sum(len(message["content"]) for message in messages)
        if length > 5:
            raise TooLongError("too long")
        return {"prompt_token_ids": list(range(length))}

    conversation.ask("fits")
    assert conversation.fit(render, 5)[1] == 1
    conversation.answer("a")
    conversation.ask("too long")
    with pytest.raises(TooLongError):
        conversation.fit(render, 5)
    conversation.take_back()
    assert [m["content"] for m in conversation.messages] == ["fits", "a"]
