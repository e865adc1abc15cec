"""`LLM` over the echo model: it answers each prompt with the prompt."""

from __future__ import annotations

import re
import signal
import sys
import threading

import pytest

from framework import LLM, InputError, SamplingParams
from framework.contracts.base import Contract, Supported
from framework.contracts.compiler import Compiler
from framework.contracts.hooks import HookSpecs, hookimpl
from framework.contracts.model_source import ModelQuery
from framework.errors import (
    ConfigError,
    EngineDeadError,
    ModelError,
    PluginError,
    TooLongError,
    UnsupportedError,
)
from framework.testing.fake_model import MODEL, fake_plugins

LONG = SamplingParams(max_tokens=None)


def echo(**options):
    plugins = {**fake_plugins(), **options.pop("plugins", {})}
    return LLM(options.pop("model", MODEL), plugins=plugins, executor="echo", **options)


@pytest.fixture(scope="module")
def llm():
    with echo() as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_left(request):
    yield
    if "llm" in request.fixturenames:
        core = request.getfixturevalue("llm")._engine.client.core
        core.check_integrity()
        assert not core.has_work()


def texts(outputs):
    return [[c.text for c in output.outputs] for output in outputs]


class Unclear:
    """Neither true nor false, as an array is, and nothing that can be shown."""

    __hash__ = None

    def __bool__(self):
        raise ValueError("ambiguous")

    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize("value", [Unclear(), [], 0, None, "x" * 10_000, {"x" * 10_000: 1}])
def test_what_is_no_value_of_an_argument_is_one_short_error(llm, value):
    calls = [
        lambda: llm.ask(value, "a"),
        lambda: llm.chat([{"role": value, "content": "a"}]),
        lambda: llm.chat([{"role": "user", "content": [{"type": value}]}]),
    ]
    if value is not None:  # which means the usual ones
        calls += [
            lambda: llm.stream("a", value),
            lambda: llm.embed("a", value),
            lambda: llm.generate("a", LONG, lora_request=value),
        ]
    for call in calls:
        with pytest.raises((InputError, PluginError, UnsupportedError)) as error:
            call()
        assert len(str(error.value)) < 1500


def test_a_key_of_any_length_is_shown_in_short(llm):
    for key in ("x" * 10_000, 7, None):
        with pytest.raises(InputError) as error:
            llm.generate({key: 1}, LONG)
        assert len(str(error.value)) < 1500
    with pytest.raises(InputError) as error:
        llm.generate("a", SamplingParams(extra_args={"x" * 10_000: 1}))
    assert len(str(error.value)) < 1500


def test_outputs_come_in_the_order_of_the_prompts(llm):
    prompts = ["a long one, which ends last", "b", {"prompt": "mapping"}, list(b"ids")]
    outputs = llm.generate(prompts, LONG)
    assert texts(outputs) == [[prompts[0]], ["b"], ["mapping"], ["ids"]]
    assert [output.prompt for output in outputs] == [prompts[0], "b", "mapping", None]
    assert all(output.finished for output in outputs)


def test_one_prompt_is_a_list_of_one_and_none_is_none(llm):
    assert texts(llm.generate("one", LONG)) == [["one"]]
    assert texts(llm.generate(list(b"ids"), LONG)) == [["ids"]]
    assert llm.generate([], LONG) == []


def test_parameters_may_differ_by_prompt(llm):
    params = [SamplingParams(max_tokens=2), SamplingParams(stop="c", n=2, output_kind="delta")]
    assert texts(llm.generate(["abcd", "abcd"], params)) == [["ab"], ["ab", "ab"]]
    assert texts(llm.generate(["abcd", "abcd"], LONG, priority=[1, 0])) == [["abcd"], ["abcd"]]


def test_outputs_of_one_request_have_one_priority_and_one_arrival():
    """Field bug 17: preempted, they are put in order among each other."""
    with echo(scheduling_policy="priority", num_pages=12) as llm:
        outputs = llm.generate(["x" * 12, "y" * 12], LONG.replace(n=4), priority=[1, 1])
        assert llm.stats.preemptions > 0
        assert texts(outputs) == [["x" * 12] * 4, ["y" * 12] * 4]
        llm.check_integrity()
        assert llm.stats.pages_used == 0


