"""Folders of engines, and those of engines that were killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framework.engine.private_folder import PrivateFolder

OWNER = """
import os, signal, sys
from framework.engine.private_folder import PrivateFolder
from framework.engine.remote.links import Addresses
kept = PrivateFolder(), Addresses()
open(os.path.join(kept[0].path, "data"), "w").close()
print(kept[0].path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_it_is_for_one_user_and_goes_with_its_owner(place):
    first, second = PrivateFolder(), PrivateFolder()
    assert sorted(place.iterdir()) == sorted([Path(first.path), Path(second.path)])
    assert os.stat(first.path).st_mode & 0o777 == 0o700
    first.remove()
    first.remove()
    assert list(place.iterdir()) == [Path(second.path)]
    del second
    gc.collect()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_and_all_else_stays(place):
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        left = {place / process.stdout.readline().strip(), *place.iterdir()}
        assert len(left) == 2
        others = [place / "framework-plugin-of-mine", place / "framework-old"]
        for other in others:
            other.mkdir()
        (place / "framework-file").write_text("")
        (others[1] / ".engine-lock").symlink_to(place / "framework-file")
        link = place / "framework-link"
        own = PrivateFolder()
        link.symlink_to(own.path)
        assert all(folder.exists() for folder in left)  # its owner lives
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert all(folder.exists() for folder in left)
        again = PrivateFolder()
    assert {*place.iterdir()} == {
        *others,
        link,
        place / "framework-file",
        Path(own.path),
        Path(again.path),
    }
    own.remove()
    again.remove()


def test_where_no_file_can_be_made_no_folder_is_left(place, monkeypatch):
    """Nobody would ever take it away, and each request tries again."""

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.open", full)
        with pytest.raises(OSError, match="No space"):
            PrivateFolder()
    assert list(place.iterdir()) == []


def test_where_files_cannot_be_locked_nothing_is_taken_away(place, monkeypatch):
    def unable(*_):
        raise OSError(95, "Operation not supported")

    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", unable)
        first = PrivateFolder()
    second = PrivateFolder()
    assert os.path.isdir(first.path)
    first.remove()
    second.remove()
