"""Chat templates: every shape of message that clients send, and clear errors for the rest."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from framework.contracts.io_processor import Place
from framework.contracts.model_source import ModelFiles
from framework.contracts.sampling import SamplingParams
from framework.errors import InputError, ModelError
from framework.io.chat import ChatProcessor
from framework.io.messages import MALFORMED
from framework_text.chat import render
from framework_text.template_process import TemplateProcess
from framework_text.text_tokenizer import TextTokenizer

# Repeats every field that it finds, and refuses roles as many templates do.
ECHO = (
    "{% for m in messages %}{% if m.role == 'alien' %}{{ raise_exception('no aliens') }}"
    "{% endif %}[{{ m.role }}|{{ m.content | trim }}"
    "{% if m.tool_calls is defined %}|{% for c in m.tool_calls %}{{ c.function.name }}:"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endif %}]{% endfor %}"
    "{% if tools %}T{{ tools | length }}{% endif %}{% if mood %}{{ mood }}{% endif %}"
    "{% if add_generation_prompt %}>{% endif %}"
)


@pytest.fixture
def say(smollm: TextTokenizer) -> Callable[..., str]:
    return lambda messages, **settings: read(
        smollm, {"messages": messages, "chat_template": ECHO, **settings}
    )


def read(tokenizer: TextTokenizer, request: Any) -> str:
    """The text that the IO processor "chat" makes of a request."""
    place = Place(tokenizer=tokenizer, params=SamplingParams(), max_tokens=8192)
    [prompt] = ChatProcessor().read(request, place).prompts
    assert prompt.text == tokenizer.decode(prompt.ids, skip_special_tokens=False)
    return prompt.text


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_the_models_own_template_is_used(smollm: TextTokenizer) -> None:
    ids = smollm.render_chat([{"role": "system", "content": "Be brief."}, user("Hi")])
    assert smollm.decode(ids, skip_special_tokens=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert ids[0] == 1
    assert smollm.chat_template is not None
    assert "im_start" in smollm.chat_template


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"content": "Hi"}, "Hi"),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "ho"}]}, "Hi\nho"),
        ({"content": ["Hi"]}, "Hi"),
    ],
)
def test_every_role_takes_every_shape_of_content(
    say: Callable[..., str], smollm: TextTokenizer, role: str, content: Any, text: str
) -> None:
    shown = "system" if role == "developer" else role
    assert say([{"role": role, **content}]) == f"[{shown}|{text}]>"
    assert f"{shown}\n{text}<|im_end|>" in read(smollm, {"messages": [{"role": role, **content}]})


def test_a_template_that_knows_developers_sees_them(say: Callable[..., str]) -> None:
    template = "{% for m in messages %}{{ m.role }}{% endfor %}{# developer #}"
    assert say([{"role": "developer", "content": "x"}], chat_template=template) == "developer"


def test_tool_calls_empty_ones_vanish_and_arguments_become_objects(say: Callable[..., str]) -> None:
    for empty in ([], None):
        assert say([{"role": "assistant", "content": "a", "tool_calls": empty}]) == "[assistant|a]>"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": [1]}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    before = copy.deepcopy(message)
    assert say([message]) == '[assistant||f:{"x": [1]}]>'
    assert message == before
    call["function"] = {"name": "f", "arguments": ""}
    assert say([message]) == "[assistant||f:{}]>"


@pytest.mark.parametrize(
    "text", ["{", "[1]", "3", "no", '{"x": 1', "[" * 100_000, '{"x": "\\ud800"}']
)
def test_a_slip_of_the_model_in_the_history_does_not_end_a_conversation(
    say: Callable[..., str], smollm: TextTokenizer, text: str
) -> None:
    """Clients send back what the model wrote; it sees its own words, and what came of them."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    messages = [
        user("a"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "arguments are no JSON"},
    ]
    said = say(messages)
    start, end = said.index("f:") + 2, said.index("][tool")
    assert json.loads(said[start:end]) == {MALFORMED: text}
    assert "arguments are no JSON" in read(smollm, {"messages": messages})


def test_documents_reach_the_template(say: Callable[..., str]) -> None:
    template = "{% for d in documents or [] %}<{{ d.title }}>{% endfor %}{{ mood }}"
    documents = [{"title": "A"}, {"title": "B"}]
    kwargs = {"mood": "glad"}
    given = {"chat_template": template, "chat_template_kwargs": kwargs}
    assert say([user("a")], documents=documents, **given) == "<A><B>glad"
    assert say([user("a")], documents=[], **given) == "glad"
    assert kwargs == {"mood": "glad"}


