"""What vLLM's scheduler and KV manager cost, in the shape that `core.py` measures ours in.

A script, not a module of the engine: it runs under the Python of an environment with vLLM, in
which this project is not installed.

    vllm/bin/python vllm_peer.py MODEL [--requests 1,16] [--steps 200]

MODEL is only read for its config.json.  For each number of requests one JSON line: requests,
step_us, us_per_request_step, add_us.  As with ours, these are medians of the processor's time that
the thread used, and of requests that are added after some others; random prompts are made before
the clock starts, and what stands for the runner (one token for every row that is at the end of its
prompt) is made while it stands still.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from time import thread_time
from typing import Any

VOCABULARY = 49_000
PROMPT, OUTPUT = 512, 500
PAGE, BUDGET, LONGEST = 16, 8192, 8192
LEAST_ADDED, ADDED_BEFORE = 64, 16
TOKEN = 7


def accepted(function: Any, **arguments: Any) -> Any:
    """Calls `function` with those of the arguments that this version of it knows."""
    known = signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return function(**arguments)
    return function(**{name: value for name, value in arguments.items() if name in known})


def make_scheduler(model: str, requests: int) -> Any:
    """vLLM's scheduler with prefix caching, and pages for all tokens of all requests."""
    config = import_module("vllm.config")
    cache = import_module("vllm.v1.kv_cache_interface")
    pages = requests * ((PROMPT + 600) // PAGE + 2) + 1000
    model_config = config.ModelConfig(model=model, dtype="float32", seed=0, max_model_len=LONGEST)
    scheduler_config = accepted(
        config.SchedulerConfig,
        max_num_seqs=requests,
        max_num_batched_tokens=BUDGET,
        max_model_len=LONGEST,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
    )
    cache_config = config.CacheConfig(block_size=PAGE, enable_prefix_caching=True)
    cache_config.num_gpu_blocks = pages
    whole = config.VllmConfig(
        model_config=model_config, cache_config=cache_config, scheduler_config=scheduler_config
    )
    spec = cache.FullAttentionSpec(
        block_size=PAGE, num_kv_heads=1, head_size=1, dtype=import_module("torch").float32
    )
    group = cache.KVCacheGroupSpec(["layer"], spec)
    return accepted(
        import_module("vllm.v1.core.sched.scheduler").Scheduler,
        vllm_config=whole,
        kv_cache_config=cache.KVCacheConfig(
            num_blocks=pages, kv_cache_tensors=[], kv_cache_groups=[group]
        ),
        structured_output_manager=import_module(
            "vllm.v1.structured_output"
        ).StructuredOutputManager(whole),
        block_size=PAGE,
        hash_block_size=PAGE,
        log_stats=False,
    )


def request_maker() -> Any:
    """(id, prompt) -> a request of vLLM with sampling parameters of its own, as ours has; it
    hashes the pages of its prompt as it is made."""
    utils = import_module("vllm.v1.core.kv_cache_utils")
    sha256 = import_module("vllm.utils.hashing").sha256
    utils.init_none_hash(sha256)
    hasher = utils.get_request_block_hasher(PAGE, sha256)
    make = import_module("vllm.v1.request").Request
    params = import_module("vllm").SamplingParams
    return lambda name, prompt: make(
        request_id=name,
        prompt_token_ids=prompt,
        sampling_params=params(max_tokens=OUTPUT, temperature=0, ignore_eos=True),
        pooling_params=None,
        block_hasher=hasher,
    )


def result_of(scheduler: Any, plan: Any) -> Any:
    """One token for each request whose prompt is computed by then."""
    names = list(plan.num_scheduled_tokens)
    states = [scheduler.requests[name] for name in names]
    ready = [state.num_computed_tokens >= state.num_prompt_tokens for state in states]
    return import_module("vllm.v1.outputs").ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[TOKEN] if there else [] for there in ready],
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def prompts_of(requests: int) -> list[list[int]]:
    chance = random.Random(0)
    return [[chance.randrange(VOCABULARY) for _ in range(PROMPT)] for _ in range(requests)]


def adding(model: str, make: Any, requests: int) -> float:
    """Seconds of making and adding a request: the median over `requests` requests."""
    count = requests + ADDED_BEFORE
    scheduler, times = make_scheduler(model, count), []
    for number, prompt in enumerate(prompts_of(count)):
        start = thread_time()
        scheduler.add_request(make(str(number), prompt))
        times.append(thread_time() - start)
    return statistics.median(times[ADDED_BEFORE:])


def measure(model: str, requests: int, steps: int) -> Mapping[str, float]:
    """The median of `steps` steps in which all requests decode."""
    make = request_maker()
    add = adding(model, make, max(requests, LEAST_ADDED))
    scheduler = make_scheduler(model, requests)
    for number, prompt in enumerate(prompts_of(requests)):
        scheduler.add_request(make(str(number), prompt))
    decode: list[float] = []
    while len(decode) < steps:
        start = thread_time()
        plan = scheduler.schedule()
        spent = thread_time() - start
        result = result_of(scheduler, plan)
        start = thread_time()
        scheduler.update_from_output(plan, result)
        spent += thread_time() - start
        if plan.total_num_scheduled_tokens == len(plan.num_scheduled_tokens) == requests:
            decode.append(spent)
    step = statistics.median(decode)
    return {
        "requests": requests,
        "step_us": step * 1e6,
        "us_per_request_step": step / requests * 1e6,
        "add_us": add * 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What vLLM's scheduler costs, without a model.")
    parser.add_argument("model")
    parser.add_argument("--requests", default="1,16,64,256,1024")
    parser.add_argument("--steps", type=int, default=200)
    chosen = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_CPU_KVCACHE_SPACE="1")
    for text in chosen.requests.split(","):
        print(json.dumps(measure(chosen.model, int(text), chosen.steps)), flush=True)


if __name__ == "__main__":
    main()
