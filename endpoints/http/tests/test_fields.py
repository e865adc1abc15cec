"""The models of request bodies, without a server."""

from __future__ import annotations

import itertools

import pytest
from pydantic import BaseModel, ValidationError

from framework_http import scoring, tokens
from framework_http.anthropic import fields as messages
from framework_http.openai import chat, completions, embeddings, response_fields

MODULES = (chat, completions, embeddings, messages, response_fields, scoring, tokens)
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