def test_without_parameters_the_model_recommends_them(llm):
    defaults = llm.get_default_sampling_params()
    assert (defaults.temperature, defaults.max_tokens, defaults.top_p) == (0.5, 16, 1.0)
    assert texts(llm.generate("0123456789abcdefgh")) == [["0123456789abcdef"]]
    with pytest.raises(InputError, match="temperature is invalid"):  # no fault of the model
        llm.get_default_sampling_params(temperature=9)
    usual = llm.get_default_sampling_params(temperature=0.7, top_p=0.95)
    assert (usual.temperature, usual.max_tokens, usual.top_p) == (0.5, 16, 0.95)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((["good", ""], LONG), {}, "prompt 1: the prompt is empty"),
        ((["good", [-1]], LONG), {}, "prompt 1"),
        ((["good", "x" * 300], LONG), {}, "prompt 1.*too long"),
        ((["good", 5], LONG), {}, "prompt 1"),
        ((["a", "b"], [LONG]), {}, "a list of 2"),
        ((["a"], "greedy"), {}, "sampling_params"),
        ((["a", "b"], [LONG, None]), {}, "prompt 1: sampling_params"),
        ((["a"], LONG), {"priority": "high"}, "priority"),
        ((["a"], LONG), {"priority": [1, 2]}, "priority"),
        ((None, LONG), {}, "prompts"),
    ],
)
def test_a_bad_call_is_one_error_and_runs_nothing(llm, arguments, options, words):
    steps = llm._engine.client.core._runner.steps
    with pytest.raises(InputError, match=words):
        llm.generate(*arguments, **options)
    assert llm._engine.client.core._runner.steps == steps
    assert not llm._engine.client.core.has_work()
    assert texts(llm.generate("next", LONG)) == [["next"]]


def test_what_the_core_refuses_leaves_nothing_behind(llm, monkeypatch):
    core = llm._engine.client.core
    add, seen = core.add, []

    def refuse_third(entry):
        if len(seen) == 2:
            raise InputError("can never fit")
        seen.append(entry)
        add(entry)

    monkeypatch.setattr(core, "add", refuse_third)
    with pytest.raises(InputError, match="never fit"):
        llm.generate(["a", "b", "c"], LONG)
    monkeypatch.undo()
    assert not core.has_work()
    assert texts(llm.generate("next", LONG)) == [["next"]]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 3])
def test_a_temperature_out_of_range_names_itself(value):
    with pytest.raises(InputError, match="temperature"):
        SamplingParams(temperature=value)


def test_adapters_are_refused_unless_they_were_allowed(llm):
    with pytest.raises(UnsupportedError, match="enable_lora"):
        llm.generate("a", LONG, lora_request="mine")
    with pytest.raises(InputError, match="lora_request"):
        llm.generate("a", LONG, lora_request=object())


def test_chat_renders_and_answers_one_or_several(llm):
    conversation = [{"role": "user", "content": "hi"}]
    [output] = llm.chat(conversation, LONG)
    assert output.prompt == "<turn>user: hi<turn>assistant: "
    assert output.outputs[0].text == "user: hiassistant: "
    both = llm.chat([conversation, conversation], LONG)
    assert texts(both) == [[output.outputs[0].text]] * 2
    [continued] = llm.chat(
        conversation, LONG, add_generation_prompt=False, continue_final_message=True
    )
    assert continued.prompt == "<turn>user: hi"


