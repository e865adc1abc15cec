"""From a grammar to the source that llguidance takes."""

from __future__ import annotations

import json
import re
from typing import Any

from llguidance import LLMatcher, StructTag, regex_to_lark
from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

from framework.contracts.json_formats import with_patterns
from framework.contracts.json_schema import schemas_in
from framework.contracts.structured_output import WHITE_SPACE, Grammar
from framework.contracts.structures import query_of
from framework.errors import InputError, UnsupportedError
from framework_llguidance.misread import check_read

_SPACE = rf"[\x20\x0A\x0D\x09]{{0,{WHITE_SPACE}}}"
_HEAD = '%llguidance {"no_forcing": true}\n'
"""Bytes that can only come next may come as any token: masks are exact."""
_JSON = {"whitespace_pattern": _SPACE, "lenient": False, "coerce_one_of": False}
_BY_NAME = {**_JSON, "json_allowed_escapes": 'nrbtf\\"'}
"""Where properties have names: a name written by numbers of characters would be another to it, and
any value its value."""
_NAMING = frozenset(("patternProperties", "properties"))
_LOOSE = ("date", "date-time", "email", "hostname", "time")
"""Formats of which it takes values that are none: 29 February of any year, leap seconds of any
minute, labels of any length and with reserved hyphens."""
_QUOTED = re.compile(r'"(\\.|[^"\\\n])*"|//[^\n]*|/(\\.|[^/\\\n])+/')
"""Of Lark its texts, comments and expressions."""
_UNSERVED = ("not supported", "unimplemented", "unknown format", "too complex", "too large")
"""What its messages say of a grammar that is right and beyond it."""
_NOTHING_FITS = "NoExtensionBias"


def checked(grammar: Grammar) -> str:
    """The source.  Raises InputError or UnsupportedError."""
    try:
        source = _source(grammar)
    except (InputError, UnsupportedError):
        raise
    except Exception as error:  # of a schema that is none
        text = f"{type(error).__name__}: {error}"[:400]
        raise InputError(text, parameter="structured_outputs") from None
    wrong, messages = LLMatcher.validate_grammar_with_warnings(source)
    if wrong:
        raise refusal(messages[0])
    return source


def refusal(message: str) -> InputError | UnsupportedError:
    """The error for what the library says of a grammar."""
    text = " ".join(message.partition("<state>")[0].split())[:400]
    if any(word in text.lower() for word in _UNSERVED):
        return UnsupportedError(text)
    if text == _NOTHING_FITS:
        text = "it has no output"
    return InputError(text, parameter="structured_outputs")


def _source(grammar: Grammar) -> str:
    match grammar.structure:
        case "json":
            return _HEAD + f"start: {_json(_strict(json.loads(grammar.text)))}"
        case "json_object":
            return _HEAD + f"start: {_json({'type': 'object'})}"
        case "regex":
            return _HEAD + f"start: /{regex_to_lark(grammar.text, '')}/"
        case "choice":
            texts = " | ".join(json.dumps(text) for text in json.loads(grammar.text))
            # As one terminal: of rules the library follows two thousand at a time.
            return _HEAD + f"start: CHOICE\nCHOICE: {texts}"
        case "grammar":
            return _with_head(_lark(grammar))
        case "structural_tag":
            return _with_head(_tags(json.loads(grammar.text)))
    raise UnsupportedError(f"no structure {grammar.structure!r} is known")


def _json(schema: Any) -> str:
    """A schema as a term of Lark.  True and False are schemas, too, which it does not know."""
    return "%json " + json.dumps(_with_options(schema), ensure_ascii=False)


def _with_options(schema: Any) -> dict[str, Any]:
    own = schema if isinstance(schema, dict) else {} if schema else {"enum": []}
    named = any(_NAMING & one.keys() for one in schemas_in(own))
    return {**own, "x-guidance": _BY_NAME if named else _JSON}


def _strict(schema: Any) -> Any:
    """Without what it would take too loosely."""
    check_read(schema)
    return with_patterns(schema, _LOOSE)


def _with_head(lark: str) -> str:
    """With our options in place of those that it brings."""
    # Only there does its line end: other ends of lines may stand in texts.
    lines = [line for line in lark.split("\n") if not line.lstrip().startswith("%llguidance")]
    return _HEAD + "\n".join(lines)


def _lark(grammar: Grammar) -> str:
    if query_of(grammar).dialect != "ebnf":
        if "<[" in _QUOTED.sub("", grammar.text):
            raise UnsupportedError(
                "tokens by their ids, <[...]>, are not supported: a grammar speaks of text"
            )
        return grammar.text
    try:
        return gbnf_to_lark(grammar.text)
    except Exception as error:  # it raises plain Exception for some faults
        name = "" if isinstance(error, GbnfToLarkError) else f"{type(error).__name__}: "
        raise InputError(f"{name}{error}"[:400], parameter="structured_outputs") from None


def _tags(asked: dict[str, Any]) -> str:
    """Free text with tags in it: where a trigger stands, one of its tags goes on."""
    try:
        triggers = [str(trigger) for trigger in asked["triggers"]]
        tags = [_tag(one, triggers) for one in asked["structures"]]
        return StructTag.to_grammar(tags, assume_special=False)
    except (AssertionError, KeyError, TypeError, ValueError, StopIteration) as error:
        raise InputError(
            f"the structural tag is invalid: {type(error).__name__} {error}"[:400],
            parameter="structured_outputs",
            expected='{"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}, where '
            "each begin starts with a trigger",
        ) from None


def _tag(one: dict[str, Any], triggers: list[str]) -> StructTag:
    begin = str(one["begin"])
    trigger = next(trigger for trigger in triggers if begin.startswith(trigger))
    schema = _with_options(_strict(one["schema"]))
    return StructTag(trigger=trigger, begin=begin, grammar=schema, end=str(one["end"]))
