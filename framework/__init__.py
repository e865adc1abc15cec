"""An LLM inference engine with a small core; everything else is a plugin.

Names are imported when they are first used, so that `import framework` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.contracts.pooling import PoolingParams
    from framework.contracts.sampling import OutputKind, SamplingParams
    from framework.engine.llm import LLM
    from framework.engine.outputs import (
        ClassificationOutput,
        CompletionOutput,
        EmbeddingOutput,
        Logprob,
        RequestMetrics,
        RequestOutput,
    )
    from framework.errors import (
        ConfigError,
        EngineDeadError,
        FrameworkError,
        InputError,
        ModelError,
        PluginError,
        RequestError,
        UnsupportedError,
    )

    __version__: str

__all__ = [
    "LLM",
    "ClassificationOutput",
    "CompletionOutput",
    "ConfigError",
    "EmbeddingOutput",
    "EngineDeadError",
    "FrameworkError",
    "InputError",
    "Logprob",
    "ModelError",
    "OutputKind",
    "PluginError",
    "PoolingParams",
    "RequestError",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "UnsupportedError",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        found = globals()[name] = version("framework")
        return found
    if name not in __all__:
        raise AttributeError(f"module 'framework' has no attribute {name!r}")
    if name.endswith("Error"):
        module = "framework.errors"
    elif name == "LLM":
        module = "framework.engine.llm"
    elif name == "PoolingParams":
        module = "framework.contracts.pooling"
    elif name in ("SamplingParams", "OutputKind"):
        module = "framework.contracts.sampling"
    else:
        module = "framework.engine.outputs"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
