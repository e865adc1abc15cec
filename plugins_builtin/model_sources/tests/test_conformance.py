"""The hub's source passes the conformance kit with models that a hub on this machine has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# huggingface_hub reads its environment when it is imported, so that this is a process.
CHILD = """
from framework.contracts.model_source import ModelQuery
from framework.testing.conformance import Layer, check
from framework.testing.conformance.suites.model_source import ModelSourceSuite

class OfTheHub(ModelSourceSuite):
    slowness = 20.0

    def known(self, folder):
        return ModelQuery(name="org/name")

report = check(
    "model_source:hub", suite=OfTheHub, layers=[layer for layer in Layer if layer != Layer.IMPORT]
)
print(report.text(verbose=True))
raise SystemExit(bool(report.failures) or "no device" in str(report.counts()))
"""
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"weights"}


def test_models_of_a_hub_keep_every_promise(hub: Any, repo: Any, tmp_path: Path) -> None:
    hub.repos["org/name"] = repo({"main": FILES})
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    own = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=kept | own,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SRC-010 MUST passed" in done.stdout
