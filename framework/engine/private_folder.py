"""Folders for the sockets and the bulk data of an engine: of this user alone, and never for long.

What is killed without a word cannot tidy up.  Whoever owns a folder therefore holds a lock on a
file in it, which the kernel lets go with the process; the next one that makes a folder takes away
those that nobody holds any more.  What has no such file was made by somebody else, and stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from contextlib import suppress

_PREFIX = "framework-"
_LOCK = ".engine-lock"


class PrivateFolder:
    """path: where it is, made by this; it goes with `remove`, with this object, or at the end of
    the process.  Raises OSError where none can be made."""

    def __init__(self) -> None:
        _sweep()
        self.path = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            held = _hold(self.path)
        except OSError:  # no room for a file: nobody would ever take it away
            os.rmdir(self.path)
            raise
        self.remove = weakref.finalize(self, _remove, self.path, held, os.getpid())


def _hold(folder: str) -> int | None:
    """Descriptor of the locked file; None where the file system knows no locks."""
    new = os.path.join(folder, f"{_LOCK}.new")
    held = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, os.path.join(folder, _LOCK))  # locked before others can find it
    except OSError:
        os.close(held)
        return None
    return held


def _remove(folder: str, held: int | None, owner: int) -> None:
    """A process that was forked from the owner ends with copies of all objects, and leaves what
    they stand for."""
    if os.getpid() != owner:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        os.close(held)


def _sweep() -> None:
    """Remove the folders of processes of this user that are no more."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_if_left(entry)


def _remove_if_left(entry: os.DirEntry[str]) -> None:
    """Raises OSError where it is in use, is nobody's, or somebody else's."""
    if not entry.is_dir(follow_symlinks=False):
        return
    if entry.stat(follow_symlinks=False).st_uid != os.getuid():
        return
    held = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(held)
