"""What README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- runs(?:: (?P<name>\S+))? -->\n```python\n(?P<code>.*?)```", re.S)
BLOCKS = list(BLOCK.finditer((ROOT / "README.md").read_text()))


def test_readme_has_the_examples():
    assert [block["name"] for block in BLOCKS] == [None, "shortest.py"]
    lines = [line for line in BLOCKS[1]["code"].splitlines() if line.strip()]
    assert len(lines) <= 15


RUN = """
import runpy
for name in {names}:
    runpy.run_path(name, run_name="__main__")
    print("=====")
"""


def test_the_examples_run(tmp_path):
    """One after the other in one process: what takes time is to import the libraries."""
    for block in BLOCKS:
        (tmp_path / (block["name"] or "example.py")).write_text(block["code"])
    names = [block["name"] or "example.py" for block in BLOCKS]
    found = subprocess.run(
        [sys.executable, "-c", RUN.format(names=names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert found.returncode == 0, found.stderr
    api, shortest, _ = found.stdout.split("=====")
    assert "Paris" in api
    assert shortest.strip()


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
