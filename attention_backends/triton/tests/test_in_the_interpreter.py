"""The kernels, in Triton's interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is for Linux only")


def interpret(*arguments: str) -> str:
    """Run tests of interpreted.py in a process of its own; what it printed."""
    file = Path(__file__).with_name("interpreted.py")
    command = [sys.executable, "-m", "pytest", str(file), "-p", "no:cacheprovider", *arguments]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@needs_triton
@pytest.mark.timeout(1200)
def test_it_conforms_and_models_answer_as_through_sdpa() -> None:
    assert re.search(r"\b3 passed\b", interpret())


@needs_triton
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_it_conforms_with_all_cases() -> None:
    assert re.search(r"\b1 passed\b", interpret("-m", "long", "--timeout", "3600"))
