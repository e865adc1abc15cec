"""Pieces of Markdown pages."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tools.surface import Field, Method

WIDTH = 92


def join(*parts: str) -> str:
    """Parts with an empty line between them; empty ones are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def code(text: str) -> str:
    """As code; "" stays empty."""
    return f"`{cell(text)}`" if text else ""


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def block(text: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


HINT = "A hint asks for nothing: whoever does not know the field is asked whatever its value."


def fields(found: Sequence[Field]) -> str:
    """A table of fields; of versioned ones also with `since` and the neutral value."""
    if not found:
        return ""
    versioned = any(field.since for field in found)
    head = ["field", "type", "since", "neutral", "default"] if versioned else ["field", "type"]
    head = head if versioned else [*head, "default"]
    rows = []
    for field in found:
        row = [code(field.name), code(field.type)]
        if versioned:
            since = f"{field.since or ''}{', a hint' if field.hint else ''}"
            row += [since, code(field.neutral or "")]
        rows.append([*row, code(field.default) if field.default is not None else "required"])
    told = [HINT] if any(field.hint for field in found) else []
    return join(table(head, rows), *told)


def method(found: Method) -> str:
    """Signature and docstring, as in the source."""
    start = f"{'async ' if found.asynchronous else ''}def {found.name}"
    head = f"{start}{found.signature}:"
    if len(head) > WIDTH:
        inner = "".join(f"    {argument},\n" for argument in found.arguments)
        result = f" -> {found.result}" if found.result else ""
        head = f"{start}(\n{inner}){result}:"
    mark = f"@{found.decorator}\n" if found.decorator else ""
    mark += "@abstractmethod\n" if found.required else ""
    if not found.doc:
        return block(f"{mark}{head} ...", "python")
    end = "\n" if "\n" in found.doc else ""
    doc = textwrap.indent(f'"""{found.doc}{end}"""', "    ")
    return block(f"{mark}{head}\n{doc}", "python")
