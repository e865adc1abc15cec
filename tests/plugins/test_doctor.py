"""The doctor names what is wrong and says how to mend it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from framework.plugins.doctor import examine
from framework.plugins.kinds import Scope

GOOD = "from thing_contract import Thing\nclass T(Thing):\n    def answer(self, query): ...\n"


@pytest.fixture
def look(house):
    """Findings over the house: {code: finding}; each code may be there once."""

    def call(env=None, choices=None, imports=False, slow=60.0, budget=200.0, **more):
        found = examine(
            house.registry(env, **more),
            choices,
            search_path=house.paths,
            try_imports=imports,
            slow=slow,
            budget=budget,
        )
        codes = {finding.code: finding for finding in found}
        assert len(codes) == len(found), found
        assert all(finding.mend and finding.message for finding in found)
        return codes

    return call


def test_a_healthy_house_has_no_findings(house, look, extra_code):
    """Plugins that work, with and without a manifest, and one that is denied, are no findings."""
    house.thing("a", "d1")
    house.thing("b", "d2", rank=3)
    house.add("d3", {"extras e": "E"}, "raise SystemExit")
    assert look(imports=True) == {}


@pytest.mark.parametrize("value", ["gone_package:T", "PKG.gone.deep:T", "PKG.part.gone:T"])
def test_an_entry_point_whose_module_is_gone(house, look, value):
    """Stale metadata is told without an import, with the first part that is missing."""
    package = house.add("d", f"[framework.things]\na = {value}\n", "raise SystemExit", folder="s")
    (house.root / "s" / package / "part.py").write_text("")
    finding = look(imports=True)["stale"]
    wanted = value.replace("PKG", package).replace(".deep", "").partition(":")[0]
    assert (finding.severity, finding.distribution) == ("error", "d")
    assert repr(wanted) in finding.message
    assert "pip install --force-reinstall d" in finding.mend


def test_metadata_that_lies_there_twice(house, look):
    """Two folders in one place are an error, on the path in two places a warning."""
    house.add("d", {"things a": "T"}, GOOD, version="1.0", folder="s", package="pkg_one")
    other = house.root / "s" / "d-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: d\nVersion: 2.0\n")
    finding = look()["doubled"]
    assert (finding.severity, "d-1.0.dist-info" in finding.message) == ("error", True)
    assert "pip uninstall d" in finding.mend
    other.joinpath("METADATA").unlink()
    other.rmdir()
    assert look() == {}
    house.add("d", {"things a": "T"}, GOOD, version="0.9")
    assert look()["doubled"].severity == "warning"


def test_an_editable_install_whose_entry_points_have_changed_since(house, look):
    """The sources are those of now, the names those of then."""
    house.add("d", {"things a": "T"}, GOOD, folder="s", package="pkg_edited")
    source = house.root / "source"
    source.mkdir()
    url = {"url": source.as_uri(), "dir_info": {"editable": True}}
    (house.root / "s" / "d-1.0.dist-info" / "direct_url.json").write_text(json.dumps(url))
    project = '[project]\nname = "d"\n[project.entry-points."framework.things"]\n'
    (source / "pyproject.toml").write_text(project + 'a = "pkg_edited:T"\n')
    assert look() == {}
    (source / "pyproject.toml").write_text(project + 'a = "pkg_edited:T"\nb = "pkg_edited:U"\n')
    finding = look()["outdated"]
    assert "framework.things:b" in finding.message
    assert "framework.things:a" not in finding.message
    assert finding.mend == f"pip install -e {source}"


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ("no-such-thing>=2", "no-such-thing>=2, which is not installed"),
        ("numpy<1", "numpy<1, but numpy"),
        ('no-such-thing; extra == "more"', None),
        ('no-such-thing; python_version < "3"', None),
        ("numpy>=1", None),
        ("%%%", None),
    ],
)
def test_a_requirement_that_is_not_met(house, look, requirement, words):
    """Markers and versions count; extras that nobody asked for do not."""
    house.add("d", {"things a": "T"}, GOOD, folder="s")
    with (house.root / "s" / "d-1.0.dist-info" / "METADATA").open("a") as file:
        file.write(f"Requires-Dist: {requirement}\n")
    found = look()
    if words is None:
        assert found == {}
    else:
        assert words in found["requirement"].message
        assert f"pip install '{requirement}'" in found["requirement"].mend


@pytest.mark.parametrize(
    ("facts", "code", "words"),
    [
        ({"contract": ">=2,<3"}, "contract", "for contract 1.1 of thing"),
        ({"scopes": ["engine_core"]}, "scope", "have to hold worker"),
    ],
)
def test_a_manifest_that_does_not_fit_this_core(house, look, facts, code, words):
    """A contract range and scopes that cannot work say what to install or to correct."""
    house.thing("a", "d", **facts)
    finding = look()[code]
    assert finding.severity == "error"
    assert words in finding.mend


def test_a_manifest_that_cannot_be_read(house, look):
    """A mistyped key is told with the file."""
    house.add("d", {"things a": "T"}, GOOD, "schema = 1\nplugn = 3\n")
    assert "framework-plugin.toml: unknown key 'plugn'" in look()["manifest"].message


def test_names_that_nothing_has(house, look):
    """A list, an option and the configuration each are told, exact names as errors."""
    house.thing("tiger", "d")
    assert look({"FRAMEWORK_PLUGINS": "tigre"})["list"].severity == "error"
    assert look({"FRAMEWORK_PLUGINS": "tig*,x*"})["list"].severity == "warning"
    assert look({"FRAMEWORK_PLUGINS_DENY": "lion"})["list"].severity == "warning"
    assert "thing:tigre" in look(options={"thing": {"tigre": {"x": 1}}})["list"].message
    finding = look(choices={"thing": ["tigre"]})["choice"]
    assert "did you mean 'tiger'" in finding.message


def test_a_name_with_two_claims(house, look, extra_code):
    """It is an error where both would run, and a warning where one is chosen."""
    house.thing("a", "d1")
    house.thing("a", "d2")
    finding = look()["duplicate"]
    assert (finding.severity, "a@d1 or a@d2" in finding.mend) == ("warning", True)
    assert look({"FRAMEWORK_PLUGINS_DENY": "a@d1"}) == {}
    house.add("d3", {"extras e": "E"}, extra_code)
    house.add("d4", {"extras e": "E"}, extra_code)
    registry = house.registry({"FRAMEWORK_PLUGINS": "*"})
    found = examine(registry, search_path=house.paths, try_imports=False)
    assert [finding.severity for finding in found] == ["error", "warning"]


def test_an_order_that_cannot_be(house, look, extra_code):
    """A cycle would stop the start; of a denied plugin it does not count."""
    for name, other in (("a", "b"), ("b", "a")):
        manifest = house.manifest("extra", name, before=[other])
        house.add(f"d-{name}", {f"extras {name}": "E"}, extra_code, manifest)
    finding = look({"FRAMEWORK_PLUGINS": "extra:*"})["order"]
    assert finding.severity == "error"
    assert "extra:a@d-a, extra:b@d-b" in finding.message
    assert look({"FRAMEWORK_PLUGINS": "extra:a"}) == {}


def test_replacements_that_lead_in_a_circle(house, look):
    for name, other in (("a", "b"), ("b", "a")):
        house.thing(name, f"d-{name}", replaces=[other])
    finding = look({"FRAMEWORK_PLUGINS": "thing:a,thing:b"})["order"]
    assert finding.severity == "error"
    assert "in a circle: thing:a@d-a, thing:b@d-b" in finding.message
    assert look({"FRAMEWORK_PLUGINS": "thing:a"}) == {}


def test_bad_imports_are_told_apart_and_hide_nobody(house, look, tmp_path):
    """Ending the process, crashing, failing, a bad __del__ and torch are each named with their
    distribution; the good ones beside them are not."""
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "torch.py").write_text("")
    house.syspath(str(fake))
    bad_end = "class Bad:\n    def __del__(self): raise ValueError('at the end')\n"
    codes = {
        "exits": "import os; os._exit(9)",
        "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "fails": "raise RuntimeError('boom')",
        "leaves": "import sys; sys.exit(3)",
        "bad-end": bad_end + "Bad()\n" + GOOD,
        "bad-later": bad_end + "kept = Bad()\n" + GOOD,
        "torch1": "import torch\n" + GOOD,
        "torch2": "import torch\n" + GOOD,
        "chatty": "print('x' * 100000)\n" + GOOD,
        "good": GOOD,
        "other": GOOD.replace("Thing", "Extra"),
    }
    packages = [house.add(f"d-{n}", {f"things {n}": "T"}, code) for n, code in codes.items()]
    found = examine(
        house.registry(), search_path=house.paths, try_imports=True, slow=60.0, budget=200.0
    )
    told = {(finding.distribution, finding.code): finding for finding in found}
    assert {key: finding.severity for key, finding in told.items()} == {
        ("d-exits", "exit"): "error",
        ("d-crashes", "exit"): "error",
        ("d-fails", "import"): "error",
        ("d-leaves", "import"): "error",
        ("d-other", "import"): "error",
        ("d-bad-end", "uncaught"): "warning",
        ("d-bad-later", "uncaught"): "warning",
        ("d-torch1", "heavy"): "warning",
        ("d-torch2", "heavy"): "warning",
    }
    messages = {owner: finding.message for (owner, _), finding in told.items()}
    assert "exit code 9" in messages["d-exits"]
    assert "SIGSEGV" in messages["d-crashes"]
    assert "boom" in messages["d-fails"]
    assert "does not fulfil the contract" in messages["d-other"]
    assert "ValueError: at the end" in messages["d-bad-end"]
    assert "ValueError: at the end" in messages["d-bad-later"]
    assert "imports torch" in messages["d-torch2"]
    assert not set(packages) & set(sys.modules)


def test_one_that_hangs_is_told_and_hides_nobody(house, look):
    """What stands behind it takes a thousandth of the budget."""
    house.add("d1", {"things hangs": "T"}, "import time; time.sleep(3600)")
    house.add("d2", {"things late": "T"}, "raise RuntimeError('boom')")
    found = look(imports=True, budget=3.0)
    assert (found["hang"].distribution, found["import"].distribution) == ("d1", "d2")
    assert "within 3 s" in found["hang"].message


def test_what_one_does_to_the_process_is_no_fault_of_the_next(house, look):
    """In alphabetical order of packages; the second is found behind the first alone."""
    house.add(
        "d1",
        {"things a": "T"},
        "import sys\nclass Odd:\n    def find_spec(self, *args): raise RuntimeError('hook')\n"
        "sys.meta_path.insert(0, Odd())\n" + GOOD,
        package="pkg_a",
    )
    house.add("d2", {"things b": "T"}, "import wave\n" + GOOD, package="pkg_b")
    house.add("d3", {"things c": "T"}, "raise ValueError('own')\n" + GOOD, package="pkg_c")
    found = look(imports=True)
    assert set(found) == {"spoiled", "import"}
    assert (found["spoiled"].plugin, found["spoiled"].severity) == ("thing:a@d1", "warning")
    assert "thing:b@d2 cannot be imported behind it: " in found["spoiled"].message
    assert "RuntimeError: hook" in found["spoiled"].message
    assert "pkg_a" in found["spoiled"].message  # where it comes from
    assert found["import"].plugin == "thing:c@d3"
    assert "ValueError: own" in found["import"].message


def test_who_changes_the_process_is_told_once_for_all_behind_it(house, look):
    """Others stand between, and more would fail behind it: none of them is suspected."""
    for name in ("a", "b", "d", "f"):
        house.add(f"d-{name}", {f"things {name}": "T"}, GOOD, package=f"pkg_{name}")
    bad = "import sys\nsys.modules['wave'] = None\n" + GOOD
    house.add("d-c", {"things c": "T"}, bad, package="pkg_c")
    for name in ("e", "g", "h"):
        code = "import wave\n" + GOOD
        house.add(f"d-{name}", {f"things {name}": "T"}, code, package=f"pkg_{name}")
    found = look(imports=True)
    assert set(found) == {"spoiled"}
    assert found["spoiled"].plugin == "thing:c@d-c"
    assert "thing:e@d-e cannot be imported behind it" in found["spoiled"].message


def test_where_it_takes_several_to_change_the_process_all_are_told(house, look):
    count = "import sys\nsys.wave = getattr(sys, 'wave', 0) + 1\n"
    for name in ("a", "b"):
        house.add(f"d-{name}", {f"things {name}": "T"}, count + GOOD, package=f"pkg_{name}")
    last = "import sys\nif getattr(sys, 'wave', 0) == 2: raise ValueError('two')\n" + GOOD
    house.add("d-c", {"things c": "T"}, last, package="pkg_c")
    found = look(imports=True)
    assert set(found) == {"spoiled"}
    assert "thing:c@d-c can be imported, but not behind thing:a@d-a, thing:b@d-b" in (
        found["spoiled"].message
    )


def test_one_that_closes_all_files_is_told(house, look):
    """The one behind it is imported all the same."""
    house.add("d1", {"things a": "T"}, "import os, time\nos.closerange(0, 99)\n" + GOOD)
    house.add("d2", {"things b": "T"}, "raise ValueError('own')\n")
    found = look(imports=True)
    assert (found["exit"].plugin, found["import"].plugin) == ("thing:a@d1", "thing:b@d2")


def test_one_that_is_slow_is_told(house, look):
    house.add("d", {"things slow": "T"}, "import time; time.sleep(0.2)\n" + GOOD)
    assert set(look(imports=True, slow=0.1)) == {"slow"}


def test_a_manifest_that_says_something_else_than_the_class(house, look):
    """What both say must be equal, whatever kind of list it is."""
    code = GOOD + "    rank = 3\n    architectures = ('B', 'A')\n    size = 1\n    other = 2\n"
    rows = house.manifest("thing", "a", rank=2, architectures=["A", "B"])
    house.add("d", {"things a": "T"}, code, rows + "[plugin.facts]\nsize = 1\nmore = 5\n")
    finding = look(imports=True)["manifest"]
    assert "its manifest says rank = 2, its class 3" in finding.message


def test_attributes_of_any_value_are_taken(house, look):
    """What a manifest does not speak of is nobody's business, whatever it is."""
    code = "class Odd:\n    def __repr__(self): raise ValueError\n" + GOOD
    code += (
        "    big, half, nan = 10**30, '\\udcff', float('nan')\n    odd = ({1}, Odd(), b'1', 2)\n"
    )
    house.add("d", {"things a": "T"}, code, house.manifest("thing", "a"))
    assert look(imports=True) == {}