def test_tools_and_variables_reach_the_template(say: Callable[..., str]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert say([user("a")], tools=[tool]) == "[user|a]T1>"
    assert say([user("a")], tools=[]) == "[user|a]>"
    assert say([user("a")], chat_template_kwargs={"mood": "glad"}) == "[user|a]glad>"
    assert say([user("a")], add_generation_prompt=False) == "[user|a]"


def test_the_final_message_can_be_continued(smollm: TextTokenizer) -> None:
    messages = [user("Count"), {"role": "assistant", "content": "1, 2,"}]
    ids = smollm.render_chat(messages, add_generation_prompt=False, continue_final_message=True)
    assert smollm.decode(ids, skip_special_tokens=False).endswith("assistant\n1, 2,")
    with pytest.raises(InputError, match="exclude each other") as caught:
        read(smollm, {"messages": messages, "continue_final_message": True})
    assert caught.value.parameter == "continue_final_message"


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "Hi",
        b"Hi",
        3,
        {"role": "user", "content": "Hi"},
        [],
        ["Hi"],
        [None],
        [[user("Hi")]],
        [{}],
        [{"content": "Hi"}],
        [{"role": None, "content": "Hi"}],
        [{"role": 7, "content": "Hi"}],
        [{"role": "", "content": "Hi"}],
        [{"role": "us\0er", "content": "Hi"}],
        [user("a\0b")],
        [user([{"type": "text", "text": "\0"}])],
        [user(7)],
        [user({"type": "text", "text": "Hi"})],
        [user([{"type": "text"}])],
        [user([{"type": "text", "text": None}])],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
        [user([{"type": ["text"], "text": "x"}])],
        [user([None])],
        [user("\ud800")],
        [{"role": "alien", "content": "Hi"}],
        [{"role": "assistant", "tool_calls": "x"}],
        [{"role": "assistant", "tool_calls": [3]}],
        [{"role": "assistant", "tool_calls": [{"function": None}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}],
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "\0"}}]}],
    ],
)
def test_a_bad_conversation_is_the_callers_error(say: Callable[..., str], messages: Any) -> None:
    with pytest.raises(InputError) as caught:
        say(messages)
    assert caught.value.parameter == "messages"
    assert say([user("next")]) == "[user|next]>"


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"chat_template": "{% for %}"}, "chat_template"),
        ({"chat_template": "{{ 1 / 0 }}"}, "messages"),
        ({"chat_template": "{{ messages[9].content.x.y }}"}, "messages"),
        ({"chat_template": "{{ ''.__class__.__mro__ }}{{ messages.append(1) }}"}, "messages"),
        ({"chat_template": "{% for i in range(10**9) %}{% endfor %}"}, "messages"),
        ({"chat_template": 3}, "chat_template"),
        ({"tools": "x"}, "tools"),
        ({"tools": [1]}, "tools"),
        ({"documents": [1]}, "documents"),
        ({"add_generation_prompt": 1}, "add_generation_prompt"),
        ({"continue_final_message": "yes"}, "continue_final_message"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"tool": []}, "request"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ],
)
def test_bad_settings_are_the_callers_error(
    say: Callable[..., str], settings: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(InputError) as caught:
        say([user("Hi")], **settings)
    assert caught.value.parameter == parameter


def test_a_model_without_a_template_says_what_to_do(spm: TextTokenizer) -> None:
    with pytest.raises(InputError, match="no chat template") as caught:
        spm.render_chat([user("Hi")])
    assert "chat_template" in (caught.value.mend or "")
    assert spm.chat_template is None
    assert spm.render_chat([user("a")], chat_template="{{ messages[0].content }}") == spm.encode(
        "a", add_special_tokens=False
    )


def test_bos_of_a_template_is_not_doubled(
    smollm: TextTokenizer, files: Callable[..., ModelFiles]
) -> None:
    ids = smollm.render_chat([user("a")], chat_template="{{ bos_token }}{{ messages[0].content }}")
    assert ids == [smollm.bos_id, *smollm.encode("a")]


def test_a_template_of_the_model_that_is_no_text_is_told(smollm: TextTokenizer) -> None:
    library = copy.copy(smollm.unwrap())
    library.chat_template = 5
    with pytest.raises(ModelError, match="chat template is not a text"):
        render(
            library,
            TemplateProcess(),
            [user("Hi")],
            tools=None,
            chat_template=None,
            chat_template_kwargs=None,
            add_generation_prompt=True,
            continue_final_message=False,
        )
