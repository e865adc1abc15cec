"""What an engine refuses before it starts, with the reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from framework.errors import ConfigError, UnsupportedError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.lora import AdapterLimits
    from framework.contracts.step import RunnerInfo


def _undeclared(
    inert: str, claim: str, info: RunnerInfo, executor: str, *, expected: str, setting: str
) -> UnsupportedError:
    """The error for a setting that the runner would pass over without a word.  inert: what it would
    come to; claim: what the runner does not declare that it does."""
    return UnsupportedError(
        f"{inert}: the model runner behind {executor} does not declare that it {claim}",
        expected=expected,
        found=", ".join(sorted(info.features)) or "no features",
        mend=f"leave {setting} out, or choose an executor and a model runner that declare it",
    )


def refuse_inert(logits_processors: tuple[str, ...], info: RunnerInfo, executor: str) -> None:
    """A runner that does not apply logits processors would ignore them without a word."""
    if logits_processors and "logits_processors" not in info.features:
        raise _undeclared(
            f"logits processors {', '.join(logits_processors)} would do nothing",
            "applies them",
            info,
            executor,
            expected="the feature 'logits_processors'",
            setting="them",
        )


def refuse_silent(proposer: str | None, info: RunnerInfo, executor: str) -> None:
    """A runner that asks no proposer would compute without drafts and without a word."""
    if proposer is not None and not {"proposer", "drafts"} <= info.features:
        raise _undeclared(
            f"speculative proposer {proposer!r} would propose nothing",
            "asks one",
            info,
            executor,
            expected="the features 'drafts' and 'proposer'",
            setting="speculative_proposer",
        )


def refuse_unsupported(config: EngineConfig) -> None:
    """Raise UnsupportedError for settings that this release cannot serve."""
    size = config.execution.tensor_parallel_size
    if size != 1:
        raise UnsupportedError(
            "tensor parallelism is not supported by this release",
            expected="tensor_parallel_size=1",
            found=size,
        )
    compiler = config.execution.compiler
    if config.execution.enforce_eager and compiler is not None:
        raise ConfigError(
            f"enforce_eager forbids what compiler={compiler!r} asks for",
            expected="one of the two",
            found="both",
            mend="leave one out",
        )


def refuse_unquantized(quantization: str | None, info: RunnerInfo, executor: str) -> None:
    """A runner that knows of no quantization would keep the weights as they are, without a word."""
    if quantization is not None and "quantization" not in info.features:
        raise _undeclared(
            f"quantization {shown(quantization, 80)} would change nothing",
            "quantizes",
            info,
            executor,
            expected="the feature 'quantization'",
            setting="quantization",
        )


def refuse_unkept(cache_dtype: str, info: RunnerInfo, executor: str) -> None:
    """A runner that chooses the type of its cache itself would do so without a word."""
    if cache_dtype != "auto" and "cache_dtype" not in info.features:
        raise _undeclared(
            f"kv_cache_dtype {shown(cache_dtype, 80)} would change nothing",
            "keeps K and V as asked",
            info,
            executor,
            expected="the feature 'cache_dtype'",
            setting="kv_cache_dtype",
        )


def refuse_uncompiled(compiler: str | None, info: RunnerInfo, executor: str) -> None:
    """A runner that compiles nothing would compute by kernels, without a word."""
    if compiler is not None and "compiler" not in info.features:
        raise _undeclared(
            f"compiler {compiler!r} would compile nothing",
            "has layers compiled",
            info,
            executor,
            expected="the feature 'compiler'",
            setting="compiler and compile_layers (which -O3 asks for)",
        )


def refuse_unadapted(adapters: AdapterLimits | None, info: RunnerInfo, executor: str) -> None:
    """A runner that knows of no adapters would compute the model as it is, without a word."""
    if adapters is not None and "adapters" not in info.features:
        raise _undeclared(
            "adapters would change nothing",
            "serves them",
            info,
            executor,
            expected="the feature 'adapters'",
            setting="enable_lora",
        )


def refuse_no_folder() -> None:
    """Libraries ask for the working directory in odd places, and what fails then seems to be
    the file at hand."""
    try:
        os.getcwd()
    except OSError as error:
        raise ConfigError(
            "the current working directory cannot be used",
            expected="a folder that exists",
            found=error.strerror,
            mend="change to another folder: it was removed, or may not be read",
        ) from error
