"""Structural tags of the wrong shape are refused before a backend sees them, and none is bent."""

from __future__ import annotations

import json

import pytest

from framework.contracts.structures import grammar_of, schemas_of
from framework.errors import InputError
from tests.structured.test_schemas import INSTALLED
from tests.structured.walks import backend

TAG = {"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}
GOOD = {"structures": [TAG], "triggers": ["<n"]}


def test_a_good_one_is_kept_as_it_is():
    for asked in (GOOD, json.dumps(GOOD)):
        grammar = grammar_of({"structural_tag": asked})
        assert json.loads(grammar.text) == GOOD
        assert list(schemas_of(grammar)) == [{"type": "integer"}]


@pytest.mark.parametrize(
    "asked",
    [
        {"structures": [TAG]},
        {"structures": [], "triggers": ["<n"]},
        {"structures": 5, "triggers": ["<n"]},
        {"structures": [5], "triggers": ["<n"]},
        *({**GOOD, "triggers": triggers} for triggers in ("<n", [], [""], ["<n", None], ["<m"])),
        *(
            {**GOOD, "structures": [{**TAG, "begin": begin}]}
            for begin in (5, "", "n", "<n\0", None)
        ),
        *({**GOOD, "structures": [{**TAG, "end": end}]} for end in (5, None, "\0")),
        *({**GOOD, "structures": [{**TAG, "schema": schema}]} for schema in ("x", 5, None, [])),
    ],
    ids=str,
)
def test_another_shape_is_refused(asked):
    with pytest.raises(InputError, match="structural_tag") as refused:
        grammar_of({"structural_tag": asked})
    assert "each begin starts with a trigger" in str(refused.value)


@pytest.mark.parametrize("name", [name for name in INSTALLED if name != "outlines_core"])
def test_true_is_a_schema_there_too(name):
    asked = {**GOOD, "structures": [{**TAG, "schema": True}]}
    backend(name).check(grammar_of({"structural_tag": asked}))
