"""Other engines on the workload of `workload.py`, each in a process and environment of its own.

A script, not a module of the engine:

    python peer_engines.py FOLDER REQUESTS PROMPT OUTPUT    one JSON line per engine
    python peer_engines.py FOLDER start                     from process start to the first token

FOLDER holds vllm/bin/python with vLLM, hf/bin/python with Transformers and llama-cpp-python,
model/ and gguf/{F16,Q8_0}.gguf.  What is not there is left out.  Each is warmed up, and the
better of two rounds counts.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

Prompts = list[list[int]]
PROMPT = "The capital of France is"
# Engine -> its environment and its model.
ENGINES = {
    "transformers": ("hf", "model"),
    "vllm": ("vllm", "model"),
    "llama.cpp-F16": ("hf", "gguf/F16.gguf"),
    "llama.cpp-Q8_0": ("hf", "gguf/Q8_0.gguf"),
}
VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
BATCH = 2048


def prompts(requests: int, length: int) -> Prompts:
    chance = random.Random(0)
    return [[chance.choice(range(100, 49_000)) for _ in range(length)] for _ in range(requests)]


def best(run: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The better of two rounds, with its seconds."""
    rounds = []
    for _ in range(2):
        start = time.perf_counter()
        more = run()
        rounds.append({"seconds": time.perf_counter() - start, **more})
    return min(rounds, key=lambda one: one["seconds"])


def transformers(model: str, requests: int, length: int, output: int) -> dict[str, float]:
    """float32, one static batch."""
    torch, library = import_module("torch"), import_module("transformers")
    loaded = library.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.tensor(prompts(requests, length))

    def generate(count: int) -> dict[str, float]:
        with torch.inference_mode():
            loaded.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=2,
            )
        return {}

    generate(2)
    return best(lambda: generate(output))


def vllm(model: str, requests: int, length: int, output: int) -> dict[str, float]:
    """float32, eager, without its prefix cache, as no two prompts share anything."""
    os.environ.update(VLLM)
    library = import_module("vllm")
    engine = library.LLM(
        model,
        dtype="float32",
        max_model_len=2048,
        enforce_eager=True,
        max_num_seqs=256,
        enable_prefix_caching=False,
    )
    asked = [{"prompt_token_ids": prompt} for prompt in prompts(requests, length)]
    params = library.SamplingParams(temperature=0, max_tokens=output, ignore_eos=True)

    def generate(some: Sequence[Any]) -> dict[str, float]:
        engine.generate(some, params, use_tqdm=False)
        return {}

    generate(asked[:2])
    return best(lambda: generate(asked))


class Llama:
    """llama.cpp with all requests in one context, greedy."""

    def __init__(self, path: str, requests: int, length: int, output: int) -> None:
        self.library = library = import_module("llama_cpp")
        self.numpy = import_module("numpy")
        self.requests, self.length, self.output = requests, length, output
        library.llama_backend_init()
        self.model = library.llama_model_load_from_file(
            path.encode(), library.llama_model_default_params()
        )
        settings = library.llama_context_default_params()
        settings.n_ctx = requests * (length + output + 8)
        settings.n_batch, settings.n_ubatch, settings.n_seq_max = BATCH, 512, requests
        settings.n_threads = settings.n_threads_batch = os.cpu_count() or 1
        settings.kv_unified = True
        self.context = library.llama_init_from_model(self.model, settings)
        vocabulary = library.llama_model_get_vocab(self.model)
        self.vocabulary = library.llama_vocab_n_tokens(vocabulary)
        self.batch = library.llama_batch_init(max(BATCH, length, requests), 0, 1)
        self.prompts = prompts(requests, length)

    def decode(self, entries: Sequence[tuple[int, int, int, bool]]) -> None:
        """entries: token, position, request, whether its logits are wanted."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for index, (token, position, request, wanted) in enumerate(entries):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, request
            batch.logits[index] = int(wanted)
        if self.library.llama_decode(self.context, batch):
            raise SystemExit("llama_decode failed")

    def best(self, index: int) -> int:
        logits = self.library.llama_get_logits_ith(self.context, index)
        return int(self.numpy.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())

    def run(self) -> dict[str, float]:
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)
        start = time.perf_counter()
        last = [token for group in self._groups() for token in self._prefill(group)]
        filled = time.perf_counter()
        for step in range(1, self.output):
            place = self.length + step - 1
            self.decode([(token, place, request, True) for request, token in enumerate(last)])
            last = [self.best(request) for request in range(self.requests)]
        decoded = time.perf_counter() - filled
        found = {"ttft_s": filled - start}
        if self.output > 1:
            found["decode_tokens_per_s"] = self.requests * (self.output - 1) / decoded
        return found

    def _groups(self) -> Iterator[range]:
        """Requests whose prompts fit into one batch."""
        size = max(1, BATCH // self.length)
        for first in range(0, self.requests, size):
            yield range(first, min(self.requests, first + size))

    def _prefill(self, group: range) -> list[int]:
        last = self.length - 1
        self.decode(
            [
                (token, place, request, place == last)
                for request in group
                for place, token in enumerate(self.prompts[request])
            ]
        )
        return [self.best((place + 1) * self.length - 1) for place in range(len(group))]


def llama(model: str, requests: int, length: int, output: int) -> dict[str, float]:
    return best(Llama(model, requests, length, output).run)


def start(engine: str, model: str) -> None:
    """Load, and give one token of a text."""
    if engine == "transformers":
        torch, library = import_module("torch"), import_module("transformers")
        loaded = library.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        ids = library.AutoTokenizer.from_pretrained(model)(PROMPT, return_tensors="pt")
        loaded.generate(**ids, max_new_tokens=1, do_sample=False)
    elif engine == "vllm":
        os.environ.update(VLLM, VLLM_CPU_KVCACHE_SPACE="1")
        library = import_module("vllm")
        served = library.LLM(model, dtype="float32", max_model_len=512, enforce_eager=True)
        served.generate(PROMPT, library.SamplingParams(max_tokens=1), use_tqdm=False)
    else:
        library = import_module("llama_cpp")
        loaded = library.Llama(model, n_ctx=512, n_threads=os.cpu_count(), verbose=False)
        loaded(PROMPT, max_tokens=1)


def one(engine: str, model: str, words: Sequence[str]) -> None:
    """One engine, in its own environment."""
    began = time.time()
    if words == ["start"]:
        start(engine, model)
        seconds = time.time() - began
        print(json.dumps({"peer": engine, "seconds": seconds, "ttft_s": seconds}), flush=True)
        return
    numbers = [int(word) for word in words]
    measure = {"transformers": transformers, "vllm": vllm}.get(engine, llama)
    found = measure(model, *numbers)
    rate = numbers[0] * numbers[2] / found["seconds"]
    row = {"peer": engine, "output_len": numbers[2], "output_tokens_per_s": rate, **found}
    print(json.dumps(row), flush=True)


def main() -> None:
    if sys.argv[1] == "--one":
        one(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    for engine, (environment, model) in ENGINES.items():
        python, path = folder / environment / "bin" / "python", folder / model
        if not (python.exists() and path.exists()):
            print(f"{engine} is left out: no {python} or no {path}", file=sys.stderr)
            continue
        command = [str(python), __file__, "--one", engine, str(path), *words]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if ended.returncode:  # the others are measured all the same
            what = f"exit code {ended.returncode}: {ended.stderr[-600:]}"
            print(json.dumps({"peer": engine, "error": what}), flush=True)
            continue
        for line in ended.stdout.splitlines():
            with suppress(ValueError):
                print(json.dumps(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
