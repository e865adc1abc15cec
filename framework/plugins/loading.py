"""Import one plugin and check its class against the contract of its kind."""

from __future__ import annotations

import importlib
import inspect
import time
import types

from framework.contracts.base import Contract
from framework.errors import PluginError
from framework.plugins.blame import told
from framework.plugins.discovery import split_value
from framework.plugins.kinds import Kind
from framework.plugins.near import did_you_mean
from framework.plugins.records import Record, State
from framework.plugins.watch import log as log
from framework.plugins.watch import watched
from framework.shown import shown


def contract_of(kind: Kind) -> type[Contract]:
    """Import the contract of a kind; PluginError for a reserved kind."""
    return _dotted(kind.require_contract())


def _dotted(value: str) -> type[Contract]:
    """The class at "module:Class" of the core itself."""
    module, _, name = value.partition(":")
    found: type[Contract] = getattr(importlib.import_module(module), name)
    return found


def load_class(record: Record, kind: Kind, slow_after: float) -> type[Contract]:
    """Import the record's module, take its class, check it, and write state and time down.

    slow_after: seconds after which the watchdog names the plugin on stderr.  Raises
    PluginError for whatever goes wrong, an exit of the module included; only an
    interruption from the keyboard passes through, and leaves the record as it was.
    """
    contract = contract_of(kind)
    record.move(State.LOADING)
    started = time.perf_counter()
    try:
        with watched(record, slow_after):
            found = _import(record)
    except KeyboardInterrupt:
        record.move(State.DISCOVERED)
        raise
    except BaseException as error:  # SystemExit, and errors outside of Exception
        failure = _failure(record, error)
        record.move(State.FAILED, failure.message)
        raise failure from (None if failure is error else error)
    try:
        cls = check_class(record, kind, contract, found)
    except PluginError as error:
        record.move(State.INCOMPATIBLE, error.message)
        raise
    except Exception as error:  # a metaclass can do anything
        failure = _failure(record, error)
        record.move(State.FAILED, failure.message)
        raise failure from error
    record.load_seconds = time.perf_counter() - started
    record.cls = cls
    record.move(State.LOADED)
    return cls


def check_class(
    record: Record, kind: Kind, contract: type[Contract], found: object
) -> type[Contract]:
    """The class, if it derives from the contract, says the right kind and lacks no method."""

    mend = f"{record.value} must name a class made for {kind.contract}"
    if kind.adapter is not None and record.facts is None:
        mend += (
            f"; one made for contract {kind.adapter.version} or before is carried if its "
            "framework-plugin.toml says so"
        )

    def wrong(expected: str, actual: str) -> PluginError:
        return PluginError(
            f"plugin {record.key} does not fulfil the contract of {kind.name}: found {actual}",
            plugin=record.key,
            distribution=record.distribution,
            expected=expected,
            found=actual,
            mend=mend,
        )

    base = f"a class derived from {kind.contract}"
    if not inspect.isclass(found):
        raise wrong(base, f"{type(found).__name__} {shown(found, 80)}")
    if not issubclass(found, contract):
        raise wrong(base, f"class {found.__qualname__}")
    says = getattr(found, "kind", None)
    if says != kind.name:
        raise wrong(f"kind = {kind.name!r}", f"kind = {says!r}")
    if record.adapted is not None and kind.adapter is not None:
        found = _adapted(found, _dotted(kind.adapter.mixin))
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise wrong(f"all methods of {kind.contract}", f"no {', '.join(missing)}")
    options = found.Options
    if options is not None and not _is_model(options):
        raise wrong("Options = a pydantic model, or None", f"Options = {shown(options, 80)}")
    return found


def _adapted(cls: type[Contract], mixin: type[Contract]) -> type[Contract]:
    """The plugin's class behind the mixin of an adapter; it keeps its name and place."""
    names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    made: type[Contract] = types.new_class(
        cls.__name__, (mixin, cls), {}, lambda n: n.update(names)
    )
    return made


def _is_model(options: object) -> bool:
    from pydantic import BaseModel

    return inspect.isclass(options) and issubclass(options, BaseModel)


def _import(record: Record) -> object:
    target = split_value(record.value)
    assert target is not None  # discovery has failed such a record
    module_name, path = target
    found: object = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise PluginError(
                f"plugin {record.key}: {record.value} does not exist"
                f"{did_you_mean(part, dir(found))}",
                plugin=record.key,
                distribution=record.distribution,
                expected=f"attribute {part!r} in {module_name}",
                found="no such attribute",
                mend=f"correct the name in the class or in the entry point of {record.owner}, and "
                "install it again",
            )
        found = getattr(found, part)
    return found


def _failure(record: Record, error: BaseException) -> PluginError:
    if isinstance(error, PluginError) and error.plugin == record.key:
        return error
    return PluginError(
        f"plugin {record.key} failed on import: {told(error)}",
        plugin=record.key,
        distribution=record.distribution,
        expected=f"{record.value} can be imported",
        found=f"{type(error).__name__} in {where(error)}",
        mend=how_to_mend(record),
    )


def where(error: BaseException) -> str:
    """File and line of the innermost frame, or of the text that cannot be parsed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "no frame"


def how_to_mend(record: Record) -> str:
    """What an operator can do about a plugin that does not work."""
    if record.distribution is None:
        return f"correct {record.value}"
    return (
        f"upgrade {record.distribution}, or deny it with "
        f"FRAMEWORK_PLUGINS_DENY={record.kind}:{record.name}@{record.distribution}"
    )
