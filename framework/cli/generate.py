"""`framework generate`: continue prompts, or answer them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli import options
from framework.cli.rate import Rate

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.engine.llm import LLM
    from framework.engine.outputs import RequestOutput
    from framework.engine.prompts import Prompt


def generate(
    context: typer.Context,
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="Texts.")],
    model: options.Model = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Put each prompt to the model as a question.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 128,
    n: Annotated[int | None, typer.Option("-n", help="Answers per prompt.")] = None,
    logprobs: Annotated[
        int | None, typer.Option(help="Log-probabilities of so many candidates (--json).")
    ] = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    dtype: options.Dtype = None,
    quantization: options.Quantization = None,
    kv_cache_dtype: options.KvCacheDtype = None,
    max_model_len: options.MaxModelLen = None,
    level: options.Level = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Print what the model makes of each prompt."""
    flags = {
        "model": model,
        "dtype": dtype,
        "quantization": quantization,
        "kv_cache_dtype": kv_cache_dtype,
        "max_model_len": max_model_len,
        "optimization_level": level,
    }
    given = options.given_sampling(
        {
            "max_tokens": max_tokens,
            "n": n,
            "logprobs": logprobs,
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "seed": seed,
            "stop": stop or None,
            "ignore_eos": ignore_eos or None,
        }
    )
    with options.make_llm(context, flags, config, settings) as llm:
        params = options.make_params(llm, given)
        asked: list[Prompt] = [_question(llm, text) for text in prompts] if chat else [*prompts]
        if len(asked) == 1 and params.n == 1 and not as_json and sys.stdout.isatty():
            outputs = _stream(llm, asked[0], params)
        else:
            outputs = llm.generate(asked, params)
            _print(outputs, prompts, as_json)
    _report(outputs)


def _question(llm: LLM, text: str) -> Prompt:
    return llm.render_chat([{"role": "user", "content": text}])


def _stream(llm: LLM, prompt: Prompt, params: SamplingParams) -> list[RequestOutput]:
    last = []
    rate = Rate()
    for output in llm.stream(prompt, params):
        print(output.outputs[0].text, end="", flush=True)
        rate.add(len(output.outputs[0].token_ids))
        last = [output]
    print(flush=True)
    if sys.stderr.isatty():
        print(f"[{rate}]", file=sys.stderr)
    return last


def _print(outputs: list[RequestOutput], prompts: list[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_plain(asdict(output)) for output in outputs], indent=2))
        return
    for prompt, output in zip(prompts, outputs, strict=True):
        if len(outputs) > 1:
            print(f"# {prompt}")
        for completion in output.outputs:
            print(completion.text)


def _report(outputs: list[RequestOutput]) -> None:
    """A request that failed in the engine makes the command fail."""
    failed = [c for o in outputs for c in o.outputs if c.finish_reason == "error"]
    for completion in failed:
        print(f"error: {completion.stop_reason}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def _plain(value: Any) -> Any:
    """Values that JSON has: bytes as a list, no infinities."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | bytes):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
