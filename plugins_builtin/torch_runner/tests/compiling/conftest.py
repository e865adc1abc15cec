"""A compiler that takes no time: its code is the pickled function."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from framework.plugins.registry import PluginRegistry
from framework_torch.options import TorchOptions
from framework_torch.runner import TorchRunner

SOURCE = """
import pickle

from framework.contracts.base import Supported
from framework.contracts.compiler import Compiler
from framework.errors import ModelError

compiled, called = [], []


class Quick(Compiler):
    def answer(self, query):
        return Supported()

    def identity(self):
        return "quick"

    def compile(self, pieces):
        compiled.extend((piece.name, piece.least, piece.most) for piece in pieces)
        return [pickle.dumps((piece.function, piece.least, piece.most)) for piece in pieces]

    def load(self, code):
        try:
            function, least, most = pickle.loads(code)
        except Exception as error:
            raise ModelError("damaged", found=error, mend="compile it anew") from error

        def call(*tensors):
            rows = len(tensors[0])
            assert least <= rows <= (most or rows), "code for another range of rows"
            assert all(tensor.is_contiguous() for tensor in tensors)
            called.append(rows)
            return function(*tensors)

        return call
"""


@dataclass
class Compiling:
    """compiled: name and range of each piece that was compiled.  called: rows of each call."""

    folder: Path
    module: Path
    context: Any
    compiled: list[Any]
    called: list[int]

    def load(self, files: Any, options: TorchOptions | None = None, **changes: Any) -> Any:
        """A loaded runner, and what it told."""
        registry = PluginRegistry(ad_hoc={"compiler:quick": f"{self.module.stem}:Quick"})
        runner = TorchRunner(options or TorchOptions(compile_cache=self.folder))
        context = self.context(files, **{"compiler": "quick", **changes})
        return runner, runner.load(replace(context, registry=registry))


@pytest.fixture
def compiling(tmp_path, context, monkeypatch) -> Compiling:
    module = tmp_path / "quick_compiler.py"
    module.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, module.stem, raising=False)
    made = importlib.import_module(module.stem)
    monkeypatch.setitem(sys.modules, module.stem, made)
    return Compiling(tmp_path / "code", module, context, made.compiled, made.called)
