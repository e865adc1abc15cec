"""What the runner chooses while it loads, and what it says about it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from framework.contracts.model import ArchitectureQuery
from framework.contracts.platform import CacheBudget, Detection, DeviceFacts, Platform
from framework.errors import ConfigError, ModelError, SelectionError
from framework_torch.models.definition import DecoderDefinition
from framework_torch.progress import tracked
from framework_torch.runner import TorchRunner
from framework_torch.selecting import choose_dtype, choose_platform

FACTS = DeviceFacts(name="x", device="cpu", capability=None, dtypes=("float32", "bfloat16"))


def platform(state: str) -> Platform:
    class Fake(Platform):
        def detect(self) -> Detection:
            return Detection(state=state, reasons=(f"reason of {state}",))

        def facts(self) -> DeviceFacts:
            return FACTS

        def prepare(self) -> tuple[str, ...]:
            return ()

        def cache_budget(self, needed: int, requested: int | None) -> CacheBudget:
            return CacheBudget(bytes=needed, reason="all")

    return Fake()


class FakeRegistry:
    """Platforms by name, best first."""

    def __init__(self, **platforms: str) -> None:
        self.made = {name: platform(state) for name, state in platforms.items()}

    def candidates(self, kind: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=n, key=n, distribution="d") for n in self.made]

    def records(self, kind: str) -> list[SimpleNamespace]:
        return []

    def create_record(self, record: SimpleNamespace) -> Platform:
        return self.made[record.name]

    def create(self, kind: str, name: str, *, named: bool = False) -> Platform:
        return self.made[name]


def test_the_first_ready_platform_is_chosen_and_absent_ones_are_passed_over() -> None:
    registry = FakeRegistry(gpu="absent", cpu="ready", other="ready")
    assert choose_platform(registry, None) is registry.made["cpu"]


def test_a_broken_platform_stops_the_start_unless_another_was_named() -> None:
    registry = FakeRegistry(cpu="ready", gpu="broken")
    with pytest.raises(SelectionError, match="reason of broken"):
        choose_platform(registry, None)
    assert choose_platform(registry, "cpu") is registry.made["cpu"]


@pytest.mark.parametrize("state", ["absent", "broken"])
def test_a_named_platform_that_cannot_serve_is_an_error_with_its_reason(state: str) -> None:
    with pytest.raises(SelectionError, match=f"reason of {state}"):
        choose_platform(FakeRegistry(cpu="ready", gpu=state), "gpu")


def test_no_ready_platform_is_an_error_that_lists_what_was_found() -> None:
    with pytest.raises(SelectionError, match="gpu: absent"):
        choose_platform(FakeRegistry(gpu="absent"), None)


@pytest.mark.parametrize(
    ("asked", "name"), [("auto", "float32"), ("float", "float32"), ("bfloat16", "bfloat16")]
)
def test_dtypes_are_resolved_by_the_platform(asked: str, name: str) -> None:
    assert choose_dtype(asked, FACTS) == name


@pytest.mark.parametrize(
    ("asked", "words"), [("flaot32", "did you mean 'float32'"), ("half", "does not compute")]
)
def test_a_dtype_that_cannot_be_had_is_an_error(asked: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_dtype(asked, FACTS)


def test_start_up_lines_tell_every_choice(tiny, context) -> None:
    info = TorchRunner().load(context(tiny("llama").files))
    text = "\n".join(info.notes)
    for words in (
        "threads (",
        "of memory available",
        "model: tiny by decoder, float32",
        "attention: sdpa, pages of 16 tokens",
        "cache: ",
        "loaded in ",
    ):
        assert words in text
    assert info.max_model_len == 128
    assert info.vocab_size == 96
    assert list(info.layers) == ["layers.0", "layers.1"]
    # 8 slots of 128 tokens and the null page; K and V of 2 heads of 16, float32, 2 layers.
    assert info.bytes_free == (8 * 128 + 16) * 2 * 2 * 16 * 4 * 2


def test_a_page_size_that_was_asked_for_is_the_only_one_offered(tiny, context) -> None:
    assert TorchRunner().load(context(tiny("llama").files, page_tokens=7)).page_tokens == (7,)


def test_a_length_past_the_model_is_an_error(tiny, context) -> None:
    files = tiny("llama").files
    with pytest.raises(ConfigError, match="max_model_len"):
        TorchRunner().load(context(files, max_model_len=129))


def test_tables_without_memory_are_an_error_that_says_what_to_lower(
    tiny, drive, monkeypatch
) -> None:
    def refuse(slots, length):
        raise MemoryError(f"Unable to allocate an array with shape ({slots}, {length})")

    monkeypatch.setattr("framework_torch.binding.TokenTable", refuse)
    with pytest.raises(ConfigError, match="max_num_seqs") as caught:
        drive(tiny("llama").files)
    assert "(8, 128)" in str(caught.value)


def test_an_unknown_architecture_is_an_error_with_the_known_ones(tiny, context) -> None:
    files = tiny("llama").files
    strange = replace(files, config={**files.config, "architectures": ["NoSuchForCausalLM"]})
    with pytest.raises(SelectionError, match="LlamaForCausalLM"):
        TorchRunner().load(context(strange))
    with pytest.raises(ModelError, match="names no architecture"):
        TorchRunner().load(context(replace(files, config={})))


def test_dummy_weights_need_no_file(tiny, drive, helpers) -> None:
    files = replace(tiny("llama").files, weights=(), format="none")
    made = []
    for seed in (1, 1, 2):
        driver = drive(files, load_format="dummy", seed=seed)
        driver.admit(0, [1, 2, 3])
        made.append(helpers.whole(driver.run((0, 3)).logprobs, 0).tolist())
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_a_progress_bar_changes_nothing(tiny, context, capsys) -> None:
    info = TorchRunner().load(context(tiny("llama").files, progress=True))
    assert info.vocab_size == 96
    assert capsys.readouterr().out == ""


def test_progress_goes_on_until_kernels_have_all_weights(capsys, monkeypatch) -> None:
    """Of files that are read where they are packed, that is most of the time."""
    from rich.progress import Progress

    done = []
    monkeypatch.setattr(Progress, "advance", lambda self, task: done.append(self.tasks[0]))
    items = {"a": 1, "b": 2, "c": 3}
    for count, item in enumerate(tracked(items, "preparing weights", shown=True)):
        assert item == [*items.items()][count]
        assert len(done) == count
    (task,) = {id(each): each for each in done}.values()
    assert (len(done), task.total, task.description) == (3, 3, "preparing weights")
    assert [*tracked(items, "preparing weights", shown=False)] == [*items.items()]
    assert len(done) == 3
    assert capsys.readouterr().out == ""


def test_a_native_model_loads_without_transformers(tiny) -> None:
    """In a process of its own: whatever imports transformers costs seconds of every start."""
    import subprocess
    import sys

    code = f"""
