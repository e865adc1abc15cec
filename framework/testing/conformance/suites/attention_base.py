"""What the clauses for attention backends share: a place, plain features, variants, plays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import DTYPE_BYTES
from framework.contracts.platform import DeviceFacts
from framework.errors import UnsupportedError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.outcomes import NoDevice, Violation
from framework.testing.conformance.suites.attention_parts import Options, Place, Request
from framework.testing.conformance.suites.attention_reference import Features
from framework.testing.conformance.suites.attention_stage import Stage
from framework.testing.conformance.suites.place import INSTALL, bridge_to, ready_platforms

if TYPE_CHECKING:
    from framework.testing.conformance.probe import Probe
    from framework.testing.conformance.target import Target

DTYPES = ("float32", "bfloat16", "float16")
HEAD_SIZES = (16, 32, 64, 128, 8, 40, 80, 96, 112, 192, 256)
UNEQUAL = ((16, 8), (24, 16), (192, 128), (128, 64), (576, 512))
_ABOUT_THE_PLACE = {"platform", "capability", "tensor_api"}


def changes(capability: str, plain: Features) -> list[dict[str, Any]]:
    """Ways of asking for a capability, as changes to plain features."""
    if capability in DTYPES:
        return [{"dtype": capability, "cache_dtype": capability}]
    if capability == "mixed_types":
        return [{"cache_dtype": name} for name in DTYPE_BYTES if name != plain.dtype]
    if capability == "unequal_head_sizes":
        return [{"head_size": size, "head_size_v": size_v} for size, size_v in UNEQUAL]
    return _CHANGES[capability]


_CHANGES: dict[str, list[dict[str, Any]]] = {
    "grouped_heads": [
        {"num_kv_heads": 2},
        {"num_kv_heads": 1},
        {"num_heads": 6, "num_kv_heads": 2},
    ],
    "window": [{"window": 5}, {"window": 1}, {"window": 17}, {"window": 1000}],
    "sink_tokens": [{"window": 5, "sink_tokens": 3}, {"window": 9, "sink_tokens": 20}],
    "chunk": [{"chunk": 6}, {"chunk": 1}, {"chunk": 16}, {"chunk": 1000}],
    "softcap": [{"softcap": 0.6}, {"softcap": 30.0}],
    "sinks": [{"sinks": True}],
    "alibi": [{"alibi": True}],
    "bidirectional": [{"causal": False}],
    "several_per_decode": [{"several": True}],
}


class AttentionClauses:
    """What `AttentionBackendSuite` has, and its clauses rest on."""

    target: Target
    tensor_api: ClassVar[str]
    platform: ClassVar[str | None]
    effort: ClassVar[float]

    if TYPE_CHECKING:  # of Suite

        def new(self) -> Any: ...

        def cases(self, count: int) -> Iterator[Case]: ...

        def trial(self, exercise: Callable[[Any], None] | None = None) -> Probe: ...

    def tries(self, count: int) -> Iterator[Case]:
        """Random cases; more of them, the more effort is wanted."""
        return self.cases(max(1, round(count * self.effort)))

    def once(self) -> Case:
        """The only case of a clause."""
        return next(iter(self.cases(1)), Case("", 0, 0))

    def place(self) -> Place:
        """Raises NoDevice where there is no bridge, or no platform that the backend is for."""
        return Place(
            bridge=bridge_to(self.target.registry, self.tensor_api),
            facts=self.found()[0],
            tensor_api=self.tensor_api,
        )

    def facts(self) -> DeviceFacts:
        """The platform it is tried on."""
        return self.found()[0]

    def plain(self) -> Features:
        """What it serves without any capability."""
        return self.found()[1]

    def found(self) -> tuple[DeviceFacts, Features]:
        """Where something is served, and what; looked for once."""
        if "attention" not in self.target.memo:
            self.target.memo["attention"] = self._look()
        found: tuple[DeviceFacts, Features] = self.target.memo["attention"]
        return found

    def _look(self) -> tuple[DeviceFacts, Features]:
        platforms = ready_platforms(self.target.registry, self.platform)
        refused: list[Rejected] = []
        for facts in platforms:
            for size in HEAD_SIZES:
                for dtype in (name for name in DTYPES if name in facts.dtypes):
                    features = Features(
                        dtype=dtype, cache_dtype=dtype, head_size=size, head_size_v=size
                    )
                    answer = self.new().answer(features.query(facts, self.tensor_api))
                    if isinstance(answer, AttentionSupported):
                        return facts, features
                    refused.append(answer)
        about = [{reason.field for reason in answer.reasons} for answer in refused]
        if all(fields & _ABOUT_THE_PLACE for fields in about):
            names = ", ".join(facts.name for facts in platforms) or "none"
            mend = "" if platforms else f"; {INSTALL}, or another platform"
            raise NoDevice(f"no platform that it serves is ready (ready: {names}){mend}")
        raise Violation(
            "it rejects every plain query\n"
            f"  expected: one of head sizes {HEAD_SIZES} in one of {DTYPES}\n"
            f"  found:    {'; '.join(str(reason) for reason in refused[0].reasons)}"
        )

    def ask(self, features: Features, page_tokens: int | None = None) -> Any:
        """The answer of a new instance."""
        return self.new().answer(features.query(self.facts(), self.tensor_api, page_tokens))

    def query(self) -> AttentionQuery:
        """A plain one, which is supported."""
        return self.plain().query(self.facts(), self.tensor_api)

    def page_sizes(self, features: Features) -> tuple[int, ...]:
        """Those offered for features that are supported."""
        answer = self.ask(features)
        expect(isinstance(answer, AttentionSupported), "it rejects what it supported before")
        sizes: tuple[int, ...] = answer.page_tokens
        return sizes

    def head_sizes(self) -> list[int]:
        """Those of the usual sizes that are served."""
        sizes = [replace(self.plain(), head_size=s, head_size_v=s) for s in HEAD_SIZES]
        return [f.head_size for f in sizes if isinstance(self.ask(f), AttentionSupported)]

    def variants(self, capability: str) -> list[Features]:
        """Features that ask for one capability more than the plain ones."""
        plain = self.plain()
        return [replace(plain, **change) for change in changes(capability, plain)]

    def supported(self, capability: str) -> list[Features]:
        """The variants that are supported."""
        found = [
            f for f in self.variants(capability) if isinstance(self.ask(f), AttentionSupported)
        ]
        if capability in DTYPES or capability == "mixed_types":
            found = [f for f in found if f.dtype in self.facts().dtypes]
        return found

    def serves(self, capability: str) -> None:
        """Random plays of the supported variants give what the reference gives."""
        variants = self.supported(capability)
        for case in self.tries(len(variants) * 2):
            features = variants[case.index % len(variants)]
            self.play(case, features, self.page_sizes(features)[0])

    def refuses(self, capability: str) -> None:
        """None of the variants is computed, and nothing is written."""
        for case in self.cases(len(self.variants(capability))):
            self.refused(case, self.variants(capability)[case.index])

    def refused(self, case: Case, features: Features) -> None:
        """UnsupportedError on the way from layout to run, before anything is written."""
        place, answer = self.place(), self.ask(features)
        case.note(**noted(features))
        expect(isinstance(answer, Rejected), "it is supported, and then not", found=answer)
        if not {features.dtype, features.cache_dtype} <= set(
            place.bridge.dtypes(place.facts.device)
        ):
            return
        options = Options(spec=features.plain_spec(), num_pages=8)
        page_tokens = self.page_sizes(self.plain())[0]
        before, out, stage = b"", None, None
        try:
            stage = Stage(self.new(), place, [features], page_tokens, case.rng, options)
            values = stage.values(4)
            before = stage.content().tobytes()
            rows = [(stage.request(), 3), (stage.request(), 1)]
            metadata = stage.begin(rows, values)
            out = stage.blank(0, 4)
            stage.call(0, stage.inputs(0, values), metadata, out)
        except UnsupportedError:
            if stage is not None and before:
                expect(stage.content().tobytes() == before, "it refuses, and has written the cache")
            if out is not None:
                untouched = np.isnan(place.bridge.array(out)).all()
                expect(untouched, "it refuses, and has written its output")
            return
        reasons = "; ".join(str(reason) for reason in answer.reasons)
        raise Violation(
            "what it rejects is computed all the same\n"
            "  expected: UnsupportedError of layout, builder, plan or run\n"
            f"  found:    no error, though it rejects: {reasons}"
        )

    def play(
        self,
        case: Case,
        features: Features,
        page_tokens: int,
        *,
        totals: Sequence[int] | None = None,
        options: Options | None = None,
        backend: Any = None,
    ) -> Stage:
        """Requests of some lengths, computed in random pieces in random batches."""
        rng = case.rng
        lengths = list(totals or random_lengths(rng, page_tokens))
        case.note(**noted(features), page_tokens=page_tokens, lengths=lengths)
        needed = sum(-(-length // page_tokens) for length in lengths)
        chosen = replace(options or Options(), num_pages=needed + 4)
        stage = Stage(backend or self.new(), self.place(), [features], page_tokens, rng, chosen)
        advance(stage, [(stage.request(), length) for length in lengths])
        return stage


def advance(stage: Stage, requests: Sequence[tuple[Request, int]], steps: int = 5) -> None:
    """Compute requests up to their lengths, in at most so many steps."""
    for step in range(steps):
        rows = []
        for index in stage.rng.permutation(len(requests)):
            request, total = requests[index]
            left = total - request.length
            new = left if step == steps - 1 else piece(stage.rng, left)
            if new:
                rows.append((request, new))
        if rows:
            stage.step(rows)


def piece(rng: np.random.Generator, left: int) -> int:
    """How many of the tokens that are left one step takes: one, all, some or none."""
    if left < 2:
        return left
    way = rng.random()
    if way < 0.3:
        return 1
    if way < 0.5:
        return left
    return int(rng.integers(0 if way > 0.9 else 1, left))


def random_lengths(rng: np.random.Generator, page_tokens: int) -> list[int]:
    """Lengths of two to four requests, often at the ends of pages."""
    near = [1, page_tokens - 1, page_tokens, page_tokens + 1, 2 * page_tokens + 1]
    usual = [length for length in near if 0 < length <= 70]
    most = min(70, max(24, 3 * page_tokens))
    return [
        int(rng.choice(usual)) if usual and rng.random() < 0.5 else int(rng.integers(1, most))
        for _ in range(int(rng.integers(2, 5)))
    ]


def noted(features: Features) -> dict[str, Any]:
    """What of the features differs from the plainest, for messages."""
    default = Features(dtype="", cache_dtype="", head_size=0, head_size_v=0)
    names = Features.__dataclass_fields__
    return {n: getattr(features, n) for n in names if getattr(features, n) != getattr(default, n)}
