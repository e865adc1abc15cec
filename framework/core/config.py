"""Settings of the engine core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from framework.errors import ConfigError

_LEAST = {
    "max_num_seqs": 1,
    "max_num_active": 1,
    "max_num_batched_tokens": 1,
    "max_model_len": 1,
    "page_tokens": 1,
    "loop_depth": 1,
    "num_pages": 2,
    "max_drafts": 0,
    "lookahead": 0,
    "max_queued_requests": 1,
    "max_queued_tokens": 1,
    "queue_timeout": 0,
    "participant_timeout": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """Sizes.
    max_num_seqs: slots, the most requests that are in the cache at one time.
    max_num_active: most requests of one step, None: all slots.
    max_num_batched_tokens: most tokens of one step.  max_model_len: longest sequence, None:
    what model and cache allow.  page_tokens: tokens per cache page, None: the backend's
    choice.  num_pages: overrides what the bytes allow.  loop_depth: steps in flight.
    max_drafts: drafts per request and step.  lookahead: tokens past those of a step for which a
    request gets pages as well, where some are free.

    Admission.
    long_prefill_threshold: most tokens per step of a request while others want some too;
    "auto": an equal share of the budget; None: no limit.  A request alone has none.
    watermark: share of the pages that stays free when a request is admitted.
    whole_sequence_must_fit: admit a request only if pages for all its tokens, prompt and
    output, are free beside those that running ones may still claim: nobody is preempted.
    max_queued_requests: more are refused (OverloadedError).  max_queued_tokens: the same for the
    tokens of the prompts that wait; one that is longer may wait alone.  queue_timeout: seconds
    after which a request that has never run ends with an error.  participant_timeout: seconds
    after which requests that a participant holds back, while nothing else can run, end with an
    error that names it; None: never.

    Prefix cache.
    prefix_hash: "sha256" or "xxhash".  enable_kv_events: keep events for `take_kv_events`.
    identity: everything that makes cached pages of two engines differ (model, dtypes).
    """

    max_num_seqs: int = 256
    max_num_active: int | None = None
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    page_tokens: int | None = None
    num_pages: int | None = None
    loop_depth: int = 1
    max_drafts: int = 0
    lookahead: int = 0
    enable_chunked_prefill: bool = True
    long_prefill_threshold: int | Literal["auto"] | None = None
    watermark: float = 0.0
    whole_sequence_must_fit: bool = False
    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None
    queue_timeout: float | None = None
    participant_timeout: float | None = 60.0
    enable_prefix_caching: bool = True
    prefix_hash: str = "sha256"
    enable_kv_events: bool = False
    identity: str = ""

    def __post_init__(self) -> None:
        for name, low in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= low:  # NaN is not
                raise ConfigError(f"{name} is too small", expected=f">= {low}", found=value)
        if not 0 <= self.watermark < 1:
            raise ConfigError("watermark is no share", expected="[0, 1)", found=self.watermark)
        threshold = self.long_prefill_threshold
        if not (threshold in (None, "auto") or (isinstance(threshold, int) and threshold >= 1)):
            raise ConfigError(
                "long_prefill_threshold is invalid",
                expected='None, "auto" or a number of tokens >= 1',
                found=repr(threshold),
            )

    @property
    def tokens_in_flight(self) -> int:
        """Most tokens of one request that are planned and not yet confirmed: pages before
        them cannot be given back."""
        return self.max_num_batched_tokens * self.loop_depth

    @property
    def active_limit(self) -> int:
        """Most requests of one step."""
        return min(self.max_num_active or self.max_num_seqs, self.max_num_seqs)
