"""Grammars with texts that fit and texts that do not, and a small vocabulary."""

from __future__ import annotations

import json
from dataclasses import dataclass

from framework.contracts.structured_output import Grammar, Vocabulary

EOS, OTHER_EOS, SPECIAL = 256, 257, 258
_WORDS = (
    *('{"', '":', '": ', '"}', ', "', "12", "ab", "abx", "yes", "no", "no,", "<n>", "</n>"),
    *("é", "bc", "cz", "[]", " \n", "  ", "    ", "true", "null", "-1"),
)
VOCABULARY = Vocabulary(
    tokens=(
        *(bytes([value]) for value in range(256)),
        *(b"", b"", b""),
        *(word.encode() for word in _WORDS),
        *(b"", b"", b""),
    ),
    eos_ids=(EOS, OTHER_EOS),
)
"""Single bytes, two ends of a sequence, a special token, words, and ids that stand for nothing."""


@dataclass(frozen=True, slots=True)
class Example:
    """fits: whole outputs.  fails: texts that no output is or begins with."""

    grammar: Grammar
    fits: tuple[str, ...]
    fails: tuple[str, ...]


def _json(schema: object) -> Grammar:
    return Grammar("json", json.dumps(schema))


_PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
_MORE = {
    "type": "object",
    "properties": {
        "k": {"enum": ["x", 'é"', 5, None]},
        "l": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["k", "l"],
    "additionalProperties": False,
}
_TREE = {
    "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
    "$ref": "#/$defs/n",
}
_TAGS = {
    "structures": [
        {"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"},
        {"begin": "<nb>", "schema": {"type": "boolean"}, "end": "</nb>"},
    ],
    "triggers": ["<n"],
}
EXAMPLES = (
    Example(
        _json(_PAIR),
        ('{"a":1,"b":"x"}', '{"a": -12, "b": "no, é"}', '{"a": 0, "b": ""}'),
        ('{"a":1}', '{"a":"1"', '{"a":1,"b":2', '{"c"', "[", "12", '{"a":1,"b":"x"} {'),
    ),
    Example(
        _json(_MORE),
        ('{"k":"x","l":[true]}', '{"k": "é\\"", "l": [true, false]}', '{"k":null,"l":[false]}'),
        ('{"k":"y"', '{"k":5,"l":[]', '{"k":5,"l":[true,true,'),
    ),
    Example(_json(_TREE), ("[]", "[[],[[]]]"), ("[1", "{}", "[]]")),
    Example(
        Grammar("json_object", ""),
        ("{}", '{"k":[1,null,{"é":"x"}]}', '{"a": 1.5e3, "b": true}'),
        ("[", "1", '{"a"}', "{}{", '{"a":01'),
    ),
    Example(
        Grammar("regex", "[a-c]+x?[0-9]{2}"),
        ("abx12", "c07", "bcab00"),
        ("x12", "ab1x", "a123", "A"),
    ),
    Example(Grammar("regex", "a/b|é+"), ("a/b", "éé"), ("ab", "aé")),
    Example(
        Grammar("choice", json.dumps(["yes", "no", "no, 12", 'é"\n'])),
        ("yes", "no", "no, 12", 'é"\n'),
        ("yesno", "no,12", "é\n", "12"),
    ),
    Example(
        Grammar("grammar", 'root ::= "a" item+ "z"\nitem ::= "b" | "c"'),
        ("abz", "abcbz"),
        ("az", "abd", "abzz"),
    ),
    Example(
        Grammar("grammar", 'start: "a" item+ "z"\nitem: "b" | "c"'),
        ("abz", "abcbz"),
        ("az", "abd", "abzz"),
    ),
    Example(
        Grammar("structural_tag", json.dumps(_TAGS)),
        ("no tag", "a <n>12</n> b", "<n>-1</n><nb>true</nb>"),
        ("<n>x", "<nb>12", "<nc", "a<n>1</x"),
    ),
)
BROKEN = (
    _json({"type": "nothing"}),
    _json({"$ref": "#/$defs/gone"}),
    Grammar("regex", "["),
    Grammar("regex", "a)"),
    Grammar("grammar", "root ::= gone"),
    Grammar("grammar", "start: gone"),
    Grammar("structural_tag", '{"structures": [{"begin": "x"}], "triggers": ["y"]}'),
)
"""No grammars; a choice that `grammar_of` lets through cannot be wrong."""
