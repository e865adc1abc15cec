"""The models of request bodies, without a server."""

from __future__ import annotations

import itertools

import pytest
from pydantic import BaseModel, ValidationError

from framework_http import scoring, tokens
from framework_http.anthropic import fields as messages
from framework_http.openai import chat, classes, completions, embeddings, response_fields
from framework_http.openai.fields import MOST_TOOLS

MODULES = (chat, classes, completions, embeddings, messages, response_fields, scoring, tokens)
MODELS = {
    model.__name__: model
    for module in MODULES
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and model is not BaseModel
}
ODD = (None, 1, "a", [], {}, [None], [1], ["a"])
MOST = 16
"""Errors of a body, whatever it holds: some for each form that a field may have, and for fields
that are not there."""


def errors_of(model, body):
    try:
        model.model_validate(body)
    except ValidationError as error:
        return error.error_count()
    return 0


@pytest.mark.parametrize("name", MODELS)
def test_of_millions_of_wrong_items_the_first_is_told(name):
    """Each error takes a kilobyte and microseconds, and others wait meanwhile."""
    model = MODELS[name]
    for field, odd in itertools.product(model.model_fields, ODD):
        for value in ([odd] * 300, [[odd] * 300], {str(n): odd for n in range(300)}):
            assert errors_of(model, {field: value}) <= MOST, (field, odd)


WITH_TOOLS = {
    "ChatFields": {"messages": [{"role": "user", "content": "a"}]},
    "CountFields": {"messages": [{"role": "user", "content": "a"}]},
    "MessageFields": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
    "ResponseFields": {"input": "a"},
    "TokenizeFields": {"messages": [{"role": "user", "content": "a"}]},
}


def test_every_request_that_takes_tools_is_looked_at_here():
    assert {name for name, model in MODELS.items() if "tools" in model.model_fields} == set(
        WITH_TOOLS
    )


@pytest.mark.parametrize("name", WITH_TOOLS)
def test_more_tools_than_can_be_looked_at_in_a_moment_are_refused(name):
    tool = {"type": "function", "name": "f", "function": {"name": "f"}, "input_schema": {}}
    body = {"model": "echo", **WITH_TOOLS[name]}
    MODELS[name].model_validate({**body, "tools": [tool] * MOST_TOOLS})
    with pytest.raises(ValidationError, match=f"at most {MOST_TOOLS}") as caught:
        MODELS[name].model_validate({**body, "tools": [tool] * 300_000})
    assert [fault["loc"] for fault in caught.value.errors()] == [("tools",)]
