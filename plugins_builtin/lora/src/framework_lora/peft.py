"""`lora:peft`: folders as PEFT writes them.  torch is imported when one is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.lora import Adapter, AdapterFormat, AdapterQuery, LowRank
from framework.errors import ModelError, UnsupportedError
from framework_lora import config

if TYPE_CHECKING:
    import torch

    from framework_lora.config import PeftConfig

TENSORS = "adapter_model.safetensors"
PREFIX = "base_model.model."
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
SHOWN = 4


class PeftFormat(AdapterFormat):
    """adapter_config.json and adapter_model.safetensors; never a pickle."""

    def answer(self, query: AdapterQuery) -> Answer:
        missing = sorted({config.NAME, TENSORS} - query.files)
        if not missing:
            return Supported(note="a folder as PEFT writes it")
        pickled = "adapter_model.bin" in query.files
        remedy = "save the adapter with PEFT's save_pretrained"
        if pickled:
            remedy += ", which writes safetensors; pickled weights are not opened"
        return Rejected(
            (
                Rejection(
                    code="files",
                    field="files",
                    found=f"a folder without {', '.join(missing)}",
                    needed=f"{config.NAME} and {TENSORS}",
                    remedy=remedy,
                ),
            )
        )

    def read(self, root: Path) -> Adapter:
        settings = config.read_config(root)
        path = root / TENSORS
        downs, ups = _sorted(_tensors(path), path)
        alone = sorted(downs.keys() ^ ups.keys())
        if alone:
            raise ModelError(
                f"{path} holds one half of an update",
                expected=f"{DOWN[1:]} and {UP[1:]} of each module",
                found=_listed(alone),
                mend="fetch the adapter again: it is incomplete",
            )
        strange = sorted(name for name in downs if not settings.targets.selects(name))
        if strange:
            raise ModelError(
                f"{path} has updates of modules that {config.NAME} does not select",
                expected="those of target_modules, without exclude_modules, in the layers of "
                "layers_to_transform",
                found=_listed(strange),
                mend="fetch both files again, as they do not belong together, or correct the "
                "settings",
            )
        return Adapter(
            updates={
                module: _update(path, settings, module, down, ups[module])
                for module, down in downs.items()
            },
            base=settings.base,
            selects=settings.targets.selects,
        )

    def write(self, root: Path, adapter: Adapter) -> None:
        from safetensors.torch import save_file

        modules = list(adapter.updates)
        ranks = {name: update.down.shape[0] for name, update in adapter.updates.items()}
        settings = {
            "peft_type": "LORA",
            "base_model_name_or_path": adapter.base,
            "bias": "none",
            "r": max(ranks.values(), default=1),
            "lora_alpha": 1,
            "rank_pattern": {f"^{name}": rank for name, rank in ranks.items()},
            "alpha_pattern": {
                f"^{name}": update.scale * ranks[name] for name, update in adapter.updates.items()
            },
            "target_modules": modules,
        }
        tensors = {}
        for name, update in adapter.updates.items():
            tensors[f"{PREFIX}{name}{DOWN}"] = update.down.contiguous()
            tensors[f"{PREFIX}{name}{UP}"] = update.up.contiguous()
        (root / config.NAME).write_text(json.dumps(settings, indent=2), encoding="utf-8")
        save_file(tensors, root / TENSORS)


def _tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """Read whole, and no view of the file, which may change while it is used."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    config.check_file(path)
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read",
            expected="a safetensors file",
            found=error,
            mend="fetch the file again: it is damaged or was cut off",
        ) from error


def _sorted(
    tensors: Mapping[str, torch.Tensor], path: Path
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """A and B by module."""
    downs: dict[str, torch.Tensor] = {}
    ups: dict[str, torch.Tensor] = {}
    strange, twice = [], []
    for name, tensor in tensors.items():
        module = name.removeprefix(PREFIX)
        for end, found in ((DOWN, downs), (UP, ups)):
            if module.endswith(end):
                part = module.removesuffix(end)
                if part in found:
                    twice.append(module)
                found[part] = tensor
                break
        else:
            strange.append(name)
    if twice:
        raise ModelError(
            f"{path} holds a tensor under two names",
            expected=f"each with or without {PREFIX} in front",
            found=_listed(sorted(twice)),
            mend="take the wrong one out, or fetch the adapter again",
        )
    if strange or not tensors:
        raise UnsupportedError(
            f"{path} holds more than low-rank updates" if strange else f"{path} is empty",
            expected=f"tensors {PREFIX}MODULE{DOWN} and {PREFIX}MODULE{UP} only",
            found=_listed(sorted(strange)) or "no tensors",
            mend="embeddings, biases, magnitudes and whole modules are not served; train the "
            "adapter without them, or merge it into the model",
        )
    return downs, ups


def _update(
    path: Path, settings: PeftConfig, module: str, down: torch.Tensor, up: torch.Tensor
) -> LowRank:
    rank = settings.rank_of(module)
    shapes = f"A {list(down.shape)}, B {list(up.shape)}"
    if down.ndim != 2 or up.ndim != 2:
        raise UnsupportedError(
            f"{path}: the update of {module} is none of a linear map",
            expected="matrices A and B",
            found=shapes,
            mend="only linear maps are served",
        )
    if down.shape[0] != rank or up.shape[1] != rank:
        raise ModelError(
            f"{path}: the update of {module} has another rank than {config.NAME} says",
            expected=f"A [{rank}, in] and B [out, {rank}]",
            found=shapes,
            mend="fetch both files again: they do not belong together",
        )
    for name, tensor in (("A", down), ("B", up)):
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise ModelError(
                f"{path}: {name} of {module} holds no floating-point numbers of 16 bits or more",
                expected="float32, float16 or bfloat16",
                found=str(tensor.dtype).removeprefix("torch."),
                mend="save the adapter anew in one of these types; quantized ones are not served",
            )
        if not tensor.isfinite().all():
            raise ModelError(
                f"{path}: {name} of {module} holds what is no finite number",
                expected="finite floating-point numbers",
                found=str(tensor.dtype),
                mend="fetch the file again, or train the adapter anew: it is damaged",
            )
    return LowRank(down=down, up=up, scale=settings.scale_of(module))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
