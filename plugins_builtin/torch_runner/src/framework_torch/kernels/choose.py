"""Chooses a kernel for every operator of a model, and lets the model call it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from framework.contracts.base import Rejected, Supported
from framework.contracts.kernel import (
    OPERATORS,
    Kernel,
    KernelQuery,
    KernelSupported,
    OperatorSite,
    Prepared,
)
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import DeviceFacts
from framework.errors import ConfigError, SelectionError
from framework.plugins.blame import blaming, expect, unfit
from framework.plugins.near import did_you_mean
from framework.plugins.selection import Row, ask_all, select
from framework_torch.adapters.linear import LOW_RANK, AdapterLinears
from framework_torch.kernels.sources import sources_of
from framework_torch.memory import trim
from framework_torch.progress import tracked
from framework_torch.ranking import may_round

_MIB = 1024 * 1024


@dataclass(slots=True)
class _Tally:
    """What the start-up lines tell.  uses: (operator, kernel) -> how many.  num_bytes: the same,
    of weights in a kernel's own form.  left_out: sentences."""

    uses: Counter[tuple[str, str]] = field(default_factory=Counter)
    num_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: dict[str, None] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        told = []
        for (op, name), count in self.uses.items():
            own = self.num_bytes[op, name]
            packed = f", {own / _MIB:.1f} MiB of its own" if own else ""
            told.append(f"{op} {name} ({count}{packed})")
        if told:
            yield f"kernels: {', '.join(told)}"
        yield from self.left_out


def choose_kernels(
    context: RunnerContext,
    sites: Mapping[str, OperatorSite],
    facts: DeviceFacts,
    dtype: str,
    ranking: Sequence[str],
    adapters: AdapterLinears | None = None,
    done: Collection[str] = (),
    graph_mode: str = "none",
) -> tuple[str, ...]:
    """Choose, prepare and hand over, one use after the other; returns start-up lines.

    adapters: what computes them, as they change parts of what stands for others; where that does
    not suit the kernel of the whole, the parts are computed each by one.  done: uses that are
    computed otherwise already.
    graph_mode: "none", or what their calls may become part of.

    Raises ConfigError for a choice of the operator that concerns no use in this model, and
    SelectionError where a chosen kernel, or every kernel, cannot serve.
    """
    _check_choices(context.kernels, sites, adapters)
    _check_quantization(context.quantization, sites)
    tally = _Tally()
    asked: dict[object, tuple[KernelQuery, list[Row]]] = {}
    served = set(done)
    for name, site in tracked(sites, "preparing weights", shown=context.progress):
        if name in served:
            continue
        if _chosen_apart(context.kernels, site, sites):
            continue
        key = (site.op, tuple(site.sizes.items()), site.traits, site.shared, _dtypes(site))
        if key not in asked:
            query = _query(
                site,
                facts,
                dtype,
                free=site.op in context.kernels,
                quantization=context.quantization if _quantizable(site) else None,
                lossless=not may_round(context),
                graph_mode=graph_mode,
            )
            asked[key] = query, _candidates(context, site, query, ranking, tally)
        query, rows = asked[key]
        changed = adapters if _parts(site) else None
        if changed is not None:
            rows = [row for row in rows if changed.suits(row.record.name)]
        found = _prepare(context, name, site, query, rows, tally)
        if found is None:
            continue
        row, prepared = found
        if changed is not None and not changed.join(prepared):
            if site.op in context.kernels:
                raise _apart(context.kernels, [site.op])
            continue
        site.adopt(prepared)
        if facts.device == "cpu" and prepared.num_bytes >= _MIB:
            trim()  # what was packed lies in holes that the next weights often do not fit into
        served.update(_parts(site))
        tally.uses[site.op, row.record.name] += 1
        tally.num_bytes[site.op, row.record.name] += prepared.num_bytes
    return tuple(tally.lines())


def _parts(site: OperatorSite) -> Sequence[str]:
    """Of a `framework.contracts.kernel.WholeSite`; others have none."""
    return getattr(site, "parts", ())


def _chosen_apart(
    choices: Mapping[str, str], site: OperatorSite, sites: Mapping[str, OperatorSite]
) -> bool:
    """The operator has named kernels for parts of this use, and none for the whole."""
    ops = {sites[part].op for part in _parts(site)}
    return site.op not in choices and not ops.isdisjoint(choices)


def _check_choices(
    choices: Mapping[str, str],
    sites: Mapping[str, OperatorSite],
    adapters: AdapterLinears | None,
) -> None:
    whole = {site.op for site in sites.values() if _parts(site)} & choices.keys()
    unfit = sorted(op for op in whole if adapters is not None and not adapters.suits(choices[op]))
    if unfit:
        raise _apart(choices, unfit)
    known = sorted(
        {site.op for site in sites.values()} | ({LOW_RANK} if adapters is not None else set())
    )
    for op in choices:
        if op not in known:
            raise ConfigError(
                f"kernels names operator {op!r}, which this model does not use"
                f"{did_you_mean(op, known)}",
                expected=f"some of {', '.join(known)}"
                if known
                else "no choice of kernels: this model's definition computes all by itself",
                found=op,
                mend="take it out of `kernels`",
            )


