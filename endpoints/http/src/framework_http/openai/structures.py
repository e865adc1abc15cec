"""What a request says of the form of an answer, as structured output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import InputError, UnsupportedError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework_http.openai.tools import Calls

Structure = dict[str, Any]
_KINDS = "text, json_object, json_schema or structural_tag"


def structure_of_format(given: Mapping[str, Any] | None, name: str) -> Structure | None:
    """Of a `response_format`, or of a `text.format`, whose schema stands at its top; None: free
    text.  Raises InputError for what is none.  name: of the field."""
    kind = (given or {}).get("type", "text")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return {"json_object": True}
    if kind == "json_schema":
        inner = given.get("json_schema", given)
        schema = inner.get("schema") if isinstance(inner, Mapping) else None
        if isinstance(schema, Mapping | bool):
            return {"json": schema}
        expected = '{"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}}'
        raise _bad(name, expected, given)
    if kind == "structural_tag":
        return {"structural_tag": dict(given)}
    raise _bad(name, f"a type of {_KINDS}", kind)


def structured(
    sampling: SamplingParams, form: Structure | None, name: str, calls: Calls | None = None
) -> SamplingParams:
    """With the form that was asked for in whichever field: `structured_outputs`, which `sampling`
    holds already, the field `name`, or a tool that has to be called.

    Raises InputError where several ask for one, UnsupportedError for a form beside tools that may
    be called or not: an answer in that form could call none.
    """
    asked = {
        "structured_outputs": sampling.structured_outputs,
        name: form,
        "tool_choice": calls.structure if calls is not None else None,
    }
    found = {field: value for field, value in asked.items() if value is not None}
    if len(found) > 1:
        fields = " and ".join(found)
        raise _bad(fields.split(" ")[0], "one of these fields alone", fields)
    if not found:
        return sampling
    [(field, structure)] = found.items()
    if calls is not None and calls.tools and calls.structure is None:
        raise UnsupportedError(
            f"{field} beside tools is not supported: an answer in that form can call none",
            expected=f'no {field}, or tool_choice="none"',
            found=f"{len(calls.tools)} tools",
        )
    return sampling.replace(structured_outputs=structure)


def _bad(name: str, expected: str, found: object) -> InputError:
    return InputError(f"{name} is invalid", parameter=name, expected=expected, found=shown(found))
