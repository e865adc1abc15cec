"""Runs in an environment that holds the core alone (`make test-core`)."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "framework", *arguments], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "name", ["torch", "transformers", "tokenizers", "fastapi", "framework_torch"]
)
def test_this_environment_is_what_it_claims(name: str) -> None:
    assert find_spec(name) is None


@pytest.mark.parametrize("command", [("generate", "hello"), ("chat",)])
def test_the_bare_core_answers_with_the_line_to_install(command: tuple[str, ...]) -> None:
    found = run(*command)
    assert found.returncode == 1
    assert 'pip install "framework[default]"' in found.stderr
    assert "Traceback" not in found.stderr


def test_plugins_are_listed_without_any() -> None:
    found = run("plugins", "list")
    assert found.returncode == 0
    assert "fcfs" in found.stdout
