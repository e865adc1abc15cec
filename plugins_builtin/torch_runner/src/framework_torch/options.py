"""What an operator can set of the torch runner."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator


class TorchOptions(BaseModel):
    """Options of `model_runner:torch`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile_folder: Path | None = Field(
        default=None,
        description="Where traces of profiles are written; none: none can be started.",
    )
    compile_cache: Path | None = Field(
        default=None,
        description="Where compiled code is kept; none: framework/code in the user's folder for "
        "caches.",
    )
    compile_ranges: tuple[int, ...] = Field(
        default=(1,),
        description="Last numbers of rows of the ranges that have code of their own; what is "
        "beyond them is one range more.",
    )

    @field_validator("compile_ranges")
    @classmethod
    def _rising(cls, ends: tuple[int, ...]) -> tuple[int, ...]:
        if any(later <= before for before, later in zip((0, *ends), ends, strict=False)):
            raise ValueError("numbers from 1 on, each larger than the one before")
        return ends
