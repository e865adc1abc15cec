"""What README shows runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- runs(?:: (?P<name>\S+))? -->\n```python\n(?P<code>.*?)```", re.S)
BLOCKS = list(BLOCK.finditer((ROOT / "README.md").read_text()))


def test_readme_has_the_examples():
    assert [block["name"] for block in BLOCKS] == [None, "shortest.py"]
    lines = [line for line in BLOCKS[1]["code"].splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b["name"] or "api")
def test_the_example_runs(block, tmp_path):
    script = tmp_path / (block["name"] or "example.py")
    script.write_text(block["code"])
    found = subprocess.run(
        [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=250
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()
    if block["name"] is None:
        assert "Paris" in found.stdout


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
