"""The core stays readable: short files, short functions."""

from __future__ import annotations

import ast
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
