"""What `import framework` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import framework


def test_every_public_name_exists_and_is_listed():
    for name in framework.__all__:
        assert getattr(framework, name).__name__ == name
    assert set(framework.__all__) <= set(dir(framework))
    assert framework.__version__.count(".") == 2


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchName"):
        framework.NoSuchName  # noqa: B018


def test_the_class_LLM_is_there_without_heavy_imports():
    heavy = "torch transformers typer rich pydantic fastapi"
    code = (
        "import sys; from framework import LLM;"
        f"print([name for name in '{heavy}'.split() if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
