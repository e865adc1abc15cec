"""For which CUDA torch was built, without importing it."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path


def torch_folder() -> Path | None:
    """Where torch is installed; None where it is not."""
    spec = importlib.util.find_spec("torch")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def cuda_of(folder: Path) -> str | None:
    """`torch.version.cuda` ("12.8"), from torch's version.py; None for a build without CUDA."""
    try:
        tree = ast.parse((folder / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        named = any(isinstance(target, ast.Name) and target.id == "cuda" for target in targets)
        value = getattr(node, "value", None)
        if named and isinstance(value, ast.Constant):
            found = re.match(r"[0-9]+(\.[0-9]+)*", str(value.value))
            return found[0] if found else None
    return None
