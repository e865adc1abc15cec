"""The kinds of plugins: a table of data, one row each.

A new kind is a new row here and a new file in `framework/contracts/`.  A *reserved* row
settles group name and policy; its contract comes with the first implementation.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from framework.errors import PluginError
from framework.plugins.near import did_you_mean

GROUP_PREFIX = "framework."


class Scope(StrEnum):
    """A process in which plugins of a kind run."""

    FRONT_END = "front_end"
    ENGINE_CORE = "engine_core"
    WORKER = "worker"


class Cardinality(StrEnum):
    """How many plugins of a kind are in use at one time."""

    ONE = "one"
    ONE_PER_KV_GROUP = "one_per_kv_group"
    MANY = "many"


class ThirdParty(StrEnum):
    """What the policy says of third parties that the operator did not name."""

    ALLOWED = "allowed"
    DENIED = "denied"


class Stability(StrEnum):
    """provisional: until two real implementations live on it.  reserved: no contract yet."""

    STABLE = "stable"
    PROVISIONAL = "provisional"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Carries plugins that were made for the major before.

    version: the last contract version of that major.  mixin: "module:Class"; the class is put
    before the plugin's own, so that it can answer the new methods with the old ones.
    """

    version: str
    mixin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row.  contract: "module:Class", None while reserved.  version: "major.minor".

    scopes: processes in which plugins of the kind may run.  needs: those of them in which each
    one has to run, or the engine could not use it.  adapter: for plugins of the major before.
    """

    name: str
    group: str
    contract: str | None
    version: str = "1.0"
    scopes: frozenset[Scope]
    needs: frozenset[Scope] = frozenset()
    cardinality: Cardinality
    third_party: ThirdParty = ThirdParty.ALLOWED
    stability: Stability
    adapter: Adapter | None = None

    def __post_init__(self) -> None:
        assert self.needs <= self.scopes, f"{self.name} needs a scope that it has not"
        if self.adapter is not None:
            major = int(self.version.partition(".")[0])
            carried = int(self.adapter.version.partition(".")[0])
            assert carried == major - 1, f"{self.name}: an adapter carries the major before"

    def require_contract(self) -> str:
        """The dotted contract; PluginError for a reserved kind."""
        if self.contract is None:
            raise PluginError(
                f"kind {self.name!r} is reserved: this release has no contract for it",
                mend="use a release of the core whose `framework explain` knows the kind",
            )
        return self.contract


F, E, W = Scope.FRONT_END, Scope.ENGINE_CORE, Scope.WORKER
ONE, PER_GROUP, MANY = Cardinality.ONE, Cardinality.ONE_PER_KV_GROUP, Cardinality.MANY
ALLOWED, DENIED = ThirdParty.ALLOWED, ThirdParty.DENIED


def _row(
    name: str,
    contract: str | None,
    scopes: Set[Scope],
    cardinality: Cardinality,
    third_party: ThirdParty = ALLOWED,
    plural: str | None = None,
    optional: Set[Scope] = frozenset(),
    stable: bool = False,
    version: str = "1.0",
) -> Kind:
    """optional: scopes in which a plugin of the kind need not run.  stable: a full suite says what
    the contract promises, two implementations pass it, and nothing that is planned moves it."""
    there = Stability.STABLE if stable else Stability.PROVISIONAL
    return Kind(
        name=name,
        group=GROUP_PREFIX + (plural or name + "s"),
        contract=f"framework.contracts.{contract}" if contract else None,
        version=version,
        scopes=frozenset(scopes),
        needs=frozenset(scopes) - optional,
        cardinality=cardinality,
        third_party=third_party,
        stability=there if contract else Stability.RESERVED,
    )


# Denied for third parties until named: whatever sees requests or output.
KINDS: tuple[Kind, ...] = (
    _row(
        "platform",
        "platform:Platform",
        {F, E, W},
        ONE,
        optional={F, E},
        stable=True,
        version="1.2",
    ),
    _row("executor", "executor:Executor", {E}, ONE),
    _row("model_runner", "model_runner:ModelRunner", {W}, ONE),
    _row("model", "model:ModelDefinition", {W}, ONE),
    _row("model_source", "model_source:ModelSource", {F}, ONE, stable=True),
    _row("weight_loader", "weight_loader:WeightLoader", {F, W}, ONE, version="1.1"),
    _row("tokenizer", "tokenizer:TokenizerLoader", {F, E}, ONE, optional={E}),
    _row(
        "attention_backend",
        "attention_backend:AttentionBackend",
        {W},
        PER_GROUP,
        stable=True,
        version="1.2",
    ),
    _row("tensor_bridge", "tensor_bridge:TensorBridge", {W}, MANY),
    _row("kernel", "kernel:Kernel", {W}, MANY, stable=True, version="1.3"),
    _row("quantization_method", None, {W}, ONE),
    _row("compiler", "compiler:Compiler", {W}, ONE),
    _row("communicator", None, {W}, ONE),
    _row(
        "scheduling_policy",
        "scheduling_policy:SchedulingPolicy",
        {E},
        ONE,
        plural="scheduling_policies",
        stable=True,
    ),
    _row(
        "scheduler_participant",
        "participant:SchedulerParticipant",
        {F, E},
        MANY,
        DENIED,
        optional={F},
    ),
    _row(
        "kv_cache_spec",
        "kv_cache_spec:CacheManagerType",
        {E, W},
        MANY,
        optional={W},
        stable=True,
    ),
    _row("kv_connector", None, {E, W}, ONE),
    _row("structured_output", "structured_output:StructuredOutput", {F, E}, ONE, stable=True),
    _row(
        "speculative_proposer",
        "proposer:SpeculativeProposer",
        {W},
        ONE,
        stable=True,
        version="1.1",
    ),
    _row("lora", "lora:AdapterFormat", {W}, MANY, stable=True),
    _row(
        "logits_processor",
        "logits_processor:LogitsProcessor",
        {F, W},
        MANY,
        DENIED,
        stable=True,
        version="1.3",
    ),
    _row("media_processor", None, {F, W}, MANY, optional={W}),
    _row(
        "io_processor",
        "io_processor:IOProcessor",
        {F},
        MANY,
        DENIED,
        stable=True,
        version="1.3",
    ),
    _row("front_end", "front_end:FrontEnd", {F}, ONE, stable=True, version="1.6"),
    _row("endpoint", "endpoint:Endpoint", {F}, MANY, DENIED, stable=True, version="1.6"),
    _row("tool_parser", "tool_parser:ToolParser", {F}, ONE, stable=True),
    _row(
        "reasoning_parser",
        "reasoning_parser:ReasoningParser",
        {F, E},
        ONE,
        optional={E},
        stable=True,
    ),
    _row("stat_logger", "stat_logger:StatLogger", {F, E}, MANY, optional={F, E}, stable=True),
    _row("command", "command:Command", {F}, MANY, stable=True),
    _row("hooks", "hooks:HookSpecs", {F, E, W}, MANY, DENIED, plural="hooks", optional={F, E, W}),
)


def find_kind(name: str, kinds: Sequence[Kind] = KINDS) -> Kind:
    """The row of `name`; PluginError with near matches for an unknown one."""
    for kind in kinds:
        if kind.name == name:
            return kind
    names = [kind.name for kind in kinds]
    there = [kind.name for kind in kinds if kind.contract is not None]
    raise PluginError(
        f"unknown kind of plugin {name!r}{did_you_mean(name, names)}",
        expected=f"one of {', '.join(there)}",
        found=name,
    )


def known_version(kind: Kind) -> tuple[int, int]:
    """The contract version of a kind as numbers."""
    major, minor = kind.version.split(".")
    return int(major), int(minor)
