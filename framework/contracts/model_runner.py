"""Kind `model_runner`: computes steps.  The core knows a model only through this contract.

Life: `load`, `bind`, then any number of `submit` / `finish`, then `close`.  Up to
`RunnerInfo.max_loop_depth` steps may be submitted and not finished; they are finished in
the order of submission.  All calls come from one thread.  A call out of this order raises
IntegrityError, and so does any but `close` after `close`.

What a request gets depends on its own tokens, parameters and seed alone: not on its slot, on the
rows beside it, on how its tokens were cut into steps, or on which pages they lie in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.base import Contract
from framework.contracts.kernel_sets import KernelSet
from framework.contracts.step import (
    CachePlan,
    LateInputs,
    RunnerInfo,
    StepPlan,
    StepResult,
    Ticket,
)

if TYPE_CHECKING:
    from framework.contracts.lora import AdapterLimits
    from framework.contracts.model_source import ModelFiles
    from framework.plugins.registry import PluginRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerContext:
    """Everything a runner may know before it loads.

    model: files and configuration.  dtype: "auto" or a name such as "float32".
    max_slots: requests in the persistent batch.  max_step_tokens: most tokens of one step.
    max_model_len: longest sequence.  page_tokens: page size asked for, or None.
    cache_bytes: operator's choice for the cache, or None (the platform decides).
    choices: kind -> name that the operator chose.  kernels: the same, by operator ("linear").
    seed: of dummy weights.  pooling: how the operator wants vectors to be made, or None.
    logits_processors: names of the processors that the operator activated; a runner that applies
    them declares the feature "logits_processors", and is refused where there are some if not.
    proposer: name of the speculative proposer, or None; a runner that lets one propose declares
    the feature "proposer" and is refused with one if not.  max_drafts: the most it may propose per
    request and step.  draft_model: files of the proposer's own model, or None.
    quantization: how weights are to be kept, see `framework.contracts.kernel.KernelQuery`, or None;
    a runner that does as asked declares the feature "quantization" and is refused with one if not.
    cache_dtype: type of K and V in the cache, or "auto": the model's, or where `dtype` is "auto"
    and `kernel_set` "best" a narrower one that the attention backend prefers; a runner
    that does as asked declares the feature "cache_dtype" and is refused with another if not.
    adapters: how many adapters requests may name, and of which rank; None: none.  A runner that
    serves them declares the feature "adapters" and is refused with limits if not.
    kernel_set: what the platform may prefer, see `framework.contracts.kernel_sets.KERNEL_SETS`.
    enforce_eager: nothing is compiled, and no work of a device is captured as a graph.
    compiler: who compiles the layers of the model, "auto" for the first that can, or None: nobody;
    a runner that has them compiled declares the feature "compiler" and is refused with one if not.
    """

    model: ModelFiles
    registry: PluginRegistry
    dtype: str
    max_slots: int
    max_step_tokens: int
    max_model_len: int | None
    page_tokens: int | None = None
    cache_bytes: int | None = None
    load_format: str = "auto"
    seed: int = 0
    logprobs_mode: str = "raw_logprobs"
    choices: Mapping[str, str] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    logits_processors: tuple[str, ...] = ()
    progress: bool = False
    pooling: str | None = None
    proposer: str | None = None
    max_drafts: int = 0
    draft_model: ModelFiles | None = None
    kernel_set: KernelSet = "best"
    quantization: str | None = None
    cache_dtype: str = "auto"
    adapters: AdapterLimits | None = None
    compiler: str | None = None
    enforce_eager: bool = False


class ModelRunner(Contract):
    """See the module's words on the order of calls."""

    kind: ClassVar[str] = "model_runner"

    @abstractmethod
    def load(self, context: RunnerContext) -> RunnerInfo:
        """Load weights and choose kernels.  Raises ModelError, SelectionError, ConfigError."""

    @abstractmethod
    def bind(self, plan: CachePlan) -> None:
        """Allocate the cache as planned; warm up and capture graphs."""

    @abstractmethod
    def submit(self, plan: StepPlan) -> Ticket:
        """Begin a step.  Effects on tables of slots and pages take place in order of plans.

        Raises UnsupportedError for a plan that uses what was not declared (`StepPlan.used`), and
        IntegrityError for one step in flight too many; nothing has changed then.  The arrays
        of a plan may be read-only and shared with the plans before and after it.
        """

    @abstractmethod
    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        """End the oldest submitted step and return its result, rows as in the plan.

        A row whose generation does not own its slot gets no token: it has an error, or the
        step raises IntegrityError, as it does when another step than the oldest is named.
        """

    @abstractmethod
    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """A named operation of `RunnerInfo.control_ops`; others raise UnsupportedError.

        health {}: what there is to tell, in any state of work.

        sleep {"level": 1 or 2}, wake {}: declared together, and called after `bind` while no step
        is in flight.  Sleep gives back the memory of the cache, at level 2 that of the weights
        too; it may come again with a higher level.  Nothing is submitted until wake has taken the
        memory again, which loads the same weights, and leaves all slots and pages empty: the next
        plans may still release who was in a slot before.  A wake that raises changes nothing, and
        may come again; one that is awake has nothing to do.

        adapters {"action": "load", "id": N, "root": FOLDER}: begin to read an adapter under a load
        id that was never used before, or only for the same weights; {"action": "state", "id": N}:
        what became of it; both tell "state", which is "absent", "loading", "ready" (then also
        "digest", bytes that name what was read, "rank" and "num_bytes") or "failed" (then
        "reason", a sentence).  {"action": "drop", "id": N}: forget it; requests in slots keep
        what they entered with.  A request whose adapter is not ready is not computed: its rows
        bring an error.  Adapters outlast a sleep.

        profile {"action": "begin"} and {"action": "end", "rows": R, "context": C}: the steps
        between them are watched, and slower for it.  The end tells "operators", a list of (name,
        calls, seconds without those that it called); "work" of a decode step of R rows at C
        tokens ("flops" and "bytes" of the linear operators, "cache_bytes"); and "machine", what
        it gave just now ("flops_per_s", "bytes_per_s").  Where it began with "trace": True, the
        end needs no rows and no context, and tells "trace" alone: the file that was written, in the
        folder that the operator gave the runner.  Without one that beginning is an
        UnsupportedError.
        """

    @abstractmethod
    def close(self) -> None:
        """Give everything back.  May be called twice."""
