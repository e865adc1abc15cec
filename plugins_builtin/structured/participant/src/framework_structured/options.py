"""Options of the participant."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class StructuredOptions(BaseModel):
    """What takes longer than a timeout is killed, and its request is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check_timeout: float = Field(
        default=10.0,
        gt=0,
        description="seconds that a look at a grammar may take before its request is queued",
    )
    compile_timeout: float = Field(
        default=30.0, gt=0, description="seconds that it may take to make a grammar ready"
    )
    workers: int = Field(
        default=2, ge=1, le=64, description="processes that look at grammars at one time"
    )
    worker_memory: int | None = Field(
        default=4 << 30,
        ge=1 << 20,
        description="bytes that such a process may take beyond its libraries; None: any number",
    )
    cached_grammars: int = Field(default=256, ge=1, description="grammars that are kept ready")
