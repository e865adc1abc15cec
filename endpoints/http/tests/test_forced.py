"""Calls that a request demands, and forms of answers: what they become, how they are read."""

from __future__ import annotations

import json

import pytest

from framework.contracts.sampling import SamplingParams
from framework.contracts.tool_parser import CallArguments, CallBegins, Text
from framework.errors import InputError, UnsupportedError
from framework_http.openai.forced import CallList, NamedCall, schema_of_calls
from framework_http.openai.structures import structure_of_format, structured
from framework_http.openai.tools import Calls, calls_of, check_functions, choice_of

TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": {"properties": {}}}},
    {"type": "function", "function": {"name": "time"}},
]
CALLS = [
    {"name": "weather", "parameters": {"city": 'a "}]{ b', "in": {"x": [1, {}]}}},
    {"name": "time", "parameters": {}},
]


class NoParser:
    tool_parser = None


def read(stream, text, size):
    """Calls by index, and text, of all events."""
    events = [e for at in range(0, len(text), size) for e in stream.push(text[at : at + size])]
    names, arguments, free = {}, {}, ""
    for event in [*events, *stream.finish()]:
        match event:
            case CallBegins(index, name):
                names[index] = name
            case CallArguments(index, piece):
                arguments[index] = arguments.get(index, "") + piece
            case Text(piece):
                free += piece
    return [(names[n], arguments.get(n, "")) for n in sorted(names)], free


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_calls_is_read_in_any_pieces(size, indent):
    found, free = read(CallList(), json.dumps(CALLS, indent=indent), size)
    assert [(name, json.loads(text)) for name, text in found] == [
        (call["name"], call["parameters"]) for call in CALLS
    ]
    assert not free


def test_a_list_that_breaks_off_gives_what_there_is():
    text = json.dumps(CALLS)
    # The beginning of a call that is read is no text beside it.
    assert read(CallList(), text[:40], 3) == ([("weather", text[35:40])], "")
    assert read(CallList(), '[{"na', 1) == ([], '{"na')


@pytest.mark.parametrize("size", [1, 100])
def test_a_named_call_is_all_arguments(size):
    assert read(NamedCall("f"), '{"a": 1}', size) == ([("f", '{"a": 1}')], "")
    assert read(NamedCall("f"), "", 1) == ([("f", "")], "")


def test_references_within_a_schema_move_with_it():
    tree = {"$defs": {"n": {"$ref": "#"}}, "properties": {"kids": {"$ref": "#/$defs/n"}}}
    tool = {"type": "function", "function": {"name": "t", "parameters": tree}}
    schema = schema_of_calls([TOOLS[0], tool], one_call=True)
    place = "#/items/anyOf/1/properties/parameters"
    moved = schema["items"]["anyOf"][1]["properties"]["parameters"]
    assert moved["properties"]["kids"]["$ref"] == f"{place}/$defs/n"
    assert moved["$defs"]["n"]["$ref"] == place
    assert schema["maxItems"] == 1
    assert tree["properties"]["kids"]["$ref"] == "#/$defs/n"


@pytest.mark.parametrize("kind", ["string", ["object", "null"], None])
def test_arguments_that_are_no_object_are_refused(kind):
    """They could be demanded, and nobody could read them."""
    function = {"name": "f", "parameters": {"type": kind}}
    with pytest.raises(InputError, match=r"tools\[0\].*\n.*object"):
        check_functions([{"type": "function", "function": function}])
    for sound in ({}, None, {"type": "object"}, {"properties": {}}):
        check_functions([{"type": "function", "function": {"name": "f", "parameters": sound}}])


def test_the_choice_says_which_calls_there_may_be():
    assert calls_of(NoParser, TOOLS, "none") == Calls()
    named = calls_of(NoParser, TOOLS, *choice_of({"function": {"name": "time"}})[:1], name="time")
    assert named.tools == TOOLS[1:]
    assert named.structure == {"json": {"type": "object"}}
    forced = calls_of(NoParser, TOOLS, *choice_of("required")[:1])
    assert forced.structure is not None
    assert not forced.marked
    with pytest.raises(UnsupportedError, match="tool parser"):
        calls_of(NoParser, TOOLS, "auto")
    for choice, name in [("named", "nothing"), ("maybe", None), choice_of({"type": "x"})]:
        with pytest.raises(InputError, match="tool_choice"):
            calls_of(NoParser, TOOLS, choice, name=name)
    for given in ("required", {"name": "time"}):
        choice, name = choice_of(given)
        with pytest.raises(InputError, match="tool_choice demands a call, and there are no tools"):
            calls_of(NoParser, [], choice, name=name)


def test_a_choice_of_something_else_than_a_function_is_not_one_of_a_function():
    for given in (
        {"type": "custom", "name": "time"},
        {"type": "mcp", "function": {"name": "time"}},
    ):
        choice, name = choice_of(given)
        with pytest.raises(InputError, match="tool_choice is invalid"):
            calls_of(NoParser, TOOLS, choice, name=name)
    assert choice_of({"type": "function", "name": "time"}) == ("named", "time")


def test_formats_become_structures():
    schema = {"type": "object"}
    whole = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    flat = {"type": "json_schema", "name": "x", "schema": schema}
    assert structure_of_format(None, "f") is None
    assert structure_of_format({"type": "text"}, "f") is None
    assert structure_of_format({"type": "json_object"}, "f") == {"json_object": True}
    assert structure_of_format(whole, "f") == structure_of_format(flat, "f") == {"json": schema}
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "schema": 1}):
        with pytest.raises(InputError, match="f is invalid"):
            structure_of_format(wrong, "f")


def test_only_one_field_asks_for_a_form():
    form = {"json_object": True}
    assert structured(SamplingParams(), None, "f").structured_outputs is None
    assert structured(SamplingParams(), form, "f").structured_outputs == form
    with pytest.raises(InputError, match="structured_outputs is invalid"):
        structured(SamplingParams(structured_outputs={"regex": "a"}), form, "f")
    with pytest.raises(InputError, match="f is invalid"):
        structured(SamplingParams(), form, "f", Calls(TOOLS, form, CallList))
    with pytest.raises(UnsupportedError, match="beside tools"):
        structured(SamplingParams(), form, "f", Calls(TOOLS))


def test_parameters_that_are_nested_too_deeply_to_be_demanded_are_the_clients_fault():
    """A body may be read that cannot be rewritten."""
    parameters = {}
    for _ in range(5000):
        parameters = {"not": parameters}
    tools = [{"type": "function", "function": {"name": "deep", "parameters": parameters}}]
    with pytest.raises(InputError, match="nested") as caught:
        calls_of(NoParser(), tools, "required")
    assert caught.value.parameter == "tools"