def test_a_conversation_that_cannot_fit_is_refused_before_it_is_tokenized(llm, monkeypatch):
    messages = [{"role": "user", "content": "x" * 5000}] * 2
    with monkeypatch.context() as patch:
        patch.setattr("framework.testing.byte_tokenizer._utf8", lambda text: pytest.fail(text))
        for ask in (llm.chat, llm.render_chat):
            with pytest.raises(TooLongError, match="10012 characters, at least 1668 tokens"):
                ask(messages)
    assert len(llm.render_chat(messages, limited=False)["prompt_token_ids"]) == 10_026
    [cut] = llm.chat(messages, SamplingParams(max_tokens=3, truncate_prompt_tokens=8))
    assert (cut.outputs[0].text, len(cut.prompt_token_ids)) == ("ist", 8)
    one, kept = [{"role": "user", "content": "hi"}], SamplingParams(truncate_prompt_tokens=8)
    assert len(llm.chat([one, messages], [LONG, kept])) == 2
    with pytest.raises(TooLongError):
        llm.chat([messages, one], [LONG, kept])


@pytest.mark.parametrize(
    "messages",
    [None, "hi", [], [[]], ["hi"], [None], {"role": "user"}, [{"role": 5}], [[{}], [5]]],
)
def test_a_bad_conversation_is_one_error(llm, messages):
    with pytest.raises(InputError) as caught:
        llm.chat(messages, LONG)
    assert caught.value.parameter == "messages"


@pytest.mark.parametrize(
    ("ask", "argument", "words"),
    [
        ("generate", {}, "says nothing to the model.*found: +an empty mapping"),
        ("generate", [{"cache_salt": "x"}], r"found: +a mapping with \['cache_salt'\]"),
        ("chat", [None], r"messages\[0\] is no message.*found: +NoneType None"),
        ("chat", [{"role": "user", "content": "hi"}, 5], r"messages\[1\] is no message.*int 5"),
    ],
)
def test_what_is_no_prompt_is_told_as_it_was_given(llm, ask, argument, words):
    with pytest.raises(InputError, match=f"(?s){words}"):
        getattr(llm, ask)(argument)


def test_generation_prompt_and_continuation_exclude_each_other(llm):
    with pytest.raises(InputError, match="exclude"):
        llm.chat([{"role": "user", "content": "hi"}], LONG, continue_final_message=True)


def test_a_stream_gives_what_is_new(llm):
    pieces = [output.outputs[0].text for output in llm.stream("héllo", LONG)]
    assert "".join(pieces) == "héllo"
    assert len(pieces) > 4


def test_a_stream_validates_at_once(llm):
    with pytest.raises(InputError):
        llm.stream("", LONG)


def test_a_stream_that_is_closed_or_never_begun_leaves_nothing(llm):
    stream = llm.stream("a long text", LONG)
    next(stream)
    stream.close()
    llm.stream("never begun", LONG).close()
    assert not llm._engine.client.core.has_work()


def test_a_stream_and_other_calls_do_not_disturb_each_other(llm):
    stream = llm.stream("the stream", LONG)
    pieces = [next(stream).outputs[0].text]
    assert texts(llm.generate(["x", "a longer text than that"], LONG)) == [
        ["x"],
        ["a longer text than that"],
    ]
    other = llm.stream("another", LONG)
    pieces += [next(other) and next(stream).outputs[0].text]
    rest = "".join(output.outputs[0].text for output in other)
    pieces += [output.outputs[0].text for output in stream]
    assert "".join(pieces) == "the stream"
    assert rest == "nother"


def test_threads_take_turns(llm):
    found = {}

    def work(number):
        found[number] = texts(llm.generate(f"thread {number}", LONG))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [[f"thread {number}"]] for number in range(6)}


