"""Each capability of an attention backend twice: declared, it is right; else it is refused."""

from __future__ import annotations

from framework.contracts.attention_backend import AttentionSupported
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.attention_base import AttentionClauses

CAPABILITIES = (
    "float32",
    "bfloat16",
    "float16",
    "mixed_types",
    "grouped_heads",
    "unequal_head_sizes",
    "window",
    "sink_tokens",
    "chunk",
    "softcap",
    "sinks",
    "alibi",
    "bidirectional",
    "several_per_decode",
    "batch_invariant",
    "graphs",
)
TOLD = ("batch_invariant", "graphs")
"""Those that an answer tells of itself."""


class PairClauses(AttentionClauses):
    """A capability is declared if `answer` supports a query that asks for it."""

    def declared(self) -> frozenset[str]:
        """What `answer` supports when a query asks for it; `batch_invariant` and `graphs` as the
        answer says.

        Latent attention, cascade, tensor and context parallelism and connectors are tried by no
        clause: where a backend claims them, the report says so.
        """
        asked = [name for name in CAPABILITIES if name not in TOLD]
        found = {name for name in asked if self.supported(name)}
        answer = self.ask(self.plain())
        if isinstance(answer, AttentionSupported) and answer.batch_invariant:
            found.add("batch_invariant")
        if isinstance(answer, AttentionSupported) and answer.graphs != "none":
            found.add("graphs")
        return frozenset(found)

    @clause(
        "ATTN-101", "queries and a cache in float32: as the reference", needs="float32", of=("run",)
    )
    def float32_is_right(self) -> None:
        self.serves("float32")

    @clause("ATTN-201", "queries and a cache in float32: refused", lacks="float32", of=("run",))
    def float32_is_refused(self) -> None:
        self.refuses("float32")

    @clause(
        "ATTN-102",
        "queries and a cache in bfloat16: as the reference",
        needs="bfloat16",
        of=("run",),
    )
    def bfloat16_is_right(self) -> None:
        self.serves("bfloat16")

    @clause("ATTN-202", "queries and a cache in bfloat16: refused", lacks="bfloat16", of=("run",))
    def bfloat16_is_refused(self) -> None:
        self.refuses("bfloat16")

    @clause(
        "ATTN-103", "queries and a cache in float16: as the reference", needs="float16", of=("run",)
    )
    def float16_is_right(self) -> None:
        self.serves("float16")

    @clause("ATTN-203", "queries and a cache in float16: refused", lacks="float16", of=("run",))
    def float16_is_refused(self) -> None:
        self.refuses("float16")

    @clause(
        "ATTN-104",
        "a cache in another type than the queries: as the reference",
        needs="mixed_types",
        of=("run",),
    )
    def mixed_types_is_right(self) -> None:
        self.serves("mixed_types")

    @clause(
        "ATTN-204",
        "a cache in another type than the queries: refused",
        lacks="mixed_types",
        of=("run",),
    )
    def mixed_types_is_refused(self) -> None:
        self.refuses("mixed_types")

    @clause(
        "ATTN-105",
        "several heads that share K and V: as the reference",
        needs="grouped_heads",
        of=("run",),
    )
    def grouped_heads_is_right(self) -> None:
        self.serves("grouped_heads")

    @clause(
        "ATTN-205", "several heads that share K and V: refused", lacks="grouped_heads", of=("run",)
    )
    def grouped_heads_is_refused(self) -> None:
        self.refuses("grouped_heads")

    @clause(
        "ATTN-106",
        "head sizes of K and V that differ: as the reference",
        needs="unequal_head_sizes",
        of=("run",),
    )
    def unequal_head_sizes_is_right(self) -> None:
        self.serves("unequal_head_sizes")

    @clause(
        "ATTN-206",
        "head sizes of K and V that differ: refused",
        lacks="unequal_head_sizes",
        of=("run",),
    )
    def unequal_head_sizes_is_refused(self) -> None:
        self.refuses("unequal_head_sizes")

    @clause(
        "ATTN-107",
        "a window, and pages before it that are gone: as the reference",
        needs="window",
        of=("run",),
    )
    def window_is_right(self) -> None:
        self.serves("window")

    @clause(
        "ATTN-207",
        "a window, and pages before it that are gone: refused",
        lacks="window",
        of=("run",),
    )
    def window_is_refused(self) -> None:
        self.refuses("window")

    @clause(
        "ATTN-108",
        "first tokens that stay seen beside a window: as the reference",
        needs="sink_tokens",
        of=("run",),
    )
    def sink_tokens_is_right(self) -> None:
        self.serves("sink_tokens")

    @clause(
        "ATTN-208",
        "first tokens that stay seen beside a window: refused",
        lacks="sink_tokens",
        of=("run",),
    )
    def sink_tokens_is_refused(self) -> None:
        self.refuses("sink_tokens")

    @clause(
        "ATTN-109",
        "chunks, and pages before them that are gone: as the reference",
        needs="chunk",
        of=("run",),
    )
    def chunk_is_right(self) -> None:
        self.serves("chunk")

    @clause(
        "ATTN-209",
        "chunks, and pages before them that are gone: refused",
        lacks="chunk",
        of=("run",),
    )
    def chunk_is_refused(self) -> None:
        self.refuses("chunk")

    @clause("ATTN-110", "a soft cap of the scores: as the reference", needs="softcap", of=("run",))
    def softcap_is_right(self) -> None:
        self.serves("softcap")

    @clause("ATTN-210", "a soft cap of the scores: refused", lacks="softcap", of=("run",))
    def softcap_is_refused(self) -> None:
        self.refuses("softcap")

    @clause(
        "ATTN-111",
        "sinks, which take weight and have no value: as the reference",
        needs="sinks",
        of=("run",),
    )
    def sinks_is_right(self) -> None:
        self.serves("sinks")

    @clause(
        "ATTN-211",
        "sinks, which take weight and have no value: refused",
        lacks="sinks",
        of=("run",),
    )
    def sinks_is_refused(self) -> None:
        self.refuses("sinks")

    @clause("ATTN-112", "ALiBi: as the reference", needs="alibi", of=("run",))
    def alibi_is_right(self) -> None:
        self.serves("alibi")

    @clause("ATTN-212", "ALiBi: refused", lacks="alibi", of=("run",))
    def alibi_is_refused(self) -> None:
        self.refuses("alibi")

    @clause(
        "ATTN-113",
        "a mask that hides nothing: as the reference",
        needs="bidirectional",
        of=("run",),
    )
    def bidirectional_is_right(self) -> None:
        self.serves("bidirectional")

    @clause("ATTN-213", "a mask that hides nothing: refused", lacks="bidirectional", of=("run",))
    def bidirectional_is_refused(self) -> None:
        self.refuses("bidirectional")
