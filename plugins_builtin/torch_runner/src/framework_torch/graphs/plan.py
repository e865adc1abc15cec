"""Whether steps become graphs, which, and what is said of it at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from framework.contracts.graphs import SUPPORT, GraphDevice
from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import Platform
from framework.errors import ConfigError
from framework.plugins.blame import blaming, unfit
from framework_torch.choosing_attention import AttentionChoice
from framework_torch.graphs.dispatch import Dispatcher, usual_sizes
from framework_torch.graphs.modes import MODES, Mode, Modes, agreed, least, wanted
from framework_torch.options import TorchOptions


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """device: what records, or None: nothing is captured.  name: of the mode.  support: of
    attention in all groups.  sizes: see `Dispatcher`.  queries: tokens of a row in uniform steps.
    notes: start-up lines."""

    device: GraphDevice | None
    name: str
    support: str
    sizes: tuple[int, ...]
    queries: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def modes(self) -> Modes:
        """What is captured."""
        return MODES[self.name]

    @property
    def of_attention(self) -> str:
        """`AttentionQuery.graph_mode`."""
        return "full" if Mode.FULL in self.modes.all else "none"

    def dispatcher(self, max_tokens: int, max_requests: int) -> Dispatcher:
        """For steps of at most so many tokens and rows."""
        return Dispatcher(self.modes, self.sizes, self.queries, max_tokens, max_requests)


@dataclass(frozen=True, slots=True)
class GraphWish:
    """What is wanted before anybody knows what attention can do.  named: by the operator."""

    device: GraphDevice | None
    mode: str
    named: bool

    def with_attention(
        self,
        attention: Mapping[KVCacheSpec, AttentionChoice],
        context: RunnerContext,
        options: TorchOptions,
    ) -> GraphPlan:
        """Raises ConfigError where attention cannot be in graphs as the operator named them."""
        if self.mode == "none":
            return GraphPlan(None, "none", "none", (), (), ())
        support = least(_support(choice) for choice in attention.values())
        mode, why = agreed(self.mode, support, named=self.named)
        sizes = _sizes(options.capture_sizes, context.max_step_tokens)
        queries = {1}
        if context.max_drafts and SUPPORT.index(support) >= SUPPORT.index("uniform"):
            queries.add(1 + context.max_drafts)
        full = Mode.FULL in MODES[mode].all
        line = f"graphs: {mode}, of up to {max(sizes)} tokens; sizes: {len(sizes)}"
        if full and len(queries) > 1:
            line += f", also of {1 + context.max_drafts} tokens a row"
        notes = [line + (f"; not full_and_piecewise: {why}" if why else "")]
        if context.adapters is not None:
            notes.append("graphs: steps with adapters are computed operator by operator")
        return GraphPlan(self.device, mode, support, sizes, tuple(queries), tuple(notes))


def wish(context: RunnerContext, platform: Platform, options: TorchOptions) -> GraphWish:
    """What operator and level say, where the platform records graphs at all.  Raises ConfigError
    for a mode that was named and cannot be had."""
    with blaming(platform, "telling what records graphs"):
        device = platform.graphs()
    mode = wanted(
        options.graph_mode,
        context.kernel_set,
        eager=context.enforce_eager,
        able=device is not None,
    )
    return GraphWish(device, mode, options.graph_mode not in ("auto", "none"))


def _sizes(named: tuple[int, ...] | None, most: int) -> tuple[int, ...]:
    """Those that a step may have.  Raises ConfigError where the operator named none of these."""
    if named is None:
        return usual_sizes(most)
    sizes = tuple(size for size in named if size <= most)
    if not sizes:
        raise ConfigError(
            "no step is as long as the shortest graph",
            expected=f"a size of capture_sizes up to max_num_batched_tokens, {most}",
            found=f"{min(named)} and more",
            mend="name smaller ones, or leave out model_runner.torch.capture_sizes",
        )
    return sizes


def _support(choice: AttentionChoice) -> str:
    if choice.graphs not in SUPPORT:
        raise unfit(
            choice.backend,
            "says of graphs what nobody knows",
            f"one of {', '.join(SUPPORT)}",
            choice.graphs,
        )
    return choice.graphs
