"""Kind `model`: a definition that the torch runner can build.

A definition answers for a configuration and builds a module; weights are filled in by the
runner through the parameter table.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from framework.contracts.base import Answer, Contract, Query, Supported, versioned

if TYPE_CHECKING:
    import torch

    from framework.contracts.attention_backend import AttentionParams
    from framework.contracts.kv_cache_spec import KVCacheSpec
    from framework.contracts.model_source import ModelFiles
    from framework.contracts.weight_loader import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureQuery(Query):
    """architecture: first of `architectures` in the configuration.  config: all of it.
    trust_remote_code: the operator lets the model bring code of its own."""

    architecture: str = versioned(since="1.0")
    config: Mapping[str, Any] = versioned(since="1.0")
    trust_remote_code: bool = versioned(since="1.0", neutral=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSupported(Supported):
    """parameters: how many numbers the model has; None if only building it could tell.  With it
    a runner can refuse dummy weights that memory cannot hold before anything is allocated."""

    parameters: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One row of a model's parameter table.  Loader, packing, adapters, quantization and
    tensor parallelism all read it.

    name: of the module's parameter.  checkpoint, gguf: names in files, one per part.
    parts: rows (of axis 0) of each part of a fused parameter, in order; () when whole.
    shard_axis: axis that tensor parallelism splits, or None.  quantizable: a linear weight.
    lora_targets: names by which adapters call the parts.  expert_axis: or None.
    tied_to: name of the parameter that this one shares, or None.
    gguf_transform: name of the change that GGUF conversion made and loading must undo.
    optional: may be absent from the files.
    """

    name: str
    checkpoint: tuple[str, ...]
    gguf: tuple[str, ...] = ()
    parts: tuple[int, ...] = ()
    shard_axis: int | None = None
    quantizable: bool = False
    lora_targets: tuple[str, ...] = ()
    expert_axis: int | None = None
    tied_to: str | None = None
    gguf_transform: str | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSite:
    """A linear map that adapters may change.

    parts: by the names that files of adapters use, which are those of the checkpoint without
    ".weight": rows of the result, [start, end).  A fused map has several; two names of one module
    are two entries with the same rows.  in_features, out_features: of the whole map.
    wrap: from now on the map's result is change(x, result); x [T, in_features] and result
    [T, out_features], whose rows are the tokens of the step in their order, and which the change
    may overwrite.  It is called once, after kernels were chosen.
    """

    in_features: int
    out_features: int
    parts: Mapping[str, tuple[int, int]]
    wrap: Callable[[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer:
    """One attention layer: what it caches, and what its backend must be able to do."""

    spec: KVCacheSpec
    num_heads: int
    params: AttentionParams


class ForwardContext(Protocol):
    """What a model may ask for while it computes one step."""

    def attend(self, layer: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write k, v of this step to the cache of `layer`, then attend.

        q [T, heads, head_size], k [T, kv_heads, head_size], v [T, kv_heads, head_size_v];
        returns [T, heads, head_size_v].
        """
        ...


class Model(Protocol):
    """A built model, a `torch.nn.Module`.  T tokens of a step, flattened; H hidden size.
    Called in inference mode; rows of different requests lie one after another and must not be
    mixed but by `context.attend`.

    vocab_size: width of the logits.  max_model_len: longest sequence, or None.

    A model may also have `generates = False`, if it has no logits, and `hidden_size`, if that is
    not what `embed` gives.  Where a token sees later ones, its layers have specs of the class
    EncoderOnlySpec: the runner then computes whole prompts.

    A model with a head for classes has `class_labels`, a tuple of their names, and
    `classify(hidden [T, H] of one whole prompt, use_activation) -> float32 [C]`: their
    probabilities, or what these are made of.

    A model may also have `operators() -> Mapping[str, OperatorSite]`, the operators that kernels
    shall compute for it (see `kernel.py`); without, no kernel is chosen for it.

    A model may also have `adapter_sites() -> Mapping[str, AdapterSite]`, by names of its own, the
    linear maps that adapters may change; without, the runner refuses adapters.
    """

    vocab_size: int
    max_model_len: int | None

    def attention_layers(self, cache_dtype: str) -> Mapping[str, AttentionLayer]:
        """By layer name, in order.  The names are those that `forward` gives to
        `context.attend`; layers with equal specs share pages and a backend."""
        ...

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """ids int64 [T] -> hidden [T, H]."""
        ...

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        context: ForwardContext,
        layers: range | None = None,
        taps: Sequence[int] = (),
    ) -> Any:
        """hidden [T, H], positions int64 [T] -> hidden [T, H] after the final norm; with taps
        also the hidden states after those layers."""
        ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [R, H] -> float32 [R, vocab]."""
        ...


class ModelDefinition(Contract):
    """Builds models of the architectures it answers for."""

    kind: ClassVar[str] = "model"

    @abstractmethod
    def answer(self, query: ArchitectureQuery) -> Answer:
        """Whether this definition can build that architecture with that configuration;
        `ModelSupported` if it knows how large the model is."""

    @abstractmethod
    def build(self, model: ModelFiles, weights: Weights | None, dtype: str, seed: int) -> Model:
        """The model with its weights; `weights` None fills it with seeded dummy ones."""
