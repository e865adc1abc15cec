"""Bulk data of requests, by reference: arrays that are too large for plans and messages.

A reference is the path of an `.npy` file in a folder that only this user can enter.  Its name is
a digest of what it holds, so that equal data have one file and one reference, by which the prefix
cache tells prompts apart.  The file is there as long as somebody holds its `Payload`: a request
that was preempted is read again when it comes back.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from framework.errors import FrameworkError

if TYPE_CHECKING:
    from framework.contracts.step import F32


class Payload:
    """One array that is kept.  reference: for `EngineInput.payloads`."""

    def __init__(self, reference: str) -> None:
        self.reference = reference


class PayloadStore:
    """Of one engine; may be used from several threads.  Nothing is written before the first."""

    def __init__(self) -> None:
        # Whoever lets the last payload of an array go may be in the midst of a `put`.
        self._lock = threading.RLock()
        self._folder: str | None = None
        self._held: weakref.WeakValueDictionary[str, Payload] = weakref.WeakValueDictionary()

    def put(self, array: F32) -> Payload:
        """Keep `array` until the last of its payloads is let go.  Raises FrameworkError where it
        cannot be written."""
        digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
        name = digest.hexdigest()
        with self._lock:
            found = self._held.get(name)
            if found is not None:
                return found
            try:
                path = os.path.join(self._folder or self._make_folder(), f"{name}.npy")
                made = Payload(path)
                # Known before it is written: one that goes at this moment leaves the file then.
                self._held[name] = made
                weakref.finalize(made, self._drop, name, path)
                with open(path, "wb") as file:
                    np.save(file, array, allow_pickle=False)
            except OSError as error:
                raise FrameworkError(
                    "the data of a request cannot be kept for the engine core",
                    expected=f"room in {tempfile.gettempdir()} for {array.nbytes} bytes",
                    found=error,
                    mend="free some, or set TMPDIR to another folder",
                ) from error
            return made

    def _make_folder(self) -> str:
        self._folder = tempfile.mkdtemp(prefix="framework-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def _drop(self, name: str, path: str) -> None:
        with self._lock:
            if name not in self._held:  # else it has come again
                with suppress(OSError):  # its folder went first, or it was never written
                    os.unlink(path)