import pathlib, sys
from framework.contracts.model_runner import RunnerContext
from framework.contracts.model_source import ModelFiles
from framework.plugins.registry import PluginRegistry
from framework_torch.runner import TorchRunner
from framework_torch.weights.safetensors_loader import SafetensorsLoader
root = pathlib.Path({str(tiny("llama").root)!r})
files = tuple(root.glob("*.safetensors"))
model = ModelFiles(name="m", root=root, weights=files, format="safetensors",
                   config=SafetensorsLoader().config(root, files)[0])
TorchRunner().load(RunnerContext(model=model, registry=PluginRegistry(), dtype="auto",
                                 max_slots=2, max_step_tokens=8, max_model_len=None))
print("transformers" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_dummy_weights_that_cannot_fit_are_refused_before_they_are_made(tiny, drive) -> None:
    files = tiny("llama").files
    huge = {**files.config, "hidden_size": 2**20, "intermediate_size": 2**22}
    with pytest.raises(ModelError, match="do not fit into memory") as error:
        drive(replace(files, config=huge), load_format="dummy")
    hidden, vocab, layers = 2**20, files.config["vocab_size"], files.config["num_hidden_layers"]
    head = files.config.get("head_dim") or hidden // files.config["num_attention_heads"]
    heads = files.config["num_attention_heads"] * 2 + files.config["num_key_value_heads"] * 2
    numbers = layers * hidden * (heads * head + 3 * 2**22) + 2 * vocab * hidden
    assert f"{numbers * 4} bytes: {numbers} numbers in float32" in str(error.value)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_the_number_of_parameters_is_that_of_the_weights(tiny, name) -> None:
    """But for norms and biases."""
    made = tiny(name)
    config = made.files.config
    answer = DecoderDefinition().answer(
        ArchitectureQuery(architecture=config["architectures"][0], config=config)
    )
    wide = [p.numel() for p in made.reference.parameters() if p.ndim > 1]
    assert answer.parameters == sum(wide)
