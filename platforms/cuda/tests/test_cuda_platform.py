"""The CUDA platform on machines that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from framework.cli.app import build_app
from framework.contracts.attention_backend import AttentionQuery
from framework.contracts.kernel import usual_queries
from framework.errors import ConfigError
from framework.plugins.registry import PluginRegistry
from framework.plugins.selection import select
from framework.testing.conformance import check
from framework.testing.conformance.clauses import Layer
from framework_cuda.detection import card_on_the_bus
from framework_cuda.platform import CudaOptions, CudaPlatform
from framework_cuda.torch_build import cuda_of
from platforms.cuda.tests.fake_nvml import GIB, FakeCard, FakeNvml

ONE = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
TWO = "GPU-89aa0000-0000-0000-0000-000000000000"


def torch_built_for(folder: Path, cuda: str | None) -> Path:
    """As torch's own version.py tells it."""
    folder.mkdir(exist_ok=True)
    text = f"from typing import Optional\n__version__ = '2.13.0'\ncuda: Optional[str] = {cuda!r}\n"
    (folder / "version.py").write_text(text)
    return folder


class Made(CudaPlatform):
    """With a torch that makes no context; it says that device `logical` is what `uuids` says."""

    uuids: tuple[str | None, ...] = (None, None)

    def _start(self, logical: int) -> str | None:
        return self.uuids[logical]


@pytest.fixture
def machine(tmp_path: Path):
    """machine(nvml, variable, cuda, **options): a platform there."""

    def make(nvml, variable=None, cuda="12.8", **options) -> Made:
        environment = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
        return Made(
            CudaOptions(**options),
            root=tmp_path,
            environment=environment,
            library=nvml,
            torch=torch_built_for(tmp_path / "torch", cuda),
        )

    return make


