"""The examples, installed into a folder of their own as a third party's plugins would be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples_plugins/*/pyproject.toml"))


BUILD = """
import os, sys
from setuptools.build_meta import build_wheel

_, wheels, *folders = sys.argv  # which building changes
for folder in folders:
    os.chdir(folder)
    build_wheel(wheels)
"""
"""What pip does with each folder, in one process for all."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The folder into which pip installed the examples."""
    target, source, wheels = map(tmp_path_factory.mktemp, ("site", "source", "wheels"))
    # Copies, because building writes into the source folder.
    folders = [shutil.copytree(example, source / example.name) for example in EXAMPLES]
    python = {"check": True, "timeout": 290, "capture_output": True}
    subprocess.run([sys.executable, "-c", BUILD, wheels, *folders], **python)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", target, *wheels.glob("*.whl")], **python)
    return target


@pytest.fixture(scope="session")
def run(installed):
    """Runs a script, or a command line after `-m framework`, beside the installed examples."""

    def go(*arguments, script=None, env=None):
        command = ["-c", textwrap.dedent(script)] if script else ["-m", "framework", *arguments]
        found = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": str(installed), **(env or {})},
            capture_output=True,
            text=True,
            timeout=290,
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    return go
