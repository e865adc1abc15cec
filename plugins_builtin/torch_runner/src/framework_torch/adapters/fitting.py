"""From the updates of an adapter to what the model's linear maps can compute.

A fused map (q, k and v in one) has one update, made of those of its parts:

    A    rows of all parts' A, one after another          [r_q + r_k + r_v, in]
    B    each part's B in its own rows and columns         [out_q + out_k + out_v, sum of r]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from framework.contracts.lora import Adapter, AdapterLimits, LowRank
from framework.contracts.model import AdapterSite
from framework.errors import UnsupportedError

SHOWN = 4
Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], None]
"""update(x [T, in], y [T, out], at): to rows `at` of y, all different, or to all if None, those of
x times A and B are added."""
UpdateMaker = Callable[[torch.Tensor, torch.Tensor], tuple[Update, int]]
"""A [rank, in] and B [out, rank] as something to call, and the bytes that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """An adapter that is ready.  updates: by site, with the scale in B.
    digest: names the numbers.  rank: the largest."""

    updates: Mapping[str, Update]
    digest: bytes
    rank: int
    num_bytes: int


def fit(
    adapter: Adapter,
    sites: Mapping[str, AdapterSite],
    limits: AdapterLimits,
    make: UpdateMaker,
    dtype: torch.dtype,
) -> Fitted:
    """Raises UnsupportedError, with all that is wrong of the first kind found."""
    places = {name: (site, rows) for site, at in sites.items() for name, rows in at.parts.items()}
    _check_targets(adapter, places)
    _check_complete(adapter, sites)
    _check_ranks(adapter, limits)
    _check_shapes(adapter, sites, places)
    by_site: dict[str, dict[tuple[int, int], LowRank]] = {}
    names: dict[str, list[str]] = {}
    for name, update in adapter.updates.items():
        site, rows = places[name]
        names.setdefault(site, []).append(name)
        if rows in by_site.setdefault(site, {}):
            raise _unfit(
                adapter,
                "two of its updates are for one linear map",
                "one update for each map; some of its modules are the same under two names",
                name,
            )
        by_site[site][rows] = update
    updates: dict[str, Update] = {}
    size = 0
    for site, parts in by_site.items():
        down, up = _joined(parts, sites[site].out_features)
        down, up = down.to(dtype), up.to(dtype)
        _check_finite(adapter, names[site], (down, up))
        updates[site], own = make(down, up)
        size += own
    return Fitted(
        updates=updates,
        digest=_digest(adapter),
        rank=max(len(update.down) for update in adapter.updates.values()),
        num_bytes=size,
    )


def _joined(
    parts: Mapping[tuple[int, int], LowRank], out_features: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B of a whole map, the scale in B; float32."""
    downs = [update.down.float() for update in parts.values()]
    ranks = [len(down) for down in downs]
    up = torch.zeros(out_features, sum(ranks))
    column = 0
    for ((start, end), update), rank in zip(parts.items(), ranks, strict=True):
        up[start:end, column : column + rank] = update.up.float() * update.scale
        column += rank
    return torch.cat(downs), up


def _check_targets(adapter: Adapter, places: Mapping[str, object]) -> None:
    strange = [name for name in adapter.updates if name not in places]
    if strange or not adapter.updates:
        modules = sorted({name.rpartition(".")[2] for name in places})
        raise _unfit(
            adapter,
            "it changes what this model does not let adapters change"
            if strange
            else "it changes nothing",
            f"modules {', '.join(modules)} of this model's layers",
            _listed(strange) or "no updates",
        )


def _check_complete(adapter: Adapter, sites: Mapping[str, AdapterSite]) -> None:
    """What the files select must be there.  A map of several names has an update under one."""
    if adapter.selects is None:
        return
    missing = []
    for site in sites.values():
        updated = {rows for name, rows in site.parts.items() if name in adapter.updates}
        missing += [
            name
            for name, rows in site.parts.items()
            if rows not in updated and adapter.selects(name)
        ]
    if missing:
        raise _unfit(
            adapter,
            "it has no update of modules that it says to change",
            "an update of each module of this model that its configuration selects",
            f"none of {_listed(missing)}",
            "fetch the adapter again, which is incomplete, or correct its configuration",
        )


def _check_ranks(adapter: Adapter, limits: AdapterLimits) -> None:
    large = {name: len(u.down) for name, u in adapter.updates.items() if len(u.down) > limits.rank}
    if large:
        raise _unfit(
            adapter,
            f"its rank {max(large.values())} is above max_lora_rank",
            f"a rank of at most {limits.rank}",
            _listed([f"{name} of rank {rank}" for name, rank in large.items()]),
            "raise max_lora_rank, or take an adapter of a lower rank",
        )


def _check_shapes(
    adapter: Adapter,
    sites: Mapping[str, AdapterSite],
    places: Mapping[str, tuple[str, tuple[int, int]]],
) -> None:
    for name, update in adapter.updates.items():
        site, (start, end) = places[name]
        inputs, outputs = sites[site].in_features, end - start
        rank = update.down.shape[0] if update.down.ndim else 0
        found = tuple(update.down.shape), tuple(update.up.shape)
        if rank < 1 or found != ((rank, inputs), (outputs, rank)):
            raise _unfit(
                adapter,
                f"{name} has other sizes in this model",
                f"A of [r, {inputs}] and B of [{outputs}, r]",
                f"A of {list(found[0])} and B of {list(found[1])}",
            )


def _check_finite(
    adapter: Adapter, names: Sequence[str], made: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """As the model computes with them: a narrower type, and B times the scale, have other bounds
    than what was read."""
    if not all(bool(tensor.isfinite().all()) for tensor in made):
        kind = str(made[0].dtype).removeprefix("torch.")
        raise _unfit(
            adapter,
            f"its numbers, or B times the scale, are too large for {kind}",
            f"numbers of at most {torch.finfo(made[0].dtype).max:.3g}",
            f"larger ones in {_listed(names)}",
            "correct lora_alpha, or serve the model in a wider type",
        )


def _unfit(
    adapter: Adapter, what: str, expected: object, found: object, mend: str | None = None
) -> UnsupportedError:
    made = f"; it was made for {adapter.base}" if adapter.base else ""
    mend = mend or "take an adapter that was made for this model"
    return UnsupportedError(f"{what}{made}", expected=expected, found=found, mend=mend)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _digest(adapter: Adapter) -> bytes:
    import hashlib

    digest = hashlib.sha256()
    for name, update in sorted(adapter.updates.items()):
        digest.update(f"{name} {list(update.down.shape)} {update.scale!r}\0".encode())
        for tensor in (update.down, update.up):
            digest.update(str(tensor.dtype).encode())
            digest.update(_bytes_of(tensor))
    return digest.digest()


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(torch.uint8)
    return memoryview(flat.numpy()).cast("B")


def names_of(sites: Iterable[AdapterSite]) -> frozenset[str]:
    """All modules that adapters may change."""
    return frozenset(name for site in sites for name in site.parts)
