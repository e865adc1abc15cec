"""Single values that a library would take though the schema does not, as it reads it otherwise."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from framework.contracts.structures import grammar_of
from framework.errors import InputError, PluginError, UnsupportedError
from framework.testing.conformance.suites.structured_examples import VOCABULARY
from tests.structured.test_schemas import INSTALLED, against
from tests.structured.walks import backend, compiled, walk

WHOLE = {"type": "integer"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def text(pattern: str) -> dict[str, str]:
    return {"type": "string", "pattern": pattern}


MISREAD: list[tuple[dict[str, Any], str]] = [
    *(({**TEXTS, "properties": {"a": WHOLE}}, f'{{"{name}":"x"}}') for name in ("a", r"\u0061")),
    *(({**TEXTS, "properties": {"é": WHOLE}}, f'{{"{name}":"x"}}') for name in ("é", r"\u00e9")),
    *(({**TEXTS, "properties": {'"': WHOLE}}, f'{{"{name}":"x"}}') for name in (r"\"", r"\u0022")),
    ({**TEXTS, "properties": {"a/b": WHOLE}}, r'{"a\/b":"x"}'),
    ({**TEXTS, "properties": {"aé": WHOLE, "aè": WHOLE}}, '{"aè":"x"}'),
    ({"type": "object", "patternProperties": {"^a": WHOLE}}, r'{"\u0061":"x"}'),
    ({"type": "object", "additionalProperties": WHOLE, "minProperties": 2}, '{"a":1,"a":2}'),
    ({**WHOLE, "minimum": 2**53 + 1}, str(2**53)),
    ({**WHOLE, "maximum": 2**53 + 3}, str(2**53 + 4)),
    ({"type": ["integer", "null"], "minimum": 10**19}, str(2**63 - 1)),
    ({"type": "number", "minimum": 2**53 + 1}, str(2**53)),
    ({"type": "number", "maximum": 2**53 + 3}, str(2**53 + 4)),
    (text("^[a-z&&[^b]]$"), '"f"'),
    (text("^[[:digit:]]$"), '"1"'),
    (text("^[^x[:alpha:]]$"), '"1"'),
    (text("^[^a-c&&c]$"), '"a"'),
    (text("^[^a-z--b]$"), '"b"'),
    (text("^[^ab~~ac]$"), '"a"'),
]


def takes(schema: object, value: str, name: str) -> bool:
    matcher = compiled(backend(name), schema).matcher()
    return all(map(matcher.accept, value.encode())) and matcher.accept(VOCABULARY.eos_ids[0])


@pytest.mark.filterwarnings("ignore:Possible (set|nested):FutureWarning")
@pytest.mark.parametrize("name", INSTALLED)
def test_what_the_schema_does_not_take_is_refused_or_never_comes(name):
    wrong = []
    for schema, value in MISREAD:
        assert against(schema, json.loads(value))
        try:
            if takes(schema, value, name):
                wrong.append((schema, value))
        except (InputError, UnsupportedError):
            continue
    assert wrong == []


NEXT_TO_IT: list[tuple[dict[str, Any], str]] = [
    ({**TEXTS, "properties": {"a": WHOLE}}, r'{"a":1,"b":"x\n\"\\"}'),
    ({"type": "object", "additionalProperties": WHOLE, "minProperties": 1}, '{"a":1}'),
    ({**WHOLE, "maximum": 2**63 - 1}, str(2**63 - 1)),
    ({**WHOLE, "minimum": 1 - 2**53}, str(1 - 2**53)),
    (text(r"^[\[\]&-][a-z&]\[--$"), '"[&[--"'),
    ({**WHOLE, "format": "int64"}, "7"),
    ({"type": ["number", "null"], "format": "double"}, "7.5"),
]


def test_what_stands_next_to_it_is_served():
    for schema, value in NEXT_TO_IT:
        assert not against(schema, json.loads(value))
        assert takes(schema, value, "llguidance"), schema


@pytest.mark.parametrize("name", INSTALLED)
def test_any_character_is_one(name):
    rng = random.Random(3)
    for regex in (".", ".{3}", "x.", "[^a]", "[^a-z]{2}", "(a|.b)c?"):
        grammar, own = grammar_of({"regex": regex}), backend(name)
        own.check(grammar)
        loaded = own.load(own.compile(grammar, VOCABULARY), VOCABULARY)
        for _ in range(8):
            found = walk(loaded, rng)
            assert found is not None
            assert re.fullmatch(regex, found.decode()), (regex, found)


@pytest.mark.parametrize("regex", ["^a", "a$", "^[0-9]{2}$", "(a|b$)"])
def test_where_anchors_are_not_served_it_is_told(regex):
    grammar = grammar_of({"regex": regex})
    backend("llguidance").check(grammar)
    with pytest.raises(UnsupportedError, match="matches without them"):
        backend("outlines_core").check(grammar)
    for same in (r"\^a\$", "[^a$]", "[$^]", "[]^]"):
        backend("outlines_core").check(grammar_of({"regex": same}))


@pytest.mark.parametrize("name", INSTALLED)
def test_a_choice_with_nul_is_refused_or_comes_whole(name):
    grammar, own = grammar_of({"choice": ["a\0b"]}), backend(name)
    try:
        own.check(grammar)
    except (InputError, UnsupportedError):
        return
    loaded = own.load(own.compile(grammar, VOCABULARY), VOCABULARY)
    assert walk(loaded, random.Random(1)) == b"a\0b"


NO_OUTPUT: list[dict[str, Any]] = [
    {"regex": r"[^\s\S]"},
    {"grammar": "start: start"},
    {"grammar": "start: /[^\\s\\S]/"},
    {"grammar": "root ::= root"},
    {"grammar": "start: <|im_end|>"},
    {"grammar": 'start: "a" <[257]>'},
    {"grammar": "start: <[^1-9]>"},
]


@pytest.mark.parametrize("asked", NO_OUTPUT, ids=str)
def test_what_has_no_output_or_names_tokens_is_refused_before_it_is_queued(asked):
    with pytest.raises((InputError, UnsupportedError)) as caught:
        backend("llguidance").check(grammar_of(asked))
    assert "NoExtensionBias" not in str(caught.value)


def test_and_texts_that_look_like_tokens_are_served():
    source = 'start: "<[1]>" /<[a]>/  // <[1]>'
    backend("llguidance").check(grammar_of({"grammar": source}))


def test_a_choice_may_be_long():
    texts = [f"w{number}" for number in range(3000)]
    grammar = grammar_of({"choice": texts})
    own = backend("llguidance")
    own.check(grammar)
    loaded = own.load(own.compile(grammar, VOCABULARY), VOCABULARY)
    for text in ("w2", "w2999"):
        matcher = loaded.matcher()
        assert all(map(matcher.accept, text.encode()))
        assert matcher.accept(VOCABULARY.eos_ids[0])
    matcher = loaded.matcher()
    assert not all(map(matcher.accept, b"w3000"))


def test_a_limit_of_the_library_is_no_answer():
    rules = " | ".join(f'"w{number}"' for number in range(3000))
    grammar = grammar_of({"grammar": f"start: {rules}"})
    own = backend("llguidance")
    matcher = own.load(own.compile(grammar, VOCABULARY), VOCABULARY).matcher()
    with pytest.raises(PluginError, match=r"gave up: .*3001 items"):
        matcher.accept(ord("w"))


NONE: list[dict[str, Any]] = [
    {"type": "string", "format": "date", "pattern": "a", "allOf": 5},
    {"type": "object", "minProperties": 3, "required": [{}]},
    {"type": "number", "minimum": 0.5, "maximum": 10**400},
    {"type": "integer", "minimum": -(10**400)},
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
]


@pytest.mark.parametrize("name", INSTALLED)
def test_what_is_no_schema_or_leads_nowhere_is_refused_in_words(name):
    for schema in NONE:
        with pytest.raises((InputError, UnsupportedError)) as caught:
            backend(name).check(grammar_of({"json": schema}))
        assert "NoExtensionBias" not in str(caught.value)
