"""Settings of the engine core."""

from __future__ import annotations

from dataclasses import dataclass

from framework.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreConfig:
    """max_num_seqs: slots, the most requests that run at one time.
    max_num_batched_tokens: most tokens of one step.  max_model_len: longest sequence, None:
    what model and cache allow.  page_tokens: tokens per cache page, None: the backend's
    choice.  loop_depth: steps in flight.  num_pages: overrides what the bytes allow.
    identity: everything that makes cached pages of two engines differ (model, dtypes).
    max_drafts: drafts per request and step.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    page_tokens: int | None = None
    loop_depth: int = 1
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    num_pages: int | None = None
    identity: str = ""
    max_drafts: int = 0

    def __post_init__(self) -> None:
        for name, low in (
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", 1),
            ("max_model_len", 1),
            ("page_tokens", 1),
            ("loop_depth", 1),
            ("num_pages", 2),
            ("max_drafts", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < low:
                raise ConfigError(f"{name} is too small", expected=f">= {low}", found=value)
