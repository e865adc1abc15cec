"""What `framework explain` asks and assumes where no request and no model say more."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from framework.cli.options import DEFAULT_MODEL
from framework.config.dtypes import DTYPE_ALIASES
from framework.contracts.attention_backend import AttentionQuery
from framework.contracts.kernel import KernelQuery
from framework.contracts.model_source import ModelQuery
from framework.plugins.kinds import Scope
from framework.plugins.sets import within

if TYPE_CHECKING:
    from framework.cli.place import Place
    from framework.config.sections import EngineConfig
    from framework.contracts.base import Query
    from framework.contracts.platform import Platform
    from framework.plugins.kinds import Kind
    from framework.plugins.registry import PluginRegistry


def usual_query(place: Place, kind: Kind, config: EngineConfig) -> Query | None:
    """A query of this kind as an ordinary decoder would ask it; None if it has none that
    can be asked without a model's files."""
    if kind.name == "model_source":
        return ModelQuery(name=DEFAULT_MODEL)
    platform = place.platform if kind.name == "attention_backend" else None
    if platform is None:
        return None
    facts = platform.facts()
    set_to = (config.model.dtype, config.cache.kv_cache_dtype)
    dtype, kept = (DTYPE_ALIASES.get(name, name) for name in set_to)
    dtype = facts.dtypes[0] if dtype == "auto" else dtype
    return AttentionQuery(
        platform=facts.name,
        capability=facts.capability,
        features=facts.features,
        dtype=dtype,
        cache_dtype=dtype if kept == "auto" else kept,
        head_size=64,
        head_size_v=64,
        num_heads=16,
        num_kv_heads=4,
    )


def usual_queries(place: Place, kind: Kind) -> Sequence[Query]:
    """The queries of a kind that is asked more than one: what the contract's file publishes as
    `usual_queries(facts)`, for the platform that is ready."""
    if kind.contract is None:
        return ()
    contract = importlib.import_module(kind.contract.partition(":")[0])
    make = getattr(contract, "usual_queries", None)
    platform = place.platform if make is not None else None
    if make is None or platform is None:
        return ()
    queries: Sequence[Query] = make(platform.facts())
    return queries


def platform_ranking(place: Place, kind: Kind) -> Sequence[str]:
    """How the platform that is asked about ranks what a worker chooses."""
    if Scope.WORKER not in kind.scopes or kind.name == "platform":
        return ()
    platform = place.platform
    if platform is None:
        return ()
    limit = place.config.execution.kernel_set
    return within(place.registry, kind.name, platform.ranking(kind.name), limit)


def detections(registry: PluginRegistry) -> dict[str, str]:
    """What each platform that may be used finds, by its name."""
    found = {}
    for record in registry.candidates("platform"):
        detection = cast("Platform", registry.create_record(record)).detect()
        found[record.name] = "; ".join((detection.state, *detection.reasons))
    return found


def configured(config: EngineConfig, kind: Kind, query: Query | None = None) -> str | None:
    """The name that the configuration says for this kind of plugin (of a kernel, for the query's
    operator), or None."""
    if isinstance(query, KernelQuery):
        return config.execution.kernels.get(query.op)
    name = getattr(config.execution, kind.name, None) or getattr(config.scheduler, kind.name, None)
    return name if isinstance(name, str) else None
