"""Bulk data of requests, by reference: arrays that are too large for plans and messages.

A reference is the path of an `.npy` file in a folder that only this user can enter.  Its name is
a digest of what it holds, so that equal data have one file and one reference, by which the prefix
cache tells prompts apart.  The file is there as long as somebody holds its `Payload`: a request
that was preempted is read again when it comes back.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from framework.engine.private_folder import PrivateFolder
from framework.errors import OverloadedError

if TYPE_CHECKING:
    from framework.contracts.step import F32

log = logging.getLogger("framework")


class Payload:
    """One array that is kept.  reference: for `EngineInput.payloads`."""

    def __init__(self, reference: str) -> None:
        self.reference = reference


class PayloadStore:
    """Of one engine; may be used from several threads.  Nothing is written before the first.

    An event loop lets payloads go: no lock that this takes is held while bulk data are written.
    """

    def __init__(self) -> None:
        # Whoever lets the last payload of an array go may be in the midst of a `put`.
        self._lock = threading.RLock()
        self._held: weakref.WeakValueDictionary[str, Payload] = weakref.WeakValueDictionary()
        self._making = threading.Lock()
        self._folder: PrivateFolder | None = None
        self._owner = os.getpid()

    def put(self, array: F32) -> Payload:
        """Keep `array` until the last of its payloads is let go.  Raises OverloadedError where it
        cannot be written."""
        digest = hashlib.sha256(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
        name = digest.hexdigest()
        found = self._known(name)
        if found is not None:
            return found
        try:
            folder = self._usable_folder()
            return self._keep(name, folder, _written(array, folder))
        except OSError as error:
            log.error("the data of a request cannot be kept: %s", error)
            raise OverloadedError(
                "the data of a request cannot be kept for the engine core",
                expected=f"room in {tempfile.gettempdir()} for {array.nbytes} bytes",
                found=error,
                mend="free some, or set TMPDIR to another folder",
            ) from error

    def _known(self, name: str) -> Payload | None:
        with self._lock:
            found = self._held.get(name)
            return found if found is not None and os.path.exists(found.reference) else None

    def _keep(self, name: str, folder: str, part: str) -> Payload:
        """The file takes its place at once and whole, as another file than one that lay there: a
        core may still map one that was let go, and would be killed if it became shorter."""
        with self._lock:
            found = self._known(name)
            if found is not None:  # somebody else was faster
                os.unlink(part)
                return found
            made = Payload(os.path.join(folder, f"{name}.npy"))
            os.replace(part, made.reference)
            self._held[name] = made
            weakref.finalize(made, self._drop, name, made.reference)
            return made

    def _usable_folder(self) -> str:
        """Another one where whoever tidies up has taken the first: requests of before can be
        computed no longer, those to come can."""
        with self._making:
            if self._folder is None or not os.path.isdir(self._folder.path):
                self._folder = PrivateFolder()
            return self._folder.path

    def _drop(self, name: str, path: str) -> None:
        if os.getpid() != self._owner:  # a fork, which has only copies of payloads
            return
        with self._lock:
            held = self._held.get(name)
            if held is None or held.reference != path:  # else it has come again
                with suppress(OSError):  # its folder went first
                    os.unlink(path)


def _written(array: F32, folder: str) -> str:
    """Path of a new file that holds it.  Raises OSError, and then there is none."""
    number, part = tempfile.mkstemp(".part", dir=folder)
    try:
        with open(number, "wb") as file:
            np.save(file, array, allow_pickle=False)
    except BaseException:
        os.unlink(part)
        raise
    return part
