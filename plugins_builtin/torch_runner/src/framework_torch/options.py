"""What an operator can set of the torch runner."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from framework_torch.graphs.modes import GraphModeName


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

    graph_mode: GraphModeName = Field(
        default="auto",
        description="What of a step is captured as a graph, on a platform that records them; auto: "
        "what the level of optimization says.",
    )
    capture_sizes: tuple[int, ...] | None = Field(
        default=None,
        min_length=1,
        description="Numbers of tokens of a step for which graphs are captured; none: some up to "
        "512, close to one another where steps are short.",
    )

    @field_validator("compile_ranges", "capture_sizes")
    @classmethod
    def _rising(cls, ends: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if ends is not None and any(
            later <= before for before, later in zip((0, *ends), ends, strict=False)
        ):
            raise ValueError("numbers from 1 on, each larger than the one before")
        return ends
