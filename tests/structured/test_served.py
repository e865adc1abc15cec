"""Outputs are what their grammar says, whatever the model would write."""

from __future__ import annotations

import json
import re

import pytest

from framework import SamplingParams
from framework.errors import InputError, UnsupportedError

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def is_person(text):
    found = json.loads(text)
    return set(found) == {"name", "age", "tags"} and 0 <= found["age"] <= 120


STRUCTURES = [
    ({"json": PERSON}, is_person),
    ({"json": json.dumps(PERSON)}, is_person),
    ({"regex": r"[0-9]{3}-[0-9]{4}"}, re.compile(r"[0-9]{3}-[0-9]{4}").fullmatch),
    ({"choice": ["positive", 'négative "x"\n']}, ["positive", 'négative "x"\n'].__contains__),
    ({"grammar": 'root ::= "x" ("a" | "b"){1,5} "."'}, re.compile("x[ab]{1,5}[.]").fullmatch),
    ({"grammar": 'start: "x\u2028" /[ab]/'}, re.compile("x\u2028[ab]").fullmatch),
    ({"grammar": 'start: "x" /[ab]{1,5}/ "."'}, re.compile("x[ab]{1,5}[.]").fullmatch),
]


def named(value):
    return next(iter(value)) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("asked", "fits"), STRUCTURES, ids=named)
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_the_output_is_what_was_asked_for(random_model, asked, fits, temperature):
    sampling = SamplingParams(
        max_tokens=400, temperature=temperature, seed=5, structured_outputs=asked
    )
    [output] = random_model().generate(["Once"], sampling)
    assert output.outputs[0].finish_reason == "stop"
    assert fits(output.outputs[0].text), output.outputs[0].text


REFUSED = [
    ({"json": {"type": "nothing"}}, InputError),
    ({"json": "{"}, InputError),
    ({"json": {"not": {"type": "string"}}}, UnsupportedError),
    ({"regex": "["}, InputError),
    ({"regex": "a\0"}, InputError),
    ({"regex": "(?=a)b"}, UnsupportedError),
    ({"choice": []}, InputError),
    ({"choice": [""]}, InputError),
    ({"grammar": " "}, InputError),
    ({"grammar": "start: /[/"}, InputError),
    ({"grammar": "root ::= nothing"}, InputError),
    ({"grammar": "root ::= root"}, InputError),
    ({"structural_tag": {"structures": []}}, InputError),
]


@pytest.mark.parametrize(("asked", "error"), REFUSED, ids=str)
def test_what_cannot_be_served_is_refused_before_it_is_queued(random_model, asked, error):
    llm = random_model()
    with pytest.raises(error):
        llm.generate(["Once", "twice"], SamplingParams(structured_outputs=asked))
    [output] = llm.generate(["Once"], SamplingParams(max_tokens=2))
    assert output.outputs[0].finish_reason == "length"


def test_of_the_operators_choice_only_that_one_is_asked(random_model):
    llm = random_model(structured_output="outlines_core")
    [output] = llm.generate(["x"], SamplingParams(structured_outputs={"choice": ["yes", "no"]}))
    assert output.outputs[0].text in ("yes", "no")
    with pytest.raises(UnsupportedError, match="outlines_core") as refused:
        llm.generate(["x"], SamplingParams(structured_outputs={"json_object": True}))
    assert "llguidance" not in refused.value.message


def test_requests_with_and_without_grammars_share_steps(random_model):
    """Each gets what it would get alone."""
    llm = random_model()
    asked = [{"regex": "[0-9]{5}"}, None, {"choice": ["yes", "no"]}, None]
    params = [
        SamplingParams(max_tokens=20, temperature=1.2, seed=n, structured_outputs=one)
        for n, one in enumerate(asked)
    ]
    alone = [llm.generate(["Once"], own)[0].outputs[0] for own in params]
    together = [output.outputs[0] for output in llm.generate(["Once"] * 4, params)]
    assert [one.token_ids for one in together] == [one.token_ids for one in alone]
    assert re.fullmatch("[0-9]{5}", together[0].text)
    assert together[2].text in ("yes", "no")
