"""The core stays readable: short files, short functions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import framework.core

ROOT = Path(framework.core.__file__).parent
FILE, FUNCTION = 300, 60


def test_no_file_of_the_core_is_long_and_no_function():
    paths = sorted(ROOT.rglob("*.py"))
    assert len(paths) > 30
    for path in paths:
        text = path.read_text()
        assert len(text.splitlines()) <= FILE, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node, *node.decorator_list], key=lambda part: part.lineno).lineno
                assert node.end_lineno - first < FUNCTION, f"{path}: {node.name}"


FAMILIES = re.compile(r"grammar|structured|speculat|lora|peft|n-?gram|medusa|eagle", re.IGNORECASE)
"""Structured output, speculation and adapters by their names; that drafts are verified, tokens
masked and load ids hashed are things of the core's own."""


def test_the_core_and_what_its_tests_stand_on_name_no_family_of_plugins():
    paths = [*ROOT.rglob("*.py"), Path(__file__).with_name("conftest.py")]
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not FAMILIES.search(line), f"{path}:{number}: {line.strip()}"
