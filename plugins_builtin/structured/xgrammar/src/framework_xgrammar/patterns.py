"""Patterns of texts in JSON, where XGrammar takes them for something else."""

from __future__ import annotations

import re
from typing import Any

from framework.contracts.json_schema import schemas_in
from framework.errors import UnsupportedError

_PARTS = re.compile(r"\\(u\{[0-9a-fA-F]+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|c.|.)|(.)", re.DOTALL)
_CONTROLS = frozenset("0abcefnrtv")
"""After a backslash, control characters or a word boundary, none of which it serves in JSON."""
_OPTIONAL = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|(\)\?\??)", re.DOTALL)
"""(an escape or a class), (the end of a group that may be left out)."""


def check_pattern(pattern: str) -> None:
    """Raises UnsupportedError where a character is named that JSON writes with a backslash: the
    library writes the character itself."""
    for escaped, plain in _PARTS.findall(pattern):
        if _is_escaped_in_json(escaped, plain):
            found = plain or f"\\{escaped}"
            raise UnsupportedError(
                f"a pattern with {found!r}, which JSON writes with a backslash, is not supported"
            )


def _is_escaped_in_json(escaped: str, plain: str) -> bool:
    if len(escaped) > 1 and escaped[0] in "xu":
        plain = chr(min(int(escaped[1:].strip("{}"), 16), 0x10FFFF))
    elif escaped:
        return escaped[0] in _CONTROLS or escaped in '"\\'
    return plain < " " or plain in '"\\'


def rewritten(schema: Any) -> Any:
    """The schema, changed in place: "(...)?" as "(...){0,1}".  Of such a group that begins or ends
    with something repeated the library takes a part for the whole."""
    for one in list(schemas_in(schema)):
        if isinstance(one.get("pattern"), str) and isinstance(one, dict):
            one["pattern"] = _OPTIONAL.sub(lambda m: m[1] or "){0,1}", one["pattern"])
    return schema
