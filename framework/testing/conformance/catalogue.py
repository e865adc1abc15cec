"""Which suite belongs to which kind: data, so that a new suite is a new row."""

from __future__ import annotations

import importlib

from framework.testing.conformance.suite import Suite

_SUITES = "framework.testing.conformance.suites"
SUITES: dict[str, str] = {
    "attention_backend": f"{_SUITES}.attention_backend:AttentionBackendSuite",
    "command": f"{_SUITES}.command:CommandSuite",
    "compiler": f"{_SUITES}.compiler:CompilerSuite",
    "endpoint": f"{_SUITES}.endpoint:EndpointSuite",
    "executor": f"{_SUITES}.executor:ExecutorSuite",
    "front_end": f"{_SUITES}.front_end:FrontEndSuite",
    "hooks": f"{_SUITES}.hooks:HooksSuite",
    "io_processor": f"{_SUITES}.io_processor:IOProcessorSuite",
    "kernel": f"{_SUITES}.kernel:KernelSuite",
    "kv_cache_spec": f"{_SUITES}.kv_cache_spec:CacheManagerTypeSuite",
    "logits_processor": f"{_SUITES}.logits_processor:LogitsProcessorSuite",
    "lora": f"{_SUITES}.lora:AdapterFormatSuite",
    "model_runner": f"{_SUITES}.model_runner:ModelRunnerSuite",
    "model_source": f"{_SUITES}.model_source:ModelSourceSuite",
    "platform": f"{_SUITES}.platform:PlatformSuite",
    "reasoning_parser": f"{_SUITES}.reasoning_parser:ReasoningParserSuite",
    "scheduler_participant": f"{_SUITES}.scheduler_participant:SchedulerParticipantSuite",
    "scheduling_policy": f"{_SUITES}.scheduling_policy:SchedulingPolicySuite",
    "speculative_proposer": f"{_SUITES}.speculative_proposer:SpeculativeProposerSuite",
    "stat_logger": f"{_SUITES}.stat_logger:StatLoggerSuite",
    "structured_output": f"{_SUITES}.structured_output:StructuredOutputSuite",
    "tool_parser": f"{_SUITES}.tool_parser:ToolParserSuite",
}
"""kind -> "module:Class".  Of the other kinds, all provisional: load, select and close."""


def suite_of(kind: str) -> type[Suite]:
    """The suite of a kind."""
    value = SUITES.get(kind)
    return Suite if value is None else load_suite(value)


def load_suite(value: str) -> type[Suite]:
    """The class that "module:Class" means.  Raises ImportError, AttributeError, TypeError."""
    module, _, name = value.partition(":")
    found = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, Suite)):
        raise TypeError(f"{value} is no suite")
    return found
