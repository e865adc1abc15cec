"""The hash over the files of a distribution changes with its code and with nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import sys

import pytest

from framework.plugins.installed import LARGE, hash_of


def recorded(info, *names):
    """Write the RECORD of a distribution as an installer does."""
    lines = ["../../bin/tool,sha256=x,3", f"{info.name}/INSTALLER,sha256=y,4", "a.pyc,,"]
    for name in names:
        data = (info.parent / name).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    (info / "RECORD").write_text("\n".join(lines))


@pytest.fixture
def made(house):
    """Folder, module and metadata of a distribution with two files and a package beside it."""
    package = house.add("dist", {"things t": "T"}, "one = 1\n", folder="site")
    site = house.root / "site"
    (site / package / "deep").mkdir()
    (site / package / "deep" / "b.py").write_text("two = 2\n")
    return site, package, site / "dist-1.0.dist-info"


@pytest.mark.parametrize("with_record", [True, False])
def test_code_counts_and_leftovers_do_not(made, with_record):
    """An edited, added or removed source is another hash; caches and metadata are not."""
    site, package, info = made
    names = [f"{package}/__init__.py", f"{package}/deep/b.py"]
    if with_record:
        recorded(info, *names)
    first = hash_of(str(info), [package])
    assert first is not None
    (site / package / "__pycache__").mkdir()
    (site / package / "__pycache__" / "x.pyc").write_bytes(b"x")
    (site / package / ".x.swp").write_bytes(b"x")
    (info / "INSTALLER").write_text("another")
    assert hash_of(str(info), [package]) == first
    (site / package / "deep" / "b.py").write_text("two = 3\n")
    second = hash_of(str(info), [package])
    assert second != first
    (site / package / "deep" / "b.py").unlink()
    assert hash_of(str(info), [package]) not in (first, second)
    assert package not in sys.modules


@pytest.mark.parametrize("with_record", [True, False])
def test_whatever_python_would_import_counts(made, with_record):
    """A file that was put beside the others, or that RECORD knows without a hash, is code; so is
    what is shipped compiled."""
    site, package, info = made
    if with_record:
        recorded(info, f"{package}/__init__.py", f"{package}/deep/b.py")
        text = (info / "RECORD").read_text()
        (info / "RECORD").write_text(f"{text}\n{package}/deep/c.py,,\n")
    hashes = [hash_of(str(info), [package])]
    for name in (f"{package}/added.py", f"{package}/deep/b.so", f"{package}/c.pyc"):
        (site / name).write_text("x = 1\n")
        hashes.append(hash_of(str(info), [package]))
    for text in ("x = 1\n", "x = 2\n"):
        (site / package / "deep" / "c.py").write_text(text)
        hashes.append(hash_of(str(info), [package]))
    assert None not in hashes
    assert len(set(hashes)) == len(hashes)


def test_a_module_of_another_distribution_counts(made):
    """An entry point may lead to what its own RECORD does not list."""
    site, package, info = made
    (site / "pkg_else.py").write_text("x = 1\n")
    recorded(info, f"{package}/__init__.py")
    first = hash_of(str(info), ["pkg_else"])
    (site / "pkg_else.py").write_text("x = 2\n")
    assert hash_of(str(info), ["pkg_else"]) != first


@pytest.mark.parametrize("with_record", [True, False])
def test_nothing_that_lies_in_a_package_stops_or_fails_a_start(made, with_record):
    """Pipes, links to nowhere, names that are no UTF-8, and a RECORD that is none."""
    site, package, info = made
    os.mkfifo(site / package / "pipe")
    (site / package / "loop").symlink_to("loop")
    (site / package / os.fsdecode(b"\xff.py")).write_text("")
    if with_record:
        names = (f"{package}/pipe", "no\0name", "x" * 200_000, f"{package}/gone.py")
        (info / "RECORD").write_text("".join(f"{name},sha256=x,3\n" for name in names))
    assert hash_of(str(info), [package]) == hash_of(str(info), [package]) is not None


def test_a_large_file_goes_by_its_record(made):
    """Only its size is looked at, so that hundreds of megabytes cost nothing."""
    site, package, info = made
    (site / package / "weights.bin").write_bytes(bytes(LARGE + 1))
    recorded(info, f"{package}/weights.bin")
    first = hash_of(str(info), [package])
    (site / package / "weights.bin").write_bytes(b"1" * (LARGE + 1))
    assert hash_of(str(info), [package]) == first
    (site / package / "weights.bin").write_bytes(bytes(LARGE + 2))
    assert hash_of(str(info), [package]) != first


def test_where_it_lies_and_how_it_was_installed_do_not_count(house):
    """Two installs of the same files are equal, whatever folder they are in."""
    hashes = set()
    for folder in ("one", "two"):
        house.add("dist", {"things t": "T"}, "x = 1\n", folder=folder, package="pkg_same")
        info = house.root / folder / "dist-1.0.dist-info"
        recorded(info, "pkg_same/__init__.py")
        (info / "INSTALLER").write_text(folder)
        hashes.add(hash_of(str(info), ["pkg_same"]))
    assert len(hashes) == 1


def test_a_module_a_namespace_and_nothing(house, monkeypatch):
    """A single file is hashed, of a shared namespace only the plugin's own part."""
    monkeypatch.syspath_prepend(str(house.root))
    (house.root / "pkg_single.py").write_text("x = 1\n")
    single = hash_of(None, ["pkg_single"])
    for name in ("mine", "theirs"):
        (house.root / "pkg_space" / name).mkdir(parents=True)
        (house.root / "pkg_space" / name / "__init__.py").write_text("x = 1\n")
    part = hash_of(None, ["pkg_space.mine"])
    (house.root / "pkg_space" / "theirs" / "__init__.py").write_text("x = 2\n")
    assert hash_of(None, ["pkg_space.mine"]) == part
    (house.root / "pkg_space" / "mine" / "__init__.py").write_text("x = 2\n")
    assert len({single, part, hash_of(None, ["pkg_space.mine"])}) == 3
    assert hash_of(None, ["pkg_that_is_not_there"]) is None
