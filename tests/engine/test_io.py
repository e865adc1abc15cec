"""IO processors: what is asked becomes prompts in one place, and outputs become answers."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest

from framework import LLM, SamplingParams
from framework.contracts.io_processor import EnginePrompt, IOProcessor, Place, Reading
from framework.engine.async_engine import AsyncEngine
from framework.errors import ConfigError, InputError, PluginError
from framework.io.chat import ChatProcessor
from framework.testing.byte_tokenizer import ByteTokenizer
from framework.testing.fake_model import MODEL, fake_plugins

GREEDY = SamplingParams(max_tokens=8)
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


class Words(IOProcessor):
    """Several prompts from one request, and one answer from their outputs."""

    def read(self, request, place):
        if not isinstance(request, str):
            raise InputError("words are a string", parameter="request", found=request)
        prompts = (EnginePrompt(ids=place.tokenizer.encode(word)) for word in request.split())
        return Reading(prompts=tuple(prompts), params=SamplingParams(max_tokens=3))

    def answer(self, request, reading, outputs):
        assert len(reading.prompts) == len(outputs)
        return " ".join(output.outputs[0].text for output in outputs)


class Many(IOProcessor):
    """A list of texts, with the parameters of the caller."""

    def read(self, request, place):
        return Reading(
            prompts=tuple(EnginePrompt(ids=place.tokenizer.encode(text)) for text in request)
        )


class Faulty(Words):
    """Fails as a plugin should not."""

    def read(self, request, place):
        if request == "raise":
            raise KeyError("no such thing")
        return {"none": None, "empty": Reading(prompts=()), "ids": _reading([-1])}[request]


class Threads(ChatProcessor):
    """Notes which thread used which tokenizer."""

    seen: ClassVar[list[tuple[int, int]]] = []
    meeting = threading.Barrier(2, timeout=60)

    def read(self, request, place):
        self.seen.append((threading.get_ident(), id(place.tokenizer)))
        if request.get("cache_salt") == "meet":
            self.meeting.wait()  # both threads are inside at one time
        return super().read(request, place)


def _reading(ids):
    return Reading(prompts=(EnginePrompt(ids=ids),))


def options(**more):
    classes = {"words": Words, "many": Many, "faulty": Faulty, "threads": Threads}
    own = {f"io_processor:{name}": f"{__name__}:{cls.__name__}" for name, cls in classes.items()}
    plugins = {**fake_plugins(), **own}
    return {"plugins": plugins, "executor": "echo", "io_processors": list(classes), **more}


@pytest.fixture(scope="module")
def llm():
    with LLM(MODEL, **options()) as made:
        yield made


def test_one_request_may_become_several_prompts_and_one_answer(llm):
    assert llm.ask("words", "abcd efg h") == "abc efg h"
    llm.check_integrity()


def test_text_and_chat_answer_what_generate_and_chat_do(llm):
    assert llm.ask("text", "hello", GREEDY).outputs == llm.generate("hello", GREEDY)[0].outputs
    asked = llm.ask("chat", {"messages": MESSAGES}, GREEDY)
    answered = llm.chat(MESSAGES, GREEDY)[0]
    assert asked.prompt_token_ids == answered.prompt_token_ids
    assert asked.outputs == answered.outputs
    rendered = llm.render_chat(MESSAGES)
    assert (rendered["prompt"], rendered["prompt_token_ids"]) == (
        asked.prompt,
        asked.prompt_token_ids,
    )


def test_a_conversation_may_be_cut_and_salted(llm):
    cut = llm.ask("chat", {"messages": MESSAGES}, GREEDY.replace(truncate_prompt_tokens=3))
    assert cut.prompt_token_ids == llm.render_chat(MESSAGES)["prompt_token_ids"][-3:]
    place = Place(tokenizer=ByteTokenizer(), params=GREEDY, max_tokens=100)
    read = ChatProcessor().read({"messages": MESSAGES, "cache_salt": "a"}, place)
    assert read.prompts[0].as_mapping()["cache_salt"] == "a"


@pytest.mark.parametrize(
    ("name", "request_", "words"),
    [
        ("words", 5, "words are a string"),
        ("text", {"promt": "a"}, "did you mean"),
        ("chat", [], "a mapping with some of messages"),
        ("chat", {"mesages": []}, "did you mean 'messages'"),
        ("chat", {}, "messages must be a list"),
    ],
)
def test_a_bad_request_is_the_callers_error(llm, name, request_, words):
    with pytest.raises(InputError, match=words):
        llm.ask(name, request_)
    assert llm.ask("words", "ok") == "ok"


@pytest.mark.parametrize("request_", ["raise", "none", "empty", "ids"])
def test_a_faulty_processor_is_named_and_harms_nobody_else(llm, request_):
    with pytest.raises(PluginError, match="io_processor:faulty"):
        llm.ask("faulty", request_)
    assert llm.ask("words", "ok") == "ok"


def test_an_unknown_processor_is_named_with_what_is_near(llm):
    with pytest.raises(PluginError, match="did you mean 'words'"):
        llm.ask("word", "a")


def test_who_waits_no_more_ends_all_that_runs_of_a_request():
    """Several prompts of one request run; cancelling the caller leaves nothing of them."""

    async def main():
        slow = options(plugin_options={"executor.echo.delay": 0.02})
        async with AsyncEngine(MODEL, in_process=True, **slow) as engine:
            texts = ["a" * 200, "b" * 200, "c" * 200]
            params = SamplingParams(max_tokens=200)
            work = asyncio.create_task(engine.ask("many", texts, params))
            while (await engine.stats()).running < 3:
                await asyncio.sleep(0.01)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            while (stats := await engine.stats()).running or stats.waiting:
                await asyncio.sleep(0.01)
            await engine.check_integrity()
            assert (await engine.ask("text", "ok", GREEDY)).outputs[0].text == "ok"

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_server_reads_in_threads_that_share_no_tokenizer_and_not_on_the_loop():
    """Two conversations are read at one time, each by a thread with a tokenizer of its own."""
    Threads.seen.clear()

    async def main():
        more = options(tokenizer_threads=2)
        async with AsyncEngine(MODEL, in_process=True, **more) as engine:
            request = {"messages": MESSAGES, "cache_salt": "meet"}
            answers = await asyncio.gather(
                *(engine.ask("threads", request, GREEDY) for _ in range(2))
            )
            words = await engine.ask("words", "abcd efg")
            with pytest.raises(InputError):
                await engine.ask("words", 5)
            assert await engine.stats()
        return answers, words

    answers, words = asyncio.run(main())
    assert words == "abc efg"
    assert answers[0].outputs == answers[1].outputs
    assert len({thread for thread, _ in Threads.seen}) == 2
    assert len({tokenizer for _, tokenizer in Threads.seen}) == 2
    assert threading.get_ident() not in {thread for thread, _ in Threads.seen}


def test_nobody_waits_for_a_template_that_came_with_a_request(monkeypatch):
    """A template of a client is a program, and may take long."""
    begun, may_end, render = threading.Event(), threading.Event(), ByteTokenizer.render_chat

    def slow(self, messages, **more):
        if more.get("chat_template"):
            begun.set()
            may_end.wait(120)
        return render(self, messages, **more)

    monkeypatch.setattr(ByteTokenizer, "render_chat", slow)

    async def main():
        async with AsyncEngine(MODEL, in_process=True, **options()) as engine:
            late = [
                asyncio.create_task(engine.render_chat(MESSAGES, chat_template="mine"))
                for _ in range(3)
            ]
            try:
                await asyncio.to_thread(begun.wait, 60)
                async with asyncio.timeout(60):
                    await engine.render_chat(MESSAGES)
                    [*_, last] = [output async for output in engine.generate("abc", GREEDY)]
                assert not any(task.done() for task in late)
            finally:
                may_end.set()
            return last, await asyncio.gather(*late)

    last, prompts = asyncio.run(main())
    assert last.finished
    assert len(prompts) == 3


def test_one_that_is_kept_out_is_told_with_the_reason(monkeypatch):
    """Not as one that nobody activated: it would be kept out of the list, too."""
    monkeypatch.setenv("FRAMEWORK_PLUGINS_DENY", "io_processor:embedding")
    with LLM(MODEL, plugins=fake_plugins(), executor="echo") as llm:
        with pytest.raises(PluginError, match="embedding@framework is denied") as denied:
            llm.ask("embedding", "a text")
        with pytest.raises(PluginError, match="no IO processor 'embeding' is active"):
            llm.ask("embeding", "a text")
    assert "FRAMEWORK_PLUGINS_DENY" in denied.value.mend


def test_cache_managers_that_are_kept_out_are_told_with_the_reason(monkeypatch):
    monkeypatch.setenv("FRAMEWORK_PLUGINS_DENY", "kv_cache_spec:full_attention")
    with pytest.raises(ConfigError, match="no cache manager serves") as denied:
        LLM(MODEL, plugins=fake_plugins(), executor="echo")
    assert "kv_cache_spec:full_attention" in denied.value.found
    assert "FRAMEWORK_PLUGINS_DENY" in denied.value.found
    assert "allow it" in denied.value.mend