def _apart(choices: Mapping[str, str], ops: Sequence[str]) -> ConfigError:
    return ConfigError(
        f"kernels names operator {ops[0]!r}, of which adapters change the parts",
        expected="a kernel that adds adapters by itself and that computes them "
        f"({LOW_RANK}), kernels for the parts alone, or no adapters",
        found=", ".join(f"{op}={choices[op]}" for op in ops),
        mend="take it out of `kernels`, or leave out enable_lora",
    )


def _check_quantization(asked: str | None, sites: Mapping[str, OperatorSite]) -> None:
    if asked is not None and not any(_quantizable(site) for site in sites.values()):
        raise ConfigError(
            f"quantization {asked!r} would change nothing of this model",
            expected="a model that lets kernels compute its linear maps",
            found="none of that kind" if sites else "one that computes all by itself",
            mend="leave out `quantization`",
        )


def _quantizable(site: OperatorSite) -> bool:
    operator = OPERATORS.get(site.op)
    return operator is not None and operator.quantizable


def _dtypes(site: OperatorSite) -> str:
    """Of its weights; the first one's, as all but special ones have it."""
    return str(next(iter(sources_of(site).values())).dtype).removeprefix("torch.")


def _query(
    site: OperatorSite,
    facts: DeviceFacts,
    dtype: str,
    *,
    free: bool,
    quantization: str | None,
    lossless: bool,
    graph_mode: str,
) -> KernelQuery:
    """free: the operator has named a kernel, which may do what none would do unasked.  lossless:
    weights are to be as exact as the element type: it was named, or the level is below the one
    at which they may be narrower."""
    return KernelQuery(
        op=site.op,
        platform=facts.name,
        device=facts.device,
        capability=facts.capability,
        features=facts.features,
        dtype=dtype,
        weight_dtype=_dtypes(site),
        sizes=site.sizes,
        traits=site.traits,
        keep_once=site.shared and not free,
        quantization=quantization,
        lossless=lossless and not free and quantization is None,
        graph_mode=graph_mode,
    )


def _candidates(
    context: RunnerContext,
    site: OperatorSite,
    query: KernelQuery,
    ranking: Sequence[str],
    tally: _Tally,
) -> list[Row]:
    """Those that support the query, in order.  A use that stands for others is computed by those
    whom the platform prefers, if by any.  Better ranked ones that would compute such an operator,
    and not this use, are told."""
    registry, operator = context.registry, context.kernels.get(query.op)
    table: Sequence[Row]
    if operator is None and _parts(site):
        asked = ask_all(registry, "kernel", query, ranking=ranking)
        table = [row for row in asked if row.record.name in ranking]
        for row in table:
            if isinstance(row.answer, Supported):
                registry.find("kernel", row.record.name)  # raises for a second claim to the name
                break
    else:
        table = select(registry, "kernel", query, operator=operator, ranking=ranking).table
    supporting = [row for row in table if isinstance(row.answer, Supported)]
    for row in table:
        if supporting and row is supporting[0]:
            break
        against = row.answer.reasons if isinstance(row.answer, Rejected) else ()
        if row.record.name in ranking and against and "op" not in {r.field for r in against}:
            tally.left_out[_left_out(query.op, row.record.name, row.reasons)] = None
    for row in supporting:
        expect(row.instance, "answer", row.answer, KernelSupported)
    return supporting


def _prepare(
    context: RunnerContext,
    name: str,
    site: OperatorSite,
    query: KernelQuery,
    rows: Sequence[Row],
    tally: _Tally,
) -> tuple[Row, Prepared] | None:
    """The first kernel whom the values of the weights suit; None if there is none, and the use
    stands for others."""
    against = []
    for row in rows:
        kernel = cast(Kernel, row.instance)
        with blaming(kernel, f"preparing {name}"):
            prepared = kernel.prepare_rows(query, sources_of(site), site.constants)
        if not isinstance(prepared, Rejected):
            expect(kernel, "prepare", prepared, Prepared)
            if query.keep_once and not prepared.keeps_weights and prepared.rows is None:
                needed = "weights that are kept, or `rows`, as others read them"
                raise unfit(kernel, f"prepared {name} with", needed, "neither")
            if against:  # a second claim to this name matters only now
                context.registry.find("kernel", row.record.name)
                tally.left_out.update(dict.fromkeys(against))
            return row, prepared
        against.append(_left_out(f"{query.op} of {name}", row.record.name, prepared.reasons))
    choice = context.kernels.get(query.op)
    if choice is None and _parts(site):
        tally.left_out.update(dict.fromkeys(against))
        return None
    raise SelectionError(
        f"no kernel can compute {query.op} of {name}: {'; '.join(against)}",
        plugin=f"kernel:{choice}" if choice else "kernel",
        expected=f"a kernel that suits these weights, {_short(query)}",
        found=f"{len(rows)} that serve such a use, none that suits the values",
        mend="choose another kernel" if choice else "install another kernel",
    )


def _left_out(what: str, name: str, reasons: Iterable[object]) -> str:
    return f"kernels: {what} is not computed by {name}: {'; '.join(map(str, reasons))}"


def _short(query: KernelQuery) -> str:
    return f"{query.dtype} {dict(query.sizes)}"