def test_an_interrupt_ends_the_requests_of_the_call_and_no_step(monkeypatch):
    with echo() as llm:
        core = llm._engine.client.core
        step, steps = core.step, []

        def interrupted():
            steps.append("begun")
            if len(steps) == 5:
                signal.raise_signal(signal.SIGINT)
            outputs = step()
            steps.append("ended")
            return outputs

        monkeypatch.setattr(core, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["x" * 120] * 3, LONG)
        # The one that was interrupted is the third; another takes the requests out.
        assert steps == ["begun", "ended"] * 4
        core.check_integrity()
        assert not core.has_work()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert texts(llm.generate("next", LONG)) == [["next"]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_still_ends_the_call():
    """An exception in a callback of the garbage collector is printed and forgotten."""
    import gc

    sent = []

    def interrupt(phase, info):
        if not sent and phase == "start":
            sent.append(True)
            signal.raise_signal(signal.SIGINT)

    with echo(plugin_options={"executor.echo.delay": 0.01}) as llm:
        advance = llm._engine.client.advance

        def advance_then_collect():
            advance()
            gc.callbacks.append(interrupt)
            gc.collect()
            gc.callbacks.remove(interrupt)

        llm._engine.client.advance = advance_then_collect
        with pytest.raises(KeyboardInterrupt):
            llm.generate(["x" * 120] * 3, LONG)
        assert sent
        assert not llm._engine.client.core.has_work()


def test_a_fault_in_a_step_ends_everything_with_one_error(monkeypatch):
    with echo() as llm:
        stream = llm.stream("a long text", LONG)
        next(stream)

        def fail(ticket, late):
            raise ZeroDivisionError("the device is gone")

        monkeypatch.setattr(llm._engine.client.core._runner, "finish", fail)
        with pytest.raises(EngineDeadError, match="the device is gone"):
            llm.generate("a", LONG)
        for _ in range(2):
            with pytest.raises(EngineDeadError):
                llm.generate("a", LONG)
        with pytest.raises(EngineDeadError):
            next(stream)


def test_a_closed_engine_says_so():
    llm = echo()
    llm.close()
    llm.close()
    assert llm._engine.client.core._runner.closed
    with pytest.raises(EngineDeadError, match="closed"):
        llm.generate("a", LONG)
    with pytest.raises(EngineDeadError, match="closed"):
        llm.stream("a")


def test_a_stream_outlives_its_engine_and_can_be_closed_or_forgotten():
    for end in ("closed", "advanced", "never begun"):
        llm = echo()
        stream = llm.stream("a long text", LONG)
        if end != "never begun":
            next(stream)
        llm.close()
        if end == "advanced":
            with pytest.raises(EngineDeadError, match="closed"):
                next(stream)
        stream.close()
        assert list(stream) == []


def test_the_prefix_cache_can_be_reset(llm):
    text = "a prompt of some length"
    llm.generate(text, LONG)
    assert llm.generate(text, LONG)[0].num_cached_tokens == 20
    assert llm.reset_prefix_cache()
    assert llm.generate(text, LONG)[0].num_cached_tokens == 0


class Compiles(Compiler):
    """Never asked: the echo model has nothing to compile."""

    def answer(self, query):
        return Supported()

    def identity(self):
        return "none"

    def compile(self, pieces):
        raise AssertionError

    def load(self, code):
        raise AssertionError


COMPILING = {"compiler": "mine", "plugins": {"compiler:mine": f"{__name__}:Compiles"}}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_num_seq": 3}, ConfigError, "did you mean 'max_num_seqs'"),
        ({"max_num_seqs": 0}, ConfigError, "max_num_seqs is invalid"),
        ({"max_model_len": "many"}, ConfigError, "max_model_len is invalid"),
        ({"model": "://nowhere"}, ModelError, "echo.*rejected.*name='://nowhere'"),
        ({"model": ""}, ConfigError, "model is invalid"),
        ({"tensor_parallel_size": 2}, UnsupportedError, "tensor"),
        ({"quantization": "awq"}, UnsupportedError, "quantization"),
        ({"kv_cache_dtype": "float16"}, UnsupportedError, "kv_cache_dtype"),
        (COMPILING, UnsupportedError, "would compile nothing.*leave comp"),
        ({"optimization_level": 3}, UnsupportedError, "would compile nothing.*-O3 asks for"),
        ({**COMPILING, "enforce_eager": True}, ConfigError, "enforce_eager forbids"),
        ({"scheduling_policy": "fcf"}, PluginError, "did you mean 'fcfs'"),
        ({"chat_template": "missing.jinja"}, ConfigError, "chat_template cannot be read"),
        ({"plugin_options": {"executor.echo.delai": 1}}, PluginError, "delai"),
        ({"plugin_options": {"executor": 5}}, ConfigError, "plugin_options"),
        ({"plugins": {"tokenizer:bad": "no_such_module:X"}}, PluginError, "no_such_module"),
        ({"logits_processors": ["unknown"]}, PluginError, "unknown"),
        ({"no_plugins": True}, ConfigError, "exclude each other"),
    ],
)
def test_an_engine_that_cannot_start_says_why(options, error, words):
    with pytest.raises(error, match=r"(?s)" + words):
        echo(**options)


