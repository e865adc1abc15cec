"""Values of the keyword `format` as patterns, for libraries that know a format loosely or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from framework.contracts.json_schema import schemas_in

_DAY = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DATE = f"({_YEAR}-{_DAY}|{_LEAP}-02-29)"
_HOUR = "([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+-]{_HOUR})"
_LABEL = "[A-Za-z0-9](-?[A-Za-z0-9]){0,20}"
_ATOM = "[A-Za-z0-9_+-]{1,15}"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
PATTERNS: Mapping[str, str] = {
    "date": f"^{_DATE}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "email": rf"^{_ATOM}(\.{_ATOM}){{0,3}}@{_LABEL}(\.{_LABEL}){{0,3}}$",
    "hostname": rf"^{_LABEL}(\.{_LABEL}){{0,5}}$",
    "ipv4": rf"^({_BYTE}\.){{3}}{_BYTE}$",
    "time": f"^{_TIME}$",
    "uuid": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
"""All that they match is valid by RFC 3339, 5321, 1123, 2673 and 4122.  Left out are leap seconds,
the year 0, hyphens in pairs (IDNA reserves them), and names longer than any in use."""


def with_patterns(schema: Any, formats: Iterable[str]) -> Any:
    """The schema, changed in place: of these formats each is a pattern, beside which a pattern that
    stands there already counts too.  Schemas of outputs are meant: a validator ignores formats of
    values that are no texts, and patterns as well."""
    chosen = frozenset(formats)
    for one in list(schemas_in(schema)):
        name = one.get("format")
        if isinstance(name, str) and name in chosen and isinstance(one, dict):
            del one["format"]
            if "pattern" in one:
                one["allOf"] = [*one.get("allOf", ()), {"pattern": PATTERNS[name]}]
            else:
                one["pattern"] = PATTERNS[name]
    return schema
