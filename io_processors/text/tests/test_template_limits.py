"""A chat template of a request ends, however it is written, and the next one is rendered."""

from __future__ import annotations

import pytest

from framework.errors import InputError, TooLongError
from framework_text.template_process import TemplateProcess
from framework_text.text_tokenizer import TextTokenizer

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
DOUBLES = "{% set s = namespace(x='ab' * 999) %}{% for i in range(40) %}{% set s.x = s.x ~ s.x %}"
TREE = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}"
HOSTILE = {
    "nested loops": (LOOPS, "more than 0.2 s"),
    # Which of the two limits it meets first depends on the machine.
    "a silent doubling": (DOUBLES + "{% endfor %}{{ s.x | length }}", "memory|more than 0.2 s"),
    "a power": ("{{ 9 ** (9 ** (9 ** 9)) }}", "more than 0.2 s"),
    "a long repeat": ("{{ 'x' * 10 ** 10 }}", "memory"),
    "a wide text": ("{{ '%1000000000d' % 1 }}", "memory"),
    "much output": ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "1000000 characters"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    "a tree of calls": (TREE, "more than 0.2 s"),
    "an escape": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "a large range": ("{{ range(10 ** 9) | list }}", "range"),
    "a syntax error": ("{% for %}", "Expected"),
    "deep brackets": ("{{ " + "(" * 50_000 + " }}", "recursion|too many"),
}


@pytest.fixture(scope="module")
def process() -> TemplateProcess:
    return TemplateProcess(seconds=0.2, characters=10**6, memory=1 << 28)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_one_clear_error_and_the_next_is_rendered(
    process: TemplateProcess, name: str
) -> None:
    template, words = HOSTILE[name]
    with pytest.raises(InputError, match=words):
        process.render(template, {})
    assert process.render("{{ a }}", {"a": name}) == name


class Limit:
    """Texts of 1000 characters."""

    characters = 1000

    def check(self, text: str) -> None:
        if len(text) > 1000:
            raise TooLongError("the prompt is too long")


@pytest.mark.parametrize("options", [{}, {"continue_final_message": True}])
def test_a_template_writes_no_more_than_can_fit(
    smollm: TextTokenizer, options: dict[str, bool]
) -> None:
    """Its process stops there, also where its own limit is far away; the next may write again."""
    template = "{% for i in range(n) %}x{% endfor %}{{ messages[0].content }}"
    settings = {"chat_template": template, "add_generation_prompt": False, **options}
    messages = [{"role": "user", "content": "end"}]
    for count, fits in ((10**5, False), (900, True), (998, False)):
        kwargs = {"chat_template_kwargs": {"n": count}, **settings}
        if fits:
            ids = smollm.render_chat(messages, limit=Limit(), **kwargs)
            assert smollm.decode(ids) == "x" * count + "end"
        else:
            with pytest.raises(TooLongError, match="wrote more than 1000 characters"):
                smollm.render_chat(messages, limit=Limit(), **kwargs)
    settings["chat_template_kwargs"] = {"n": 10**4}
    ids = smollm.render_chat(messages, **settings)
    assert len(smollm.decode(ids)) == 10**4 + 3


def test_a_conversation_that_cannot_fit_is_refused_before_it_is_tokenized(
    smollm: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Never:
        def encode(self, text: str, add_special_tokens: bool) -> None:
            raise AssertionError(f"{len(text)} characters were tokenized")

    monkeypatch.setattr(smollm, "_backend", Never())
    with pytest.raises(TooLongError, match="the prompt is too long"):
        smollm.render_chat([{"role": "user", "content": "x" * 1001}], limit=Limit())


def test_a_good_template_reads_as_transformers_reads_it(smollm: TextTokenizer) -> None:
    """Blocks, filters, functions and tags: what the model's own template would give."""
    library = smollm.unwrap()
    template = (
        "{% for m in messages %}\n  {% if loop.index > 2 %}{% break %}{% endif %}\n"
        "{% generation %}{{ m.content | tojson }}{% endgeneration %}\n{% endfor %}"
        "{{ {'b': '<é>', 'a': [1]} | tojson(indent=1) }}{{ strftime_now('%Y') }}{{ eos_token }}"
        "{{ tools }}{{ documents }}{{ nothing }}"
    )
    messages = [{"role": "user", "content": text} for text in ("é\n", " b ", "c")]
    expected = library.apply_chat_template(messages, chat_template=template, tokenize=False)
    ids = smollm.render_chat(messages, chat_template=template, add_generation_prompt=False)
    assert smollm.decode(ids, skip_special_tokens=False) == expected


@pytest.mark.parametrize("trims", [False, True])
def test_a_message_is_continued_as_transformers_continues_it(
    smollm: TextTokenizer, trims: bool
) -> None:
    content = "{{ m.content | trim }}" if trims else "{{ m.content }}"
    template = "{% for m in messages %}[" + content + "]{% endfor %}"
    messages = [{"role": "user", "content": " a "}, {"role": "assistant", "content": " b, "}]
    options = {"chat_template": template, "continue_final_message": True}
    expected = smollm.unwrap().apply_chat_template(messages, tokenize=False, **options)
    ids = smollm.render_chat(messages, add_generation_prompt=False, **options)
    assert smollm.decode(ids) == expected
    options["chat_template"] = "fixed"
    with pytest.raises(InputError, match="does not write the final message") as caught:
        smollm.render_chat(messages, add_generation_prompt=False, **options)
    assert caught.value.parameter == "continue_final_message"


def test_values_that_are_no_json_are_refused_by_name(smollm: TextTokenizer) -> None:
    with pytest.raises(InputError, match="plain JSON"):
        smollm.render_chat([{"role": "user", "content": "a", "x": {1, 2}}], chat_template="a")
