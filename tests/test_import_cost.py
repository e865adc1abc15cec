"""What importing the core costs, and what it must not import."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

import pytest

BARE = "import pydantic, numpy, pluggy"
CORE = "import framework"
HEAVY = {"torch", "transformers", "triton", "fastapi"}
RUNS, ATTEMPTS, LIMIT = 7, 3, 1.3


def imported(code: str) -> set[str]:
    """Top-level names of the modules that a fresh process has after `code`."""
    code += "\nimport sys; print('MODULES', *{name.partition('.')[0] for name in sys.modules})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.splitlines()[-1].split()[1:])


def seconds(code: str) -> float:
    """CPU time of a process that runs `code`: others may use the machine, too."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = spent()
    subprocess.run([sys.executable, "-c", code], check=True)
    return spent() - before


@pytest.mark.parametrize(
    "code",
    [
        CORE,
        "import framework.plugins.registry, framework.plugins.selection, framework.plugins.hooks",
        "import sys; sys.argv[1:] = ['plugins', 'list']\n"
        "from framework.cli import main\ntry: main()\nexcept SystemExit: pass",
    ],
    ids=["import framework", "the plugin system", "plugins list"],
)
def test_nothing_heavy_is_imported(code):
    """Neither the import nor a list of the plugins touches torch and its like."""
    modules = imported(code)
    assert "framework" in modules
    assert not modules & HEAVY


def test_listing_imports_no_plugin():
    """`plugins list` reads metadata only: no first-party plugin is imported."""
    modules = imported(
        "import sys; sys.argv[1:] = ['plugins', 'list']\n"
        "from framework.cli import main\ntry: main()\nexcept SystemExit: pass"
    )
    assert not {name for name in modules if name.startswith("framework_")}


def test_import_costs_little_more_than_its_dependencies():
    """`import framework` takes at most 1.3 times its three largest light dependencies.

    Runs are interleaved, so that caches and clocks are alike for both; medians are compared.
    """
    ratios = []
    seconds(BARE), seconds(CORE)  # files into the page cache
    for _ in range(ATTEMPTS):
        pairs = [(seconds(CORE), seconds(BARE)) for _ in range(RUNS)]
        core, bare = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratios.append(core / bare)
        if ratios[-1] <= LIMIT:
            break
    assert min(ratios) <= LIMIT, ratios
