"""A module of Transformers, filled from `Weights` or with seeded numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from transformers.utils import logging

from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import Weights
from framework.errors import FrameworkError, ModelError
from framework_torch.hf import interface
from framework_torch.hf.architectures import Known

SHOWN = 8
# Torch has no class of its own for this on the host.
ALLOCATION = "can't allocate memory"


def load(known: Known, model: ModelFiles, weights: Weights | None, dtype: str, seed: int) -> Any:
    """The module in evaluation mode, on the host, without gradients.

    Checkpoints may hold other names and other cuts than the modules (experts one by one, old
    prefixes); only Transformers' own loader knows them all, so it gets our mapped tensors.
    It keeps a tensor as it is, a view of the file, when neither type nor cut changes.
    Raises ModelError.
    """
    interface.register()
    try:
        with _quiet():
            kind, config = _resolve(known, model)
            if weights is None:
                module = _dummy(kind, config, getattr(torch, dtype), seed)
            else:
                module = _filled(known, kind, config, getattr(torch, dtype), weights, model)
    except FrameworkError:
        raise
    except Exception as error:  # whatever modelling code raises for a configuration
        if isinstance(error, MemoryError) or ALLOCATION in str(error):
            raise ModelError(
                f"{model.name}: the weights of {known.architecture} do not fit into memory",
                found=str(error).partition(ALLOCATION)[2].strip(": ") or "too little memory",
                mend="correct the sizes in config.json, or use a larger machine",
            ) from error
        raise ModelError(
            f"{model.name}: Transformers cannot build {known.architecture}",
            expected="a configuration that the modelling code accepts",
            found=f"{type(error).__name__}: {error}",
            mend="correct config.json, or fetch the model again",
        ) from error
    module.eval().requires_grad_(False)
    return module


def _resolve(known: Known, model: ModelFiles) -> tuple[Any, Any]:
    """(class, configuration)."""
    if known.remote is None:
        return getattr(transformers, known.architecture), copy.deepcopy(known.config)
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    root = str(model.root)
    config = transformers.AutoConfig.from_pretrained(
        root, trust_remote_code=True, local_files_only=True
    )
    kind = get_class_from_dynamic_module(known.remote, root, local_files_only=True)
    return kind, config


def _dummy(kind: Any, config: Any, dtype: torch.dtype, seed: int) -> Any:
    """Numbers by the model's own initializer; the same for the same seed."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return kind._from_config(config, dtype=dtype, attn_implementation=interface.NAME)


def _filled(
    known: Known, kind: Any, config: Any, dtype: torch.dtype, weights: Weights, model: ModelFiles
) -> Any:
    tensors = {name: weights.get(name) for name in weights.names() if not known.spares(name)}
    module, info = kind.from_pretrained(
        None,
        config=config,
        state_dict=tensors,
        dtype=dtype,
        attn_implementation=interface.NAME,
        ignore_mismatched_sizes=True,  # they are collected, and refused below by name
        output_loading_info=True,
    )
    for name, found, expected in sorted(info["mismatched_keys"]):
        origin = weights.source(name) if name in tensors else model.root
        raise ModelError(
            f"tensor {name!r} in {origin} has a wrong shape",
            expected=list(expected),
            found=list(found),
            mend="config.json does not describe these weights; fetch both again",
        )
    missing = [name for name in info["missing_keys"] if not known.spares(name)]
    _refuse(model, "tensors are missing", missing, "the files are not of this model")
    _refuse(
        model,
        "there are tensors that the model has no place for",
        [k for k in info["unexpected_keys"] if not any(part in k for part in known.surplus)],
        "config.json does not describe these weights",
    )
    return module


def _refuse(model: ModelFiles, what: str, names: Iterable[str], mend: str) -> None:
    listed = sorted(names)
    if listed:
        more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
        raise ModelError(
            f"{model.root}: {what}",
            expected="exactly the tensors that config.json implies",
            found=", ".join(listed[:SHOWN]) + more,
            mend=mend,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Transformers' own bars and reports would say twice what our errors and bar say."""
    library: Any = logging
    level, bar = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bar:
            library.enable_progress_bar()
