"""Schemas of real shape: what a backend serves validates, the rest it refuses."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec

import pytest

from framework import LLM, SamplingParams
from framework.contracts.json_schema import used_by
from framework.errors import InputError, UnsupportedError
from tests.structured.schemas import schemas

jsonschema = pytest.importorskip("jsonschema")
jsonschema_rs = pytest.importorskip("jsonschema_rs")
# "One" and "two" of everything that ends a part of JSON, so that a random model gets there.
CLOSING = ['"', '"}', '",', "}", "]", '"]', ","]


def served(llm, all_schemas):
    """Those that are taken; the others are refused with a reason, before they are queued."""
    found, reasons = [], []
    for schema in all_schemas:
        sampling = SamplingParams(structured_outputs={"json": schema})
        try:
            llm._engine.inputs.process("x", sampling)
        except (InputError, UnsupportedError) as error:
            reasons.append(error.message)
        else:
            found.append(schema)
    assert all("structured_outputs.json" in reason for reason in reasons)
    return found


def faults(schema, text):
    """What the schema has against a text."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return [str(error)]
    return against(schema, value)


def against(schema, value):
    """What it has against a value.  Of the two validators the first knows half of the formats; the
    second takes null for numbers beyond floats, and no text with half of a surrogate pair."""
    cls = jsonschema.Draft202012Validator
    both = [cls(schema, format_checker=cls.FORMAT_CHECKER)]
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        pass
    else:
        both.append(jsonschema_rs.Draft202012Validator(schema, validate_formats=True))
    return [error.message for validator in both for error in validator.iter_errors(value)]


def check_outputs(llm, name, model, all_schemas, temperature=1.5):
    taken = served(llm, all_schemas)
    tokenizer = llm.get_tokenizer()
    bias = {tokenizer.encode(text, add_special_tokens=False)[0]: 7.0 for text in CLOSING}
    params = [
        SamplingParams(
            max_tokens=200,
            temperature=temperature,
            seed=seed,
            logit_bias=bias,
            structured_outputs={"json": schema},
        )
        for seed, schema in enumerate(taken)
    ]
    ends: Counter[str] = Counter()
    flaws: list[str] = []
    for schema, output in zip(taken, llm.generate(["JSON: "] * len(taken), params), strict=True):
        [one] = output.outputs
        ends[one.finish_reason] += 1
        if one.finish_reason == "stop":
            flaws += [
                f"{schema} does not take {one.text}: {why}" for why in faults(schema, one.text)
            ]
    print(
        f"\n{name} with {model}: {len(taken)} of {len(all_schemas)} schemas served "
        f"({len(taken) / len(all_schemas):.0%}), {dict(ends)}"
    )
    assert not flaws, "\n".join(flaws)
    assert set(ends) <= {"stop", "length"}
    return len(taken) / len(all_schemas), ends["stop"] / max(len(taken), 1)


LEAST = {"llguidance": 0.85, "outlines_core": 0.4, "xgrammar": 0.7}
"""Share of the schemas that a backend serves."""
INSTALLED = [name for name in LEAST if find_spec(f"framework_{name}") is not None]


def test_there_are_enough_schemas():
    all_schemas = schemas()
    assert len(all_schemas) >= 200
    assert len({json.dumps(schema) for schema in all_schemas}) == len(all_schemas)
    for schema in all_schemas:
        jsonschema.Draft202012Validator.check_schema(schema)


def some_of(all_schemas):
    """The first ones, until each keyword and each format is used."""
    seen: set[str] = set()
    found = []
    for schema in all_schemas:
        used = used_by(schema)
        if not used.keywords | used.formats <= seen:
            found.append(schema)
            seen |= used.keywords | used.formats
    return found


@pytest.mark.parametrize("backend", ["llguidance", "outlines_core"])
def test_outputs_of_a_random_model_are_valid(random_model, backend):
    llm = random_model(structured_output=backend)
    _, finished = check_outputs(llm, backend, "random", some_of(schemas()))
    assert finished > 0.5


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED)
def test_outputs_of_a_random_model_are_valid_for_all_schemas(random_model, backend):
    llm = random_model(structured_output=backend)
    covered, finished = check_outputs(llm, backend, "random", schemas())
    assert covered >= LEAST[backend]
    assert finished > 0.7


@pytest.mark.long
@pytest.mark.parametrize("backend", INSTALLED)
def test_outputs_of_a_real_model_are_valid_for_all_schemas(backend):
    with LLM("demo", max_model_len=512, structured_output=backend) as llm:
        _, finished = check_outputs(llm, backend, "SmolLM2", schemas())
    assert finished > 0.7
