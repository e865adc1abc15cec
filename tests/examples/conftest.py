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


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The folder into which pip installed the examples."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    folders = []
    for example in EXAMPLES:
        # A copy, because building writes into the source folder.
        folders.append(str(shutil.copytree(example, source / example.name)))
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), *folders], check=True, timeout=290)
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
