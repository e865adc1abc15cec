"""One hash over the files of an installed distribution, or of a module without one.

What RECORD lists is what was installed.  What lies in the packages of the entry points counts as
well: an editable install lists nothing, and a file that was put beside the others, a compiled one
for instance, is what Python would import.  Files are read, so that a module edited in place counts
as another; only a large one that RECORD knows goes by its hash and size there.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import os
import stat
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec

import importlib_metadata

LARGE = 1 << 20
"""Bytes from which on a file's hash in RECORD is believed."""


def hash_of(location: str | None, modules: Iterable[str]) -> str | None:
    """sha256, hexadecimal, over names and contents; None where no file can be found.

    location: the folder with a distribution's metadata, None for an ad-hoc plugin.
    modules: dotted names of the modules that its plugins live in.  Imports nothing.
    """
    files = dict(_recorded(location)) if location else {}
    listed = {path for path, _ in files.values()}
    for module in sorted(set(modules)):
        found = {name: path for name, path in _sources(module) if path not in listed}
        files.update((name, (path, "")) for name, path in found.items())
    if not files:
        return None
    total = hashlib.sha256()
    for name in sorted(files):
        # A name that is no UTF-8 is as good as any.
        total.update(f"{name}\0{_digest(*files[name])}\n".encode("utf-8", "surrogateescape"))
    return total.hexdigest()


def _recorded(info: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Name, path and known hash of each file of RECORD that belongs to the code: neither
    metadata, which tells how it was installed, nor scripts, which tell where."""
    site, own = os.path.split(info)
    site = os.path.realpath(site)
    try:
        record = importlib_metadata.Distribution.at(info).read_text("RECORD") or ""
        rows = list(csv.reader(record.splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error):
        return
    for row in rows:
        name, known, *_ = (*row, "", "")
        outside = name.startswith(("..", "/", "__editable__", f"{own}/"))
        if name and not outside and _counts(name):
            yield name, (os.path.join(site, name), known)


def _digest(path: str, known: str) -> str:
    """Of the content; of `known` and the size where the file is large and known."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # to read a pipe is to wait for ever
            return "no file"
        if known and found.st_size > LARGE:
            return f"{known} {found.st_size}"
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:  # of a name that no file can have
        return f"unreadable: {type(error).__name__}"


def _counts(name: str) -> bool:
    """Whether a file belongs to the code, rather than to an editor or to the interpreter.  Code
    that is shipped compiled lies beside the place where the interpreter keeps its own."""
    folder, _, last = name.rpartition("/")
    return not (last.startswith(".") or last.endswith("~") or "__pycache__" in folder.split("/"))


def _sources(module: str) -> Iterator[tuple[str, str]]:
    """Name and path of each file of a module's top-level package, or of the module."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return
    for place in map(os.path.realpath, _places(spec, rest) if spec is not None else ()):
        if os.path.isfile(place):
            yield f"{top}/{os.path.basename(place)}", place
        for folder, folders, names in os.walk(place):
            folders[:] = [f for f in folders if f != "__pycache__" and not f.startswith(".")]
            inside = os.path.relpath(folder, os.path.dirname(place)).replace(os.sep, "/")
            for name in filter(_counts, names):
                yield f"{top}/{inside}/{name}", os.path.join(folder, name)


def _places(spec: ModuleSpec, rest: list[str]) -> list[str]:
    """The package's folder or the module's file.  Of a namespace, which several distributions
    may share, the part below it that the plugin lives in."""
    locations = list(spec.submodule_search_locations or ())
    if locations and spec.origin is None:
        names = [rest[0], f"{rest[0]}.py"] if rest else []
        parts = [os.path.join(place, name) for place in locations for name in names]
        return [part for part in parts if os.path.exists(part)]
    if locations:
        return locations
    return [spec.origin] if spec.origin is not None and spec.has_location else []