def test_the_token_is_never_shown():
    with pytest.raises(ModelError) as caught:
        echo(model="://nowhere", token="hf_secret")
    assert "hf_secret" not in str(caught.value)
    with pytest.raises(ConfigError) as invalid:
        echo(token=["hf_secret"])
    assert "hf_secret" not in str(invalid.value)


def test_options_come_from_the_environment_and_keywords_win(monkeypatch):
    monkeypatch.setenv("FRAMEWORK_MODEL__MAX_MODEL_LEN", "32")
    monkeypatch.setenv("FRAMEWORK_SCHEDULER__MAX_NUM_SEQS", "7")
    with echo(max_num_seqs=5) as llm:
        assert llm.max_model_len == 32
        assert llm.config.scheduler.max_num_seqs == 5
        assert llm.provenance["model.max_model_len"] == "environment FRAMEWORK_MODEL__MAX_MODEL_LEN"
        assert llm.provenance["scheduler.max_num_seqs"] == "keyword"
        assert llm.provenance["scheduler.loop_depth"] == "default"


def test_a_chat_template_file_is_read(tmp_path):
    file = tmp_path / "template.jinja"
    file.write_text("TEMPLATE")
    with echo(chat_template=str(file)) as llm:
        [output] = llm.chat([{"role": "user", "content": "hi"}], LONG)
        assert output.prompt.startswith("TEMPLATE<turn>user")


class Listener(HookSpecs):
    """Keeps what it was told."""

    events: list[tuple] = []  # noqa: RUF012

    @hookimpl
    def engine_started(self, notes):
        self.events.append(("started", notes[0][:8]))

    @hookimpl
    def request_added(self, request):
        self.events.append(("added", request.request_id))
        raise RuntimeError("a hook that fails disturbs nobody")

    @hookimpl
    def request_first_token(self, request_id):
        self.events.append(("first", request_id))

    @hookimpl
    def request_finished(self, request_id, reason, num_output_tokens):
        self.events.append((request_id, reason, num_output_tokens))

    @hookimpl
    def engine_closed(self):
        self.events.append(("closed",))


def test_hooks_hear_of_requests(monkeypatch, tmp_path):
    module = tmp_path / "listener_plugin.py"
    module.write_text("Listener = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    import listener_plugin

    monkeypatch.setattr(listener_plugin, "Listener", Listener)
    assert issubclass(Listener, Contract)
    Listener.events.clear()
    with echo(plugins={"hooks:listener": "listener_plugin:Listener"}) as llm:
        llm.generate("ab", LONG)
        llm.generate("abc", SamplingParams(stop="b"))
        stream = llm.stream("abc", LONG)
        next(stream)
        stream.close()
    assert Listener.events == [
        ("started", "scripted"),
        ("added", "0"),
        ("first", "0"),
        ("0", "stop", 3),
        ("added", "1"),
        ("first", "1"),
        ("1", "stop", 2),
        ("added", "2"),
        ("first", "2"),
        ("2", "abort", 1),
        ("closed",),
    ]


def test_without_hooks_no_event_costs_a_call(monkeypatch):
    """From the first request to the end of the engine, nothing of hooks or pluggy runs."""
    called = []

    def note(frame, event, argument):
        if event == "call" and re.search(r"pluggy|hooks|breaker", frame.f_code.co_filename):
            called.append(frame.f_code.co_qualname)

    with echo() as llm:
        sys.setprofile(note)
        try:
            llm.generate(["ab", "abc"], LONG)
            llm.close()
        finally:
            sys.setprofile(None)
    assert called == []


def test_the_token_is_not_in_the_query_s_repr():
    assert "hf_secret" not in repr(ModelQuery(name="m", token="hf_secret"))


def test_a_working_directory_that_was_removed_is_named(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="current working directory"):
        echo()
