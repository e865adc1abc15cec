"""What an operator can set of the torch runner."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class TorchOptions(BaseModel):
    """Options of `model_runner:torch`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile_folder: Path | None = Field(
        default=None,
        description="Where traces of profiles are written; none: none can be started.",
    )
