"""Bulk data of requests: files that are whole, shared, and there as long as somebody needs them."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from framework.engine.payloads import PayloadStore
from framework.errors import OverloadedError
from framework.testing.occupant import WIDTH

GOOD = np.arange(3 * WIDTH, dtype=np.float32).reshape(3, WIDTH)


def test_equal_data_have_one_file_that_goes_with_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = PayloadStore()
    assert list(tmp_path.iterdir()) == []
    first, second = store.put(GOOD), store.put(GOOD.copy())
    other = store.put(GOOD.reshape(4, 3))
    assert first.reference == second.reference != other.reference
    path = Path(first.reference)
    del first
    assert path.exists()
    del second
    assert not path.exists()
    again = store.put(GOOD)
    assert Path(again.reference) == path
    assert path.exists()
    del again, other, store
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    store = PayloadStore()
    kept = store.put(GOOD)

    def full(file, array, allow_pickle):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OverloadedError, match="No space left"):
            store.put(GOOD + 1)
    assert list(Path(kept.reference).parent.glob("[!.]*")) == [Path(kept.reference)]
    more = store.put(GOOD + 1)
    assert np.load(more.reference)[0, 0] == 1


def test_a_file_is_whole_or_not_there_and_never_changes(tmp_path, monkeypatch):
    """A core that still maps one that was let go would be killed if it became shorter."""
    store, seen = PayloadStore(), []
    first = store.put(GOOD)
    with open(first.reference, "rb") as old:
        store._held.clear()  # let go by a thread that has not come to delete it
        save = np.save

        def watched(file, array, **options):
            save(file, array, **options)
            seen.append(os.path.samestat(os.stat(first.reference), os.fstat(old.fileno())))

        monkeypatch.setattr(np, "save", watched)
        again = store.put(GOOD)
        assert seen == [True]
        assert not os.path.samestat(os.stat(again.reference), os.fstat(old.fileno()))
        np.testing.assert_array_equal(np.load(old), GOOD)


def test_nobody_waits_for_a_file_to_let_one_go(monkeypatch):
    """Event loops let payloads go."""
    store = PayloadStore()
    kept, save = [store.put(GOOD)], np.save
    path = kept[0].reference

    def let_go(file, array, **options):
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        assert not os.path.exists(path)
        save(file, array, **options)

    monkeypatch.setattr(np, "save", let_go)
    other = store.put(GOOD + 1)
    np.testing.assert_array_equal(np.load(other.reference), GOOD + 1)


def test_threads_that_bring_one_array_share_one_file(monkeypatch):
    store, save, found = PayloadStore(), np.save, []

    def together(file, array, **options):
        save(file, array, **options)
        monkeypatch.setattr(np, "save", save)
        found.append(store.put(GOOD))  # another thread, in the midst of the first

    monkeypatch.setattr(np, "save", together)
    assert store.put(GOOD) is found[0]
    folder = Path(found[0].reference).parent
    assert [path.name for path in folder.glob("[!.]*")] == [Path(found[0].reference).name]


@pytest.mark.parametrize("all_of_it", [True, False])
def test_what_was_tidied_away_is_written_again(tmp_path, monkeypatch, all_of_it):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = PayloadStore()
    first = store.put(GOOD)
    path = Path(first.reference)
    shutil.rmtree(path.parent) if all_of_it else path.unlink()
    second, other = store.put(GOOD), store.put(GOOD + 1)
    del first
    np.testing.assert_array_equal(np.load(second.reference), GOOD)
    np.testing.assert_array_equal(np.load(other.reference), GOOD + 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    shutil.rmtree(Path(second.reference).parent)
    with pytest.raises(OverloadedError, match="TMPDIR"):
        store.put(GOOD)


FORKS = """
import os, sys
import numpy as np
from framework.engine.payloads import PayloadStore
kept = [PayloadStore().put(np.ones((2, 2), np.float32))]
path = kept[0].reference
if not os.fork():
    {end}
os.wait()
assert os.path.exists(path)
kept.clear()
assert not os.path.exists(path)
"""


@pytest.mark.parametrize("end", ["sys.exit()", "kept.clear(); os._exit(0)"])
def test_a_fork_of_its_process_takes_nothing_away(end):
    """It has copies of all objects, and lets them go."""
    subprocess.run([sys.executable, "-c", FORKS.format(end=end)], check=True, timeout=60)
