"""Values of each format are values of it, whoever looks."""

from __future__ import annotations

import json
import re

import pytest

from framework.contracts.json_formats import PATTERNS, with_patterns
from framework.errors import InputError, UnsupportedError
from framework.testing.conformance.suites.structured_examples import VOCABULARY
from framework.testing.conformance.suites.structured_parts import allowed, takes
from tests.structured.test_schemas import INSTALLED, against
from tests.structured.walks import backend, compiled, values

LABEL = "b" * 64
GOOD = {
    "date": ("2024-02-29", "2000-02-29", "1999-12-31", "2024-04-30", "0400-02-29", "0001-01-01"),
    "date-time": ("2024-02-29T23:59:59Z", "1985-04-12T10:15:30.52+01:00"),
    "duration": ("P1Y", "PT1H1M", "P3W"),
    "email": ("a@b.c", "first.last+tag@mail.example.com", "x_y-z@a-b.c"),
    "hostname": ("a", "a-b.example.com", "X1.y2", "1a.com"),
    "ipv4": ("1.2.3.4", "0.0.0.0", "255.199.249.10"),
    "ipv6": ("::", "::1", "1:2:3:4:5:6:7:8", "fe80::1"),
    "time": ("00:00:00Z", "23:59:59.123-23:59"),
    "uri": ("http://a/%41?b#c", "mailto:a@b.c"),
    "uuid": ("12345678-1234-1234-1234-123456789aBc",),
}
BAD = {
    "date": ("2023-02-29", "1900-02-29", "2024-02-30", "2024-06-31", "0000-01-01", "2024-1-1"),
    "date-time": ("2023-02-29T00:00:00Z", "2024-01-01T12:00:00", "2024-01-01T12:00:60Z"),
    "duration": ("P", "PT", "P1Y1D", "P1W1D"),
    "email": (f"a@{LABEL}.c", f"{LABEL}x@b.c", "a@xn--a.b", "a..b@c.d", "a@-b.c", "a@b."),
    "hostname": (LABEL, "xn--a", "ab--c", "-a", "a-", "a..b", "a_b"),
    "ipv4": ("01.2.3.4", "078.62.92.6", "256.1.1.1", "1.2.3"),
    "ipv6": ("1::2::3", "1:2:3:4:5:6:7:8:9", "12345::"),
    "time": ("12:00:60Z", "24:00:00Z", "12:00:00", "12:00:00+24:00", "12:00:00.Z"),
    "uri": ("a b", "http://%zz", "http://a b"),
    "uuid": ("12345678123412341234123456789abc", "{12345678-1234-1234-1234-123456789abc}"),
}


def test_the_validators_see_it_as_the_lists_do():
    for form in GOOD:
        schema = {"type": "string", "format": form}
        assert not [text for text in GOOD[form] if against(schema, text)]
        assert not [text for text in BAD[form] if not against(schema, text)]


@pytest.mark.parametrize("form", PATTERNS)
def test_a_pattern_takes_values_of_its_format_alone(form):
    pattern = re.compile(PATTERNS[form])
    assert all(pattern.fullmatch(text) for text in GOOD[form])
    assert not any(pattern.fullmatch(text) for text in BAD[form])


@pytest.mark.parametrize("name", INSTALLED)
def test_a_backend_takes_values_of_a_format_alone(name):
    own = backend(name)
    for form in sorted(own.coverage.formats):
        schema = {"type": "string", "format": form}
        grammar = compiled(own, schema)
        for text, right in [(t, True) for t in GOOD[form]] + [(t, False) for t in BAD[form]]:
            matcher = grammar.matcher()
            whole = takes(matcher, f'"{text}"') == len(text) + 2
            ends = whole and bool(allowed(matcher).intersection(VOCABULARY.eos_ids))
            assert ends == right, (form, text)
        assert not [value for value in values(grammar, 30) if against(schema, value)]


def test_a_pattern_that_stands_there_counts_too():
    one = {"type": "object", "properties": {"a": {"format": "date", "pattern": "^2"}}}
    [changed] = with_patterns(one, ["date"])["properties"].values()
    assert changed == {"pattern": "^2", "allOf": [{"pattern": PATTERNS["date"]}]}
    assert with_patterns({"format": "uuid"}, ["date"]) == {"format": "uuid"}


@pytest.mark.parametrize("name", INSTALLED)
def test_formats_beside_patterns_are_kept_or_refused(name):
    schema = {"type": "string", "format": "date", "pattern": "^20[0-9]{2}-02-29$"}
    try:
        found = list(values(compiled(backend(name), schema), 10))
    except (InputError, UnsupportedError):
        return
    assert found
    assert not [value for value in found if against(schema, value)], json.dumps(found)
