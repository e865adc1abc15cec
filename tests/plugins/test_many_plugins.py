"""What hundreds of plugins cost, and what bad ones do to a start that did not choose them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from framework import LLM
from framework.errors import PluginError
from framework.testing.fake_model import MODEL, fake_plugins

BAD = {
    "sleeps": "import time; time.sleep(60)",
    "exits": "import os; os._exit(9)",
    "bad_end": "class B:\n    def __del__(self): raise ValueError('at the end')\nB()\n",
    "heavy": "import vllm\n",
    "fails": "raise RuntimeError('boom')",
    "forks": "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\n",
}
POLICY = """
from framework.contracts.scheduling_policy import SchedulingPolicy
class P(SchedulingPolicy):
    def keys(self, requests):
        return requests.arrival.astype(float)
"""
START = """
import sys
from framework import LLM
from framework.testing.fake_model import MODEL, fake_plugins
LLM(MODEL, plugins=fake_plugins(), executor="echo", slow_import=0.2, scheduling_policy=sys.argv[1])
print("started")
"""


def dummies(root: Path, count: int) -> str:
    """`count` distributions of one plugin each, with manifests; importing one ends the process."""
    site = root / f"site-{count}"
    for number in range(count):
        name = f"dummy_{number}"
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("import os; os._exit(7)\n")
        (site / name / "framework-plugin.toml").write_text(
            f'schema = 1\n[[plugin]]\nkind = "scheduling_policy"\nname = "{name}"\n'
            'contract = ">=1.0,<2"\n'
        )
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[framework.scheduling_policies]\n{name} = {name}:P\n"
        )
    return str(site)


def listing(site: str) -> tuple[float, str]:
    """CPU seconds of `framework plugins list`, which other load does not change, and its text."""
    before = os.times()
    ended = subprocess.run(
        [sys.executable, "-m", "framework", "plugins", "list"],
        env={**os.environ, "PYTHONPATH": site},
        capture_output=True,
        text=True,
        check=True,
    )
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system, ended.stdout


def test_200_plugins_are_listed_without_an_import_in_at_most_twice_the_time_of_10(tmp_path):
    """Names come from metadata.  The least of a few runs is compared."""
    few, many = dummies(tmp_path, 10), dummies(tmp_path, 200)
    text = listing(many)[1]  # also puts the files into the page cache
    assert sum(line.split()[1].startswith("dummy_") for line in text.splitlines()) == 200
    times = {site: min(listing(site)[0] for _ in range(3)) for site in (few, many)}
    assert times[many] <= 2 * times[few]


@pytest.fixture
def bad(house, tmp_path):
    """A house full of bad scheduling policies, one per way to be bad."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "vllm.py").write_text("")
    for name, code in BAD.items():
        house.add(f"d-{name}", {f"scheduling_policies {name}": "P"}, code + POLICY)
    house.paths.append(str(tmp_path / "fake"))
    return house


def test_bad_plugins_that_nobody_chose_do_not_stop_a_start(bad):
    """They are not even imported, whatever the policy allows."""
    with LLM(MODEL, plugins=fake_plugins(), executor="echo") as llm:
        assert llm.generate("hi")[0].outputs[0].text == "hi"


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("exits", 9, "importing plugin scheduling_policy:exits@d-exits"),
        ("bad_end", 0, "plugin scheduling_policy:bad_end@d-bad_end, on import: B.__del__ raised"),
        ("heavy", 0, "plugin scheduling_policy:heavy@d-heavy imports vllm"),
        ("fails", 1, "plugin scheduling_policy:fails@d-fails failed on import"),
        ("forks", 0, "plugin scheduling_policy:forks@d-forks forks when it is imported"),
    ],
)
def test_a_bad_plugin_that_was_chosen_is_named(bad, name, status, words):
    """The operator sees which one it was, even where the process ends without a word."""
    ended = start(bad, name)
    assert ended.returncode == status
    assert words in ended.stderr
    assert ended.stdout == ("started\n" if status == 0 else "")


def test_a_plugin_that_hangs_is_named_while_it_does(bad):
    """Long before it would be through."""
    command = [sys.executable, "-c", START, "sleeps"]
    with subprocess.Popen(
        command, env=environment(bad), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        # On a slow machine others are named before it, and are through then.
        wanted = "still importing plugin scheduling_policy:sleeps@d-sleeps"
        said = next(line for line in process.stderr if wanted in line)
        assert process.poll() is None
        process.kill()
    assert "may hang" in said


def environment(house):
    return {**os.environ, "PYTHONPATH": os.pathsep.join(house.paths)}


def start(house, policy):
    return subprocess.run(
        [sys.executable, "-c", START, policy],
        env=environment(house),
        capture_output=True,
        text=True,
    )


def test_a_chosen_plugin_that_fails_is_an_error_in_process_too(bad):
    """Nothing falls back to another policy."""
    with pytest.raises(PluginError, match="boom"):
        LLM(MODEL, plugins=fake_plugins(), executor="echo", scheduling_policy="fails")
