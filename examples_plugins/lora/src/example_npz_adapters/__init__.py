"""A format of LoRA adapters: adapter.npz, an archive of NumPy's in a folder of its own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.lora import Adapter, AdapterFormat, AdapterQuery, LowRank
from framework.errors import ModelError

FILE = "adapter.npz"


class NpzAdapters(AdapterFormat):
    """Arrays MODULE.down, MODULE.up and MODULE.scale."""

    def answer(self, query: AdapterQuery) -> Answer:
        if FILE in query.files:
            return Supported()
        return Rejected(
            (
                Rejection(
                    code="files",
                    field="files",
                    found=f"no {FILE}",
                    needed=FILE,
                    remedy="name the folder of such an archive",
                ),
            )
        )

    def read(self, root: Path) -> Adapter:
        import torch

        try:
            with np.load(root / FILE) as archive:
                arrays = {name: archive[name] for name in archive.files}
            names = [name.removesuffix(".down") for name in arrays if name.endswith(".down")]
            updates = {
                name: LowRank(
                    down=torch.from_numpy(_finite(arrays[f"{name}.down"])),
                    up=torch.from_numpy(_finite(arrays[f"{name}.up"])),
                    scale=float(_finite(arrays[f"{name}.scale"])),
                )
                for name in names
            }
        except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
            raise ModelError(
                f"{root / FILE} cannot be read",
                expected="an archive with MODULE.down, MODULE.up and MODULE.scale",
                found=error,
                mend="write the archive anew",
            ) from error
        return Adapter(updates=updates)

    def write(self, root: Path, adapter: Adapter) -> None:
        arrays = {}
        for name, update in adapter.updates.items():
            arrays[f"{name}.down"] = update.down.float().cpu().numpy()
            arrays[f"{name}.up"] = update.up.float().cpu().numpy()
            arrays[f"{name}.scale"] = np.float64(update.scale)
        np.savez(root / FILE, **arrays)


def _finite(array: np.ndarray) -> np.ndarray:
    if not np.isfinite(array).all():
        raise ValueError("what is no finite number")
    return array
