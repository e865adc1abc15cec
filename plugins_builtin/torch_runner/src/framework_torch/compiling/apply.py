"""Which uses of operators of a model are compiled, and their calls."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from framework.contracts.compiler import Argument, Compiler, CompilerQuery, Piece
from framework.contracts.kernel import OperatorSite, Prepared
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import DeviceFacts
from framework.errors import ConfigError, ModelError, UnsupportedError
from framework.plugins.blame import blaming
from framework.plugins.installed import hash_of
from framework.plugins.selection import Selection, select
from framework_torch.compiling.operators import LayerInput, LayerOutput, operation_of
from framework_torch.compiling.store import Store, default_folder
from framework_torch.kernels.sources import sources_of
from framework_torch.options import TorchOptions

if TYPE_CHECKING:
    from framework.plugins.records import Record

log = logging.getLogger("framework")
AUTO = "auto"
SOURCES = ("framework_torch", "framework.contracts.compiler", "framework.contracts.kernel")
"""Modules whose sources say what a piece computes and how it is called."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """names: of uses that are computed by compiled code, and of those that they stand for.
    notes: start-up lines."""

    names: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def compile_operators(
    context: RunnerContext,
    sites: Mapping[str, OperatorSite],
    facts: DeviceFacts,
    dtype: str,
    options: TorchOptions,
    *,
    needed: bool = True,
) -> Compiled:
    """Have the chosen compiler serve what it can, if the operator or the level asks for one.

    needed: one that was named has to serve something.
    Raises SelectionError where it cannot serve here, ConfigError for one that was named and would
    compile nothing, UnsupportedError for code that it cannot compile.
    """
    if context.compiler is None:
        return Compiled()
    query = CompilerQuery(
        platform=facts.name,
        device=facts.device,
        capability=facts.capability,
        features=facts.features,
        dtype=dtype,
    )
    named = None if context.compiler == AUTO else context.compiler
    chosen = select(context.registry, "compiler", query, operator=named)
    uses, against = _uses(context, sites)
    if not uses:
        if named is not None and needed:
            raise ConfigError(
                f"compiler {named!r} would compile nothing of this model",
                expected="a model with layers that no other setting has computed otherwise",
                found=against,
                mend="leave out `compiler`",
            )
        return Compiled(notes=(f"compiler: nothing is compiled: {against}",))
    return _Work(context, chosen, facts, dtype, options).run(uses, sites)


Use = tuple[str, OperatorSite, "LayerInput | LayerOutput"]


def _uses(context: RunnerContext, sites: Mapping[str, OperatorSite]) -> tuple[list[Use], str]:
    """What is compiled, and why the rest is not: what the operator asked for beats it."""
    if context.adapters is not None:
        return [], "adapters change the parts of layers"
    if context.quantization is not None:
        return [], f"quantization {context.quantization!r} keeps weights that it cannot read"
    found, against = [], "this model has no layers of the operators layer_input and layer_output"
    for name, site in sites.items():
        operation = operation_of(
            site.op, tuple(sources_of(site)), site.sizes, site.traits, site.constants
        )
        if operation is None:
            continue
        ops = {site.op, *(sites[part].op for part in getattr(site, "parts", ()))}
        chosen = sorted(ops & context.kernels.keys())
        if chosen:
            against = f"`kernels` names who computes {', '.join(chosen)}"
            continue
        found.append((name, site, operation))
    return found, against


class _Work:
    """One model with one compiler."""

    def __init__(
        self,
        context: RunnerContext,
        chosen: Selection,
        facts: DeviceFacts,
        dtype: str,
        options: TorchOptions,
    ) -> None:
        self._compiler = cast(Compiler, chosen.instance)
        self._name = chosen.record.name
        self._device = facts.device
        self._ends = options.compile_ranges
        self._store = Store(options.compile_cache or default_folder())
        with blaming(self._compiler, "telling its identity"):
            identity = self._compiler.identity()
        self._made_of = {
            "model": _of_model(context),
            "dtype": dtype,
            "device": facts.device,
            "code": _sources(),
            "compiler": [*_of_plugin(chosen.record), identity],
        }
        self._functions: dict[str, Callable[..., Any]] = {}

    def run(self, uses: Sequence[Use], sites: Mapping[str, OperatorSite]) -> Compiled:
        """Every use, with each piece compiled once."""
        started = time.perf_counter()
        plans = [(name, site, op, self._pieces(site, op)) for name, site, op in uses]
        wanted = {_key(piece): piece for *_, pieces in plans for piece in pieces}
        kept = self._find(wanted)
        self._compile({key: piece for key, piece in wanted.items() if key not in kept})
        names = []
        for name, site, op, pieces in plans:
            codes = [self._functions[_key(piece)] for piece in pieces]
            site.adopt(Prepared(call=_Call(self._ends, codes, op, tuple(site.weights().values()))))
            names += [name, *getattr(site, "parts", ())]
        counted = Counter(site.op for _, site, _ in uses)
        told = ", ".join(f"{op} {self._name} ({count})" for op, count in counted.items())
        seconds = time.perf_counter() - started
        line = (
            f"compiler: {told}, {len(wanted)} pieces of code for {_ranges(self._ends)}: "
            f"{len(kept)} from {self._store.folder}, {len(wanted) - len(kept)} compiled, "
            f"in {seconds:.2f} s"
        )
        return Compiled(frozenset(names), (line, *self._store.notes))

    def _pieces(self, site: OperatorSite, op: LayerInput | LayerOutput) -> list[Piece]:
        weights = site.weights()
        kind = _dtype(next(iter(weights.values())))
        arguments = (
            *(Argument(shape=(None, site.sizes[size]), dtype=kind) for size in op.inputs),
            *(Argument(shape=tuple(w.shape), dtype=_dtype(w)) for w in weights.values()),
        )
        firsts = [1, *(end + 1 for end in self._ends)]
        return [
            Piece(
                name=site.op,
                function=op,
                arguments=arguments,
                device=self._device,
                least=least,
                most=most,
            )
            for least, most in zip(firsts, [*self._ends, None], strict=True)
        ]

    def _find(self, wanted: Mapping[str, Piece]) -> set[str]:
        """Load what is kept; what cannot be loaded is dropped."""
        kept = set()
        for key in wanted:
            made_of = {**self._made_of, "piece": key}
            code = self._store.get(made_of)
            if code is None:
                continue
            try:
                self._load(key, code)
            except ModelError as error:
                self._store.drop(made_of, str(error.found or error.message))
            else:
                kept.add(key)
        return kept

    def _compile(self, missing: Mapping[str, Piece]) -> None:
        if not missing:
            return
        log.info("compiling %d pieces of code, which takes its time, once", len(missing))
        with blaming(self._compiler, "compiling"):
            codes = self._compiler.compile(tuple(missing.values()))
        if len(codes) != len(missing):
            raise UnsupportedError(
                f"compiler {self._name!r} gave other code than it was asked for",
                expected=f"{len(missing)} pieces",
                found=len(codes),
                mend="choose another compiler",
            )
        for key, code in zip(missing, codes, strict=True):
            self._load(key, code)
            self._store.put({**self._made_of, "piece": key}, code)

    def _load(self, key: str, code: bytes) -> None:
        with blaming(self._compiler, "loading compiled code"):
            self._functions[key] = self._compiler.load(code)


class _Call:
    """A use of an operator by the code for its number of rows."""

    def __init__(
        self,
        ends: tuple[int, ...],
        codes: Sequence[Callable[..., Any]],
        plain: Callable[..., Any],
        weights: tuple[torch.Tensor, ...],
    ) -> None:
        self._ends, self._codes, self._plain = ends, codes, plain
        self._weights = tuple(weight.detach().contiguous() for weight in weights)

    def __call__(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        given = [tensor.contiguous() for tensor in (x, *more)]
        rows = len(x)
        code = self._codes[bisect_left(self._ends, rows)] if rows else self._plain
        return cast(torch.Tensor, code(*given, *self._weights))


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _key(piece: Piece) -> str:
    """What tells one piece of a model from the others."""
    return repr((piece.name, piece.function, piece.arguments, piece.least, piece.most))


def _ranges(ends: Sequence[int]) -> str:
    """As in "1, 2 to 32 and from 33 rows on"."""
    firsts = [1, *(end + 1 for end in ends)]
    told = [f"{a}" if a == b else f"{a} to {b}" for a, b in zip(firsts, ends, strict=False)]
    last = f"from {firsts[-1]} rows on"
    return f"{', '.join(told)} and {last}" if told else last


def _of_model(context: RunnerContext) -> str:
    config = json.dumps(context.model.config, default=str, sort_keys=True)
    return hashlib.sha256(config.encode()).hexdigest()


def _of_plugin(record: Record) -> Iterator[str | None]:
    yield from (record.key, record.distribution, record.version)
    yield hash_of(record.location, [record.value.partition(":")[0].strip()])


@cache
def _sources() -> str:
    """Of all modules that say what is computed."""
    total = hashlib.sha256()
    for name in SOURCES:
        place = Path(str(importlib.import_module(name).__file__))
        files = sorted(place.parent.rglob("*.py")) if place.name == "__init__.py" else [place]
        for file in files:
            total.update(f"{name}\0{file.name}\0".encode() + file.read_bytes())
    return total.hexdigest()
