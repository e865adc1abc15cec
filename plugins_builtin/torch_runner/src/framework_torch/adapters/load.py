"""What serves adapters, made beside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from framework.contracts.base import name_of
from framework.contracts.model import AdapterSite, Model
from framework.contracts.model_runner import RunnerContext
from framework.errors import UnsupportedError
from framework.plugins.blame import blaming
from framework_torch.adapters.bank import AdapterBank
from framework_torch.adapters.fitting import fit
from framework_torch.adapters.linear import LOW_RANK, AdapterLinears
from framework_torch.adapters.store import AdapterStore

if TYPE_CHECKING:
    from framework.contracts.platform import DeviceFacts


def adapter_linears(
    context: RunnerContext, dtype: str, facts: DeviceFacts, ranking: Sequence[str]
) -> AdapterLinears | None:
    """What computes adapters; None without limits."""
    if context.adapters is None:
        return None
    named = context.kernels.get(LOW_RANK)
    return AdapterLinears(context.registry, facts, dtype, ranking, named)


def load_bank(
    context: RunnerContext,
    model: Model,
    dtype: str,
    device: str,
    linears: AdapterLinears | None,
    before: AdapterBank | None = None,
) -> tuple[AdapterBank | None, tuple[str, ...]]:
    """None without limits, and start-up lines.  Kernels were chosen.  before: the one of the same
    model before a sleep, whose adapters go on.  Raises UnsupportedError for a model that has no
    linear maps for adapters."""
    limits = context.adapters
    if limits is None or linears is None:
        return None, ()
    sites = sites_of(model, context.model.name)
    if before is None:
        kind = getattr(torch, dtype)
        store = AdapterStore(
            context.registry,
            limits,
            lambda adapter: fit(adapter, sites, limits, linears.make, kind),
        )
        before = AdapterBank(store, context.max_slots, device)
    before.wrap(sites)
    parts = sum(len(site.parts) for site in sites.values())
    return before, (
        f"adapters: up to {limits.in_step} in a step, of rank {limits.rank}, for {parts} modules; "
        f"computed {linears.note}"
        + ("" if linears.within else "; layers operator by operator, so that they can be changed"),
    )


def sites_of(model: Model, name: str) -> Mapping[str, AdapterSite]:
    """The linear maps of a model that adapters may change."""
    offer = getattr(model, "adapter_sites", None)
    sites: Mapping[str, AdapterSite] = {}
    if offer is not None:
        with blaming(model, "telling which linear maps adapters may change"):
            sites = offer()
    if not sites:
        raise UnsupportedError(
            f"adapters cannot be served: {name!r} has no linear maps that they could change",
            expected="a model whose definition has adapter_sites",
            found=name_of(model),
            mend="leave enable_lora out, or use another definition of the model",
        )
    return sites