def test_a_slip_in_the_lists_of_a_manifest_is_told(house, look):
    """A name that looks like none may be that of a plugin that is not installed."""
    house.thing("tiger", "d1")
    house.thing("cat", "d2", replaces=["tigre", "elsewhere"], before=["tiger"])
    finding = look()["order"]
    assert (finding.severity, finding.plugin) == ("warning", "thing:cat@d2")
    assert "replaces = 'tigre', which no thing is called (did you mean 'tiger'?)" in finding.message


def test_a_process_that_is_only_a_part_looks_at_all(house, look):
    """A plugin of another process is examined like any other."""
    house.add("d", {"things a": "T"}, "raise RuntimeError", house.manifest("thing", "a"))
    assert look(imports=True, scopes={Scope.FRONT_END})["import"].plugin == "thing:a@d"


def test_the_command(house):
    """Text and JSON tell the same; the exit code is 1 for an error and 0 for warnings."""
    source = (
        "from framework.contracts.scheduling_policy import SchedulingPolicy\n"
        "class P(SchedulingPolicy):\n    def keys(self, requests): ...\n"
    )
    manifest = house.manifest("scheduling_policy", "p")
    manifest += '[[plugin.config]]\nfield = "modl"\nvalue = 1\nreason = "r"\n'
    house.add("d", {"scheduling_policies p": "P"}, source, manifest)
    manifest = house.manifest("scheduling_policy", "q")
    manifest += '[[plugin.config]]\nfield = "max_num_seqs"\nvalue = "no"\nreason = "r"\n'
    house.add("e", {"scheduling_policies q": "P"}, source, manifest)

    def run(*arguments, **env):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
        environment |= {"PYTHONPATH": os.pathsep.join(house.paths), **env}
        command = [sys.executable, "-m", "framework", "plugins", "doctor", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    def told(*arguments, **env):
        """Exit code and findings, without those of an environment that is not up to date."""
        ended = run("--no-import", "--json", *arguments, **env)
        rows = json.loads(ended.stdout)["findings"]
        own = [row for row in rows if row["code"] != "outdated"]
        return ended.returncode if own == rows else None, own

    code, rows = told(FRAMEWORK_PLUGINS_DENY="x")
    assert code in (1, None)
    assert [(row["code"], row["severity"]) for row in rows] == [
        ("list", "warning"),
        ("proposal", "error"),
        ("proposal", "error"),
    ]
    assert (rows[2]["plugin"], rows[2]["distribution"]) == ("scheduling_policy:q@e", "e")
    assert "max_num_seqs is invalid" in rows[2]["message"]
    code, rows = told(FRAMEWORK_PLUGINS_DENY="p,q")
    assert (code in (0, None), rows) == (True, [])
    frozen = run("--no-import", FRAMEWORK_PLUGINS_FROZEN="1", FRAMEWORK_PLUGINS_DENY="p,q")
    assert frozen.returncode == 1
    assert "error: there is no lock file" in frozen.stdout
    assert "  mend: framework plugins lock" in frozen.stdout
