"""Schemas of the shapes that tools, extraction and APIs use, in families."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]


def obj(required: str = "", more: object = False, **properties: Any) -> Schema:
    """An object.  required: names, separated by spaces; "*" means all."""
    names = list(properties) if required == "*" else required.split()
    schema: Schema = {"type": "object", "properties": properties}
    if names:
        schema["required"] = names
    return {**schema, "additionalProperties": more} if more is not None else schema


def text(most: int | None = 12, least: int | None = None, **more: Any) -> Schema:
    bounds = {"maxLength": most, "minLength": least}
    return {"type": "string", **{k: v for k, v in bounds.items() if v is not None}, **more}


def whole(low: int | None = None, high: int | None = None) -> Schema:
    bounds = {"minimum": low, "maximum": high}
    return {"type": "integer", **{k: v for k, v in bounds.items() if v is not None}}


def rows(items: Any, low: int | None = None, high: int | None = 3, **more: Any) -> Schema:
    bounds = {"minItems": low, "maxItems": high}
    given = {k: v for k, v in bounds.items() if v is not None}
    return {"type": "array", "items": items, **given, **more}


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def const(value: Any) -> Schema:
    return {"const": value}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


BOOL: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
PATTERNS = (
    *("^[a-z]+$", "^[A-Z]{2}[0-9]{4}$", "[0-9]{3}", "^(red|green|blue)$", "^\\d{4}-\\d{2}$"),
    *("^#[0-9a-f]{6}$", "^[^@]+@[a-z]+[.]com$", "^$|^x+$", "^\\+?[0-9]{7,12}$", "^[\\w.-]{1,8}$"),
)
FORMATS = (
    "date",
    "time",
    "date-time",
    "uuid",
    "email",
    "ipv4",
    "ipv6",
    "hostname",
    "uri",
    "duration",
)


def texts() -> Iterator[Schema]:
    yield from (text(most, least) for most, least in [(1, 1), (5, 2), (9, None), (40, 3), (0, 0)])
    yield from ({"type": "string", "pattern": pattern} for pattern in PATTERNS)
    yield from ({"type": "string", "format": name} for name in FORMATS)
    yield from (obj("*", at={"type": "string", "format": name}) for name in FORMATS[:4])
    yield from (obj("*", code={"type": "string", "pattern": p}, n=INTEGER) for p in PATTERNS[:6])


def numbers() -> Iterator[Schema]:
    for low, high in [(0, 1), (-5, 5), (0, 100), (18, 65), (-1000, -10), (1, None), (None, 7)]:
        yield whole(low, high)
        yield obj("*", count=whole(low, high), name=text(6))
    yield from (NUMBER, INTEGER, {"type": "integer", "exclusiveMinimum": 0})
    yield {"type": "number", "minimum": 0, "maximum": 1}
    yield {"type": "number", "exclusiveMinimum": -2.5, "exclusiveMaximum": 2.5}
    yield from ({"type": "integer", "multipleOf": n} for n in (2, 5, 10))
    yield obj("*", lat={"type": "number", "minimum": -90, "maximum": 90}, lon=NUMBER)


def choices() -> Iterator[Schema]:
    yield one_of("a", "b", "c")
    yield one_of(1, 2.5, "x", None, True)
    yield one_of('with "quotes"', "back\\slash", "line\nbreak", "é and ☃")
    yield one_of({"k": 1}, [1, 2], "plain")
    yield from (const(value) for value in ("only", 42, None, True, {"a": [1]}))
    yield {"type": "string", "enum": ["low", "medium", "high"]}
    yield {"type": ["string", "null"], "maxLength": 5}
    yield {"type": ["integer", "boolean"]}
    yield obj("*", sentiment=one_of("positive", "neutral", "negative"), score=whole(1, 5))
    yield obj("*", answer=BOOL, because=nullable(text(20)))


def arrays() -> Iterator[Schema]:
    for items in (INTEGER, BOOL, text(4), one_of("x", "y"), {"type": "null"}, nullable(INTEGER)):
        yield from (rows(items, low, high) for low, high in [(0, 0), (1, 1), (2, 4), (None, 3)])
    yield rows(rows(INTEGER, 2, 2), 2, 2)
    yield {"type": "array", "prefixItems": [BOOL], "items": INTEGER, "minItems": 1, "maxItems": 3}
    yield {"type": "array", "prefixItems": [text(3), INTEGER], "items": False, "minItems": 2}
    yield rows(obj("*", id=INTEGER, tags=rows(text(3), 0, 2)), 1, 2)
    yield obj("*", matrix=rows(rows(NUMBER, 1, 2), 1, 2))


def objects() -> Iterator[Schema]:
    yield obj()
    yield obj("a", a=INTEGER, b=text(4), c=BOOL)
    yield obj("", a=INTEGER, b=text(4), c=BOOL)
    yield obj("c", a=INTEGER, b=text(4), c=BOOL)
    yield obj("*", None, a=INTEGER)
    yield obj("a", INTEGER, a=text(3))
    yield {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2}
    yield {
        "type": "object",
        "additionalProperties": text(3),
        "minProperties": 1,
        "maxProperties": 2,
    }
    yield {
        "type": "object",
        "patternProperties": {"^x_[a-z]+$": INTEGER},
        "additionalProperties": False,
    }
    yield obj("*", **{"with space": INTEGER, "é": BOOL, 'q"uote': text(2), "$ref": INTEGER})
    yield obj("*", a=obj("*", b=obj("*", c=obj("*", d=obj("*", e=INTEGER)))))
    yield obj("*", pattern=text(3), type=one_of("x"), properties=rows(INTEGER, 0, 1))
    for count in (2, 4, 8, 16):
        yield obj("*", **{f"field_{n}": (INTEGER, BOOL, text(3))[n % 3] for n in range(count)})
        yield obj("", **{f"field_{n}": (INTEGER, BOOL, text(3))[n % 3] for n in range(count)})


def unions() -> Iterator[Schema]:
    cat = obj("*", kind=const("cat"), lives=whole(1, 9))
    dog = obj("*", kind=const("dog"), name=text(6))
    yield {"anyOf": [cat, dog]}
    yield {"oneOf": [cat, dog]}
    yield {"oneOf": [INTEGER, text(4)]}
    yield {"oneOf": [INTEGER, NUMBER]}
    yield {"anyOf": [INTEGER, text(4), BOOL, {"type": "null"}]}
    yield obj("*", pet={"anyOf": [cat, dog]}, owner=text(5))
    yield rows({"anyOf": [cat, dog, {"type": "null"}]}, 1, 2)
    yield {"allOf": [obj("a", None, a=INTEGER), obj("b", None, b=BOOL)]}
    yield {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 9}]}
    yield {"type": "object", "properties": {"a": INTEGER, "b": BOOL}, "anyOf": [
        {"required": ["a"]}, {"required": ["b"]}], "additionalProperties": False}  # fmt: skip
    yield from (obj("*", value=nullable(one)) for one in (INTEGER, text(4), BOOL, rows(BOOL)))


def references() -> Iterator[Schema]:
    address = obj("*", street=text(8), zip=text(None, None, pattern="^[0-9]{5}$"))
    yield {
        **obj("*", home={"$ref": "#/$defs/a"}, work={"$ref": "#/$defs/a"}),
        "$defs": {"a": address},
    }
    yield {**rows({"$ref": "#/definitions/n"}, 1, 2), "definitions": {"n": whole(0, 9)}}
    tree = obj("value", value=whole(0, 9), next=nullable({"$ref": "#/$defs/t"}))
    yield {"$ref": "#/$defs/t", "$defs": {"t": tree}}
    yield {**obj("v", v=whole(0, 9), kids=rows({"$ref": "#"}, 0, 1))}
    term = {"anyOf": [whole(0, 9), {"$ref": "#/$defs/sum"}]}
    both = obj(
        "*", op=one_of("+", "-"), left={"$ref": "#/$defs/term"}, right={"$ref": "#/$defs/term"}
    )
    yield {"$ref": "#/$defs/sum", "$defs": {"term": term, "sum": both}}
    yield {**obj("*", **{k: {"$ref": "#/$defs/c/d"} for k in "xyz"}), "$defs": {"c": {"d": BOOL}}}


def tools() -> Iterator[Schema]:
    money = obj("*", amount={"type": "number", "minimum": 0}, currency=one_of("EUR", "USD", "JPY"))
    day = {"type": "string", "format": "date"}
    person = obj(
        "name", name=text(10), age=whole(0, 120), email={"type": "string", "format": "email"}
    )
    yield obj("city", city=text(10), unit=one_of("c", "f"), days=whole(1, 7))
    yield obj("*", origin=text(3, 3), destination=text(3, 3), date=day, passengers=whole(1, 9))
    yield obj(
        "query",
        query=text(20),
        limit=whole(1, 50),
        filters=rows(obj("*", key=text(5), op=one_of("=", "<", ">"), value=text(5)), 0, 2),
    )
    yield obj(
        "*",
        invoice=text(8),
        total=money,
        lines=rows(obj("*", item=text(8), price=money, count=whole(1, 99)), 1, 2),
    )
    yield obj("*", people=rows(person, 1, 2))
    yield obj("*", title=text(12), authors=rows(text(8), 1, 3), year=whole(1900, 2100), open=BOOL)
    yield obj("*", steps=rows(obj("*", explanation=text(15), output=text(8)), 1, 2), answer=text(8))
    yield obj(
        "*",
        entities=rows(
            obj(
                "*", span=rows(whole(0, 500), 2, 2), label=one_of("PER", "ORG", "LOC"), text=text(8)
            ),
            0,
            2,
        ),
    )
    yield obj("*", action=one_of("move", "stop"), args=obj("", x=whole(-9, 9), y=whole(-9, 9)))
    yield obj("*", sql=text(30), params=rows({"anyOf": [INTEGER, text(4), {"type": "null"}]}, 0, 3))
    yield obj("*", name=const("weather"), parameters=obj("*", city=text(8)))
    yield rows(
        {"anyOf": [obj("*", name=const(n), parameters=obj("*", x=INTEGER)) for n in ("f", "g")]},
        1,
        2,
    )
    yield obj(
        "*",
        event=text(8),
        when={"type": "string", "format": "date-time"},
        guests=rows(person, 0, 1),
    )
    yield obj(
        "*",
        method=one_of("GET", "POST"),
        path=text(None, None, pattern="^/[a-z/]*$"),
        status=whole(100, 599),
    )
    yield obj(
        "*",
        id={"type": "string", "format": "uuid"},
        parent=nullable({"type": "string", "format": "uuid"}),
    )
    yield obj(
        "*",
        rating=whole(1, 5),
        aspects=obj("*", food=whole(1, 5), service=whole(1, 5)),
        comment=nullable(text(15)),
    )
    yield obj(
        "*",
        config=obj("", debug=BOOL, level=one_of("info", "warn"), ports=rows(whole(1, 65535), 0, 2)),
    )
    yield obj("*", polygon=rows(rows({"type": "number"}, 2, 2), 3, 4))
    for index in range(16):
        yield obj(
            "*", task=const(f"task-{index}"), done=BOOL, **{f"score_{index}": whole(0, index)}
        )


def records() -> Iterator[Schema]:
    """Rows of tables, with columns of many types."""
    columns = {
        "id": whole(0, 999),
        "name": text(8),
        "active": BOOL,
        "ratio": NUMBER,
        "kind": one_of("a", "b"),
        "since": {"type": "string", "format": "date"},
        "note": nullable(text(6)),
        "tags": rows(text(3), 0, 2),
    }
    names = list(columns)
    for first in range(len(names)):
        picked = [names[(first + step) % len(names)] for step in range(3)]
        row = obj("*", **{name: columns[name] for name in picked})
        yield row
        yield obj("*", rows=rows(row, 1, 2), total=whole(0, 9))


def beyond() -> Iterator[Schema]:
    """Keywords that hardly any library serves: these are refused, or served right."""
    yield {"not": {"type": "string"}}
    yield {"type": "array", "items": INTEGER, "uniqueItems": True}
    yield {"type": "array", "contains": const(3), "maxItems": 3}
    yield {"if": {"properties": {"a": const(1)}}, "then": {"required": ["b"]}}
    yield {**obj("", a=INTEGER, b=INTEGER), "dependentRequired": {"a": ["b"]}}
    yield {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}
    yield {"type": "object", "unevaluatedProperties": False}
    yield {"type": "string", "format": "json-pointer"}
    yield {"type": "string", "pattern": "(?=.*[0-9])[a-z0-9]{4,8}"}
    yield {"$ref": "https://example.com/schema.json"}


FAMILIES = (texts, numbers, choices, arrays, objects, unions, references, tools, records, beyond)


def schemas() -> list[Schema]:
    """All of them."""
    return [schema for family in FAMILIES for schema in family()]
