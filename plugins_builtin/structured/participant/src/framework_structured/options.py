"""Options of the participant."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class StructuredOptions(BaseModel):
    """check_timeout: seconds that a look at a grammar may take before its request is queued, and
    compile_timeout those to make it ready; what takes longer is killed, and the request refused.
    workers: processes that do this at one time.  worker_memory: bytes that one may take beyond its
    libraries, None: any number.  cached_grammars: how many are kept ready."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    check_timeout: float = Field(default=10.0, gt=0)
    compile_timeout: float = Field(default=30.0, gt=0)
    workers: int = Field(default=2, ge=1, le=64)
    worker_memory: int | None = Field(default=4 << 30, ge=1 << 20)
    cached_grammars: int = Field(default=256, ge=1)
