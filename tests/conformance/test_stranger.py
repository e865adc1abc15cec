"""The way of a stranger, for real: a new environment with the core and a plugin made by `new`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "stranger"
PIP = ("-m", "pip", "--disable-pip-version-check", "-q")
# What goes wrong, the file that it is in, what stands there, what comes in its place.
MODULE = f"src/framework_{NAME}/__init__.py"
MANIFEST = f"src/framework_{NAME}/framework-plugin.toml"
KEYS = "        return requests.prompt"
BROKEN = {
    "ALL-004": (MANIFEST, ">=1.0,<2", ">=2.0,<3"),
    "ALL-010": (MODULE, "import numpy as np", "import numpie as np"),
    "ALL-022": (
        MODULE,
        "    def keys(",
        "    def __init__(self, options=None):\n        raise RuntimeError\n\n    def keys(",
    ),
    "POL-001": (MODULE, "requests.prompt + ", "requests.prompt[:-1] + "),
    "POL-005": (MODULE, KEYS, f"        requests.prompt[:] += 1\n{KEYS}"),
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def run(*command, cwd, good=True):
    """A command that sees nothing of this environment."""
    kept = ("PATH", "HOME", "TMPDIR", "LANG")
    outside = {key: value for key, value in os.environ.items() if key in kept or "PIP" in key}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=outside, capture_output=True, text=True, timeout=600
    )
    assert not good or done.returncode == 0, done.stdout + done.stderr
    return done


def wheel(folder: Path, target: Path) -> Path:
    """The wheel of a distribution, built from a copy: a build writes into its sources."""
    copy = target / "source"
    shutil.rmtree(copy, ignore_errors=True)
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "__pycache__")
    shutil.copytree(folder, copy, ignore=ignored)
    built = target / "wheels"
    shutil.rmtree(built, ignore_errors=True)
    options = ("--no-build-isolation", "--no-deps", "-w", built)
    run(sys.executable, *PIP, "wheel", *options, copy, cwd=target)
    (found,) = built.glob("*.whl")
    return found


class Stranger:
    """An environment of its own, with the core from its wheel, and a folder to work in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        venv.create(root / "venv", with_pip=True)
        self.bin = root / "venv" / "bin"
        core = wheel(ROOT, root)
        self.install("-c", ROOT / "constraints.txt", core, "pytest")

    def install(self, *what):
        run(self.bin / "python", *PIP, "install", *what, cwd=self.root)

    def framework(self, *arguments, good=True):
        return run(self.bin / "framework", *arguments, cwd=self.root, good=good)

    def put(self, folder: Path) -> None:
        """Build and install a plugin."""
        self.install("--no-deps", "--force-reinstall", wheel(folder, self.root))

    def conform(self, plugin: str):
        """(exit code, {clause: status}) of the command."""
        done = self.framework("plugins", "conform", plugin, "--json", "report.json", good=False)
        report = json.loads((self.root / "report.json").read_text())
        failed = {row["clause"]: row for row in report["clauses"] if row["status"] == "failed"}
        return done, failed


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Stranger(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def plugin(stranger):
    """The folder of a new plugin, installed."""
    told = stranger.framework("plugins", "new", "scheduling_policy", NAME, "--json").stdout
    folder = stranger.root / json.loads(told)["folder"]
    stranger.put(folder)
    return folder


def test_a_new_plugin_conforms(stranger, plugin):
    """It is found, the command passes, and so do its own tests."""
    assert NAME in stranger.framework("plugins", "list").stdout
    done, failed = stranger.conform(NAME)
    assert (done.returncode, failed) == (0, {}), done.stdout
    assert "conformant" in done.stdout
    run(stranger.bin / "python", "-m", "pytest", "-q", plugin / "tests", cwd=plugin)


@pytest.mark.parametrize("clause", BROKEN)
def test_a_broken_one_is_told_its_clause(stranger, plugin, clause):
    """Of each layer one fault; no clause of an earlier layer is blamed."""
    file, old, new = BROKEN[clause]
    text = (plugin / file).read_text()
    assert text.count(old) == 1
    (plugin / file).write_text(text.replace(old, new))
    try:
        stranger.put(plugin)
        done, failed = stranger.conform(NAME)
    finally:
        (plugin / file).write_text(text)
    assert done.returncode == 1
    assert next(iter(failed)) == clause, done.stdout
    assert f"{clause} MUST failed" in done.stdout
    assert f"--clause {clause}" in done.stdout


def test_a_plugin_whose_suite_needs_tensors_says_what_to_install(stranger):
    """There is no torch in this environment; nothing fails with a trace, nothing just passes."""
    told = stranger.framework("plugins", "new", "attention_backend", "far", "--json").stdout
    stranger.put(stranger.root / json.loads(told)["folder"])
    done, _ = stranger.conform("far")
    assert "clauses not checked here: no platform that it serves is ready" in done.stdout
    assert "pip install framework[default]" in done.stdout