def put_card(root: Path, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    folder = root / "sys/bus/pci/devices/0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(vendor + "\n")
    (folder / "class").write_text(kind + "\n")


def test_a_machine_without_a_card_has_none_and_is_not_broken(machine) -> None:
    for nvml in (FakeNvml(failure="NVML Shared Library Not Found"), FakeNvml()):
        found = machine(nvml).detect()
        assert found.state == "absent"
        assert found.reasons


@pytest.mark.parametrize(
    ("vendor", "kind", "there"),
    [
        ("0x10de", "0x030000", True),
        ("0x10de", "0x030200", True),
        ("0x10de", "0x040300", False),  # the sound of a card
        ("0x1002", "0x030000", False),
    ],
)
def test_a_card_on_the_bus_is_known_by_vendor_and_class(tmp_path, vendor, kind, there) -> None:
    put_card(tmp_path, vendor, kind)
    assert card_on_the_bus(tmp_path) is there


def test_a_card_without_a_driver_is_broken(machine, tmp_path) -> None:
    put_card(tmp_path)
    nvml = FakeNvml(failure="Driver Not Loaded")
    found = machine(nvml).detect()
    assert found.state == "broken"
    (reason,) = found.reasons
    assert "Driver Not Loaded" in reason
    assert "install NVIDIA's driver" in reason
    assert machine(nvml, variable="").detect().state == "absent"


@pytest.mark.parametrize(
    ("cuda", "driver", "words"),
    [
        (None, 12080, "without CUDA"),
        ("13.0", 12080, "the driver 570.86.15 is too old: it runs CUDA 12.8"),
    ],
)
def test_a_torch_that_cannot_use_the_driver_is_broken(machine, cuda, driver, words) -> None:
    found = machine(FakeNvml([FakeCard(ONE)], cuda=driver), cuda=cuda).detect()
    assert found.state == "broken"
    (reason,) = found.reasons
    assert words in reason
    assert "--set platform=cpu" in reason


@pytest.mark.parametrize(("built", "driver"), [("12.8", 12080), ("12.8", 12020), ("12.4", 13000)])
def test_minor_versions_of_cuda_go_together(machine, built, driver) -> None:
    assert machine(FakeNvml([FakeCard(ONE)], cuda=driver), cuda=built).detect().state == "ready"


def test_an_older_driver_will_do_with_the_compatibility_package(machine) -> None:
    nvml = FakeNvml([FakeCard(ONE)], cuda=12080)
    assert machine(nvml, cuda="13.0", forward_compatible=True).detect().state == "ready"


def test_a_card_that_is_too_old_or_lost_says_so(machine) -> None:
    old = machine(FakeNvml([FakeCard(ONE, "GTX 1080", (6, 1))])).detect()
    assert old.state == "broken"
    assert "GTX 1080, has compute capability 6.1, less than 7.0" in old.reasons[0]
    lost = FakeNvml([FakeCard(ONE, lost=True), FakeCard(TWO)])
    assert "GPU 0 cannot be used: GPU is lost" in machine(lost).detect().reasons[0]
    other = machine(lost, variable="1")
    assert other.detect().state == "ready"
    assert other.device().physical == 1


def test_all_reasons_are_given_at_once(machine) -> None:
    found = machine(FakeNvml([FakeCard(ONE)]), variable="7", cuda=None).detect()
    assert len(found.reasons) == 2


def test_what_torch_was_built_for_is_read_and_not_imported(tmp_path) -> None:
    assert cuda_of(torch_built_for(tmp_path, "12.8")) == "12.8"
    assert cuda_of(torch_built_for(tmp_path, None)) is None
    for text in ("cuda = (", "cuda = 'x'", "cuda = None", ""):
        (tmp_path / "version.py").write_text(text)
        assert cuda_of(tmp_path) is None
    assert cuda_of(tmp_path / "nowhere") is None


def test_facts_follow_from_the_capability(machine) -> None:
    new = machine(FakeNvml([FakeCard(ONE)])).facts()
    assert (new.name, new.device, new.capability) == ("cuda", "cuda:0", (9, 0))
    assert new.dtypes == ("bfloat16", "float16", "float32")
    assert new.features == {"triton", "float8"}
    old = machine(FakeNvml([FakeCard(ONE, capability=(7, 5))]))
    assert old.facts().dtypes == ("float16", "float32")
    assert not old.facts().features
    assert old.ranking("attention_backend") == ("sdpa",)
    with pytest.raises(ConfigError, match="absent"):
        machine(FakeNvml()).facts()


@pytest.mark.parametrize(
    ("capability", "backend"), [((9, 0), "triton"), ((8, 0), "triton"), ((7, 5), "sdpa")]
)
def test_attention_and_kernels_are_chosen_by_capability(machine, capability, backend) -> None:
    platform = machine(FakeNvml([FakeCard(ONE, capability=capability)]))
    facts, registry = platform.facts(), PluginRegistry()
    query = AttentionQuery(
        platform=facts.name,
        capability=facts.capability,
        features=facts.features,
        dtype=facts.dtypes[0],
        cache_dtype=facts.dtypes[0],
        head_size=64,
        head_size_v=64,
        num_heads=8,
        num_kv_heads=2,
    )
    ranking = platform.ranking("attention_backend")
    assert select(registry, "attention_backend", query, ranking=ranking).record.name == backend
    # The other operators are several of these at once, and nobody has to serve them.
    own = [
        kernel for kernel in usual_queries(facts) if kernel.op in ("linear", "logits", "rms_norm")
    ]
    assert len(own) == 3
    for kernel in own:
        chosen = select(registry, "kernel", kernel, ranking=platform.ranking("kernel"))
        assert not chosen.record.name.startswith("cpu"), kernel


def test_memory_is_taken_by_part_or_by_bytes(machine) -> None:
    card = FakeCard(ONE, free=70 * GIB, total=80 * GIB)
    platform = machine(FakeNvml([card]))
    budget = platform.cache_budget(1 << 60, None)
    assert abs(budget.bytes - 62 * GIB) <= 1
    assert "90% of 81920 MiB" in budget.reason
    assert platform.cache_budget(GIB, None).bytes == GIB
    assert platform.cache_budget(GIB, 65 * GIB).bytes == 65 * GIB
    with pytest.raises(ConfigError, match="does not fit"):
        platform.cache_budget(GIB, 71 * GIB)
    assert machine(FakeNvml([card]), memory_utilization=0.1).cache_budget(GIB, None).bytes == 0


def test_memory_that_nobody_tells_is_to_be_named(machine) -> None:
    platform = machine(FakeNvml([FakeCard(ONE, tells_memory=False)]))
    with pytest.raises(ConfigError, match="kv_cache_memory_bytes"):
        platform.cache_budget(GIB, None)
    assert platform.cache_budget(GIB, 3 * GIB).bytes == 3 * GIB
    assert "does not tell the memory" in platform.prepare()[1]


def test_a_card_that_cuda_counts_elsewhere_is_found_out(machine) -> None:
    platform = machine(FakeNvml([FakeCard(ONE), FakeCard(TWO)]), device=1)
    platform.uuids = (ONE[4:], TWO[4:])
    assert "GPU 1 as cuda:1, capability 9.0" in platform.prepare()[0]
    platform.uuids = (TWO[4:], ONE[4:])
    with pytest.raises(ConfigError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        platform.prepare()


def test_nvml_is_closed_again(machine) -> None:
    nvml = FakeNvml([FakeCard(ONE)])
    platform = machine(nvml)
    platform.detect(), platform.facts(), platform.prepare(), platform.cache_budget(1, None)
    assert nvml.opened == 0


def test_it_conforms_where_a_card_is(tmp_path) -> None:
    """But for what asks torch for tensors on it."""
    torch = torch_built_for(tmp_path / "torch", "12.8")

    class cuda(CudaPlatform):
        """A machine with a card."""

        def __init__(self, options=None) -> None:
            nvml = FakeNvml([FakeCard(ONE)])
            super().__init__(options, root=tmp_path, environment={}, library=nvml, torch=torch)

        def _start(self, logical: int) -> str | None:
            return ONE[4:]

    layers = (Layer.STATIC, Layer.CONSTRUCT, Layer.BEHAVIOUR)
    report = check(cuda, layers=layers)
    assert not report.failures, report.text()
    passed = {o.clause.id for o in report.outcomes if o.status.value == "passed"}
    assert {"PLAT-010", "PLAT-020", "PLAT-030", "PLAT-042", "PLAT-045", "PLAT-050"} <= passed


def test_it_conforms_here() -> None:
    report = check("platform:cuda")
    assert report.conformant
    assert not report.failures, report.text()


def test_where_no_card_is_seen_it_says_so_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ended = CliRunner().invoke(build_app(), ["explain", "platform", "--json"])
    (question,) = json.loads(ended.stdout)["questions"]
    rows = {row["name"]: row["reasons"] for row in question["candidates"]}
    assert rows["cpu"] == ["ready"]
    (said,) = rows["cuda"]
    assert said.startswith("absent; ")
    assert "no NVIDIA GPU was found" in said or "CUDA_VISIBLE_DEVICES hides all" in said
