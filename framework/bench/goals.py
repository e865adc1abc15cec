"""What ours shall reach beside its peers, as data, and what it reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.bench.compare import Samples

OURS, INT8, GGUF, UNCACHED = "framework", "framework int8", "framework GGUF", "framework uncached"
VLLM, HF, F16, Q8 = "vllm", "transformers", "llama.cpp-F16", "llama.cpp-Q8_0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A ratio of medians.  Of `metric`, `subject` in `task` shall have at least `least` times,
    or if given at most `most` times, what `beside` has in the same task, or in `base`."""

    task: str
    metric: str
    subject: str
    beside: str
    base: str | None = None
    least: float | None = None
    most: float | None = None

    @property
    def text(self) -> str:
        bound = f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"
        other = self.beside if self.base is None else f"{self.beside} at {self.base}"
        return f"{self.task}: {self.metric}, {self.subject} / {other} {bound}"

    def ratio(self, samples: Samples) -> float | None:
        """None if either was not measured."""
        mine = samples.median(self.task, self.subject, self.metric)
        other = samples.median(self.base or self.task, self.beside, self.metric)
        return None if mine is None or other is None or not other else mine / other

    def met(self, ratio: float) -> bool:
        if self.least is not None:
            return ratio >= self.least
        return self.most is not None and ratio <= self.most


def _at_least(task: str, metric: str, subject: str, *others: tuple[str, float]) -> list[Goal]:
    return [
        Goal(task=task, metric=metric, subject=subject, beside=beside, least=least)
        for beside, least in others
    ]


RATE, DECODE, TTFT = "output_tokens_per_s", "decode_tokens_per_s", "ttft_s"
PREFIX, LONG, START, STEP = "8x1016+8 sharing 1000 (warm)", "1x2000+1", "start", "step_ms"
NEAR, FAR = "32 rows at 100", "32 rows at 1500"

GOALS: Sequence[Goal] = (
    *_at_least("16x128+64", RATE, OURS, (VLLM, 1.5), (F16, 1.25)),
    *_at_least("16x128+64", RATE, INT8, (VLLM, 2.0), (Q8, 1.9)),
    *_at_least("64x128+64", RATE, OURS, (VLLM, 1.5)),
    *_at_least("64x128+64", RATE, INT8, (VLLM, 2.0)),
    *_at_least("1x128+64", DECODE, OURS, (F16, 1.0)),
    *_at_least("1x128+64", DECODE, INT8, (Q8, 1.0)),
    *_at_least("1x128+64", RATE, OURS, (VLLM, 3.0)),
    *_at_least(PREFIX, RATE, OURS, (UNCACHED, 5.0)),
    Goal(task=LONG, metric=TTFT, subject=OURS, beside=F16, most=1.0),
    Goal(task=FAR, metric=STEP, subject=OURS, beside=OURS, base=NEAR, most=1.5),
    Goal(task=START, metric=TTFT, subject=OURS, beside=HF, most=0.5),
    Goal(task=START, metric=TTFT, subject=OURS, beside=VLLM, most=0.2),
    Goal(task=START, metric=TTFT, subject=GGUF, beside=OURS, most=2.0),
)
