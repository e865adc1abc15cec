"""A stable contract does not change without the version that the change asks for."""

from __future__ import annotations

import importlib.util
import itertools
import sys

import pytest

from framework.plugins.kinds import Cardinality, Kind, Scope, Stability, ThirdParty
from tools import contract_snapshot as snapshot
from tools.contract_snapshot import Due, Frozen, changes, problems, read, stable_contracts, write

BASE = '''
"""Kind `thing`: for these tests."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from framework.contracts.base import Answer, Contract, Query, Supported, handed, versioned

if TYPE_CHECKING:
    from framework.contracts.{other} import Page

LIMIT = 3
Size = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThingQuery(Query):
    size: int = versioned(since="1.0")
    colour: str = versioned(since="1.0", neutral="grey")


@dataclass(frozen=True, slots=True, kw_only=True)
class ThingSupported(Supported):
    weight: int = 0


class Helper(Protocol):
    def help(self) -> int: ...

    @property
    def depth(self) -> int: ...


@handed
class Given(Protocol):
    def give(self) -> int: ...


class Thing(Contract):
    """A thing."""

    kind: ClassVar[str] = "thing"
    quick: ClassVar[bool] = False

    @abstractmethod
    def answer(self, query: ThingQuery) -> Answer:
        """Whether."""

    def turn(self, page: Page) -> Helper | None:
        """The page."""
'''
OTHER = """
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Page:
    number: int
    text: str = ""


class Unseen:
    def nothing(self) -> None: ...
"""
COUNTER = itertools.count()


@pytest.fixture
def contract(tmp_path):
    """Makes a stable kind of two modules that stand where contracts do."""
    made = []

    def module(text):
        name = f"framework.contracts.snapshot_{next(COUNTER)}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        made.append(name)
        spec.loader.exec_module(sys.modules[name])
        return name

    def make(old="", new="", *, version="1.0", other=("", "")):
        assert old in BASE
        assert other[0] in OTHER
        second = module(OTHER.replace(*other))
        text = BASE.replace(old, new) if old else BASE
        first = module(text.replace("{other}", second.rpartition(".")[2]))
        kind = Kind(
            name="thing",
            group="framework.things",
            contract=f"{first}:Thing",
            version=version,
            scopes=frozenset({Scope.WORKER}),
            cardinality=Cardinality.ONE,
            third_party=ThirdParty.ALLOWED,
            stability=Stability.STABLE,
        )
        (frozen,) = stable_contracts([kind]).values()
        # Only the names of these modules differ from run to run.
        surface = {
            k.replace(second.rpartition(".")[2], "other"): v for k, v in frozen.surface.items()
        }
        return Frozen(frozen.version, surface)

    yield make
    for name in made:
        del sys.modules[name]


def test_stable_contracts_are_those_written_down():
    """What is due is said; where nothing is, the snapshot only has to be written."""
    old, new = read(), stable_contracts()
    wrong = problems(old, new)
    assert not wrong, "\n".join(wrong)
    assert old == new, f"the snapshot is behind the contracts: {snapshot.MEND}"


FIELD = '    colour: str = versioned(since="1.0", neutral="grey")\n'
TURN = "    def turn(self, page: Page) -> Helper | None:"
NOTHING = {
    "a docstring": ('"""A thing."""', '"""Some thing."""'),
    "a private name": ("LIMIT = 3\n", "LIMIT = 3\n_LOW = 1\n"),
    "the value of a constant": ("LIMIT = 3", "LIMIT = 4"),
}
MINOR = {
    "a method": (TURN, f"    def leave(self) -> None:\n        pass\n\n{TURN}"),
    "a field of a query": (FIELD, f'{FIELD}    deep: int = versioned(since="1.1", neutral=0)\n'),
    "a field of an answer": ("    weight: int = 0\n", "    weight: int = 0\n    size: int = 0\n"),
    "a class attribute": ("    quick:", "    slow: ClassVar[bool] = False\n    quick:"),
    "a constant": ("LIMIT = 3\n", "LIMIT = 3\nLEAST = 1\n"),
    "what plugins are handed can do more": (
        "    def give(self) -> int: ...",
        "    def give(self) -> int: ...\n\n    def take(self) -> int: ...",
    ),
    "a type": (
        "class Helper",
        "class Hint(Protocol):\n    def hint(self) -> int: ...\n\n\nclass Helper",
    ),
}
MAJOR = {
    "a method is gone": (f'{TURN}\n        """The page."""\n', ""),
    "a query field is gone": (FIELD, ""),
    "a constant is gone": ("LIMIT = 3\n", ""),
    "an argument has another name": ("query: ThingQuery", "question: ThingQuery"),
    "an argument has another type": ("page: Page", "page: int"),
    "there is one more argument": ("page: Page", "page: Page, more: int = 0"),
    "a result has another type": ("-> Helper | None", "-> Helper"),
    "a method is to be read, not called": (
        "    def help(self)",
        "    @property\n    def help(self)",
    ),
    "a property is to be called": ("    @property\n    def depth", "    def depth"),
    "a method is awaited": ("    def help(self)", "    async def help(self)"),
    "a method belongs to the class": (TURN, f"    @classmethod\n{TURN}"),
    "a method must be written": (TURN, f"    @abstractmethod\n{TURN}"),
    "a new method must be written": (
        TURN,
        f"    @abstractmethod\n    def leave(self) -> None: ...\n\n{TURN}",
    ),
    "a protocol asks for more": (
        "    def help(self) -> int: ...",
        "    def help(self) -> int: ...\n\n    def save(self) -> int: ...",
    ),
    "what plugins are handed can do less": ("    def give(self) -> int: ...", "    pass"),
    "a query field has another type": ("colour: str", "colour: int"),
    "a query field has another neutral value": ('neutral="grey"', 'neutral="red"'),
    "a new query field is not neutral": (
        FIELD,
        f'{FIELD}    deep: int = versioned(since="1.1", default=0)\n',
    ),
    "a new field must be given": ("    weight: int = 0\n", "    weight: int = 0\n    size: int\n"),
    "a default has changed": ("weight: int = 0", "weight: int = 1"),
    "a class attribute has changed": ("ClassVar[bool] = False", "ClassVar[bool] = True"),
    "an alias has changed": ("Size = int | str", "Size = int"),
    "a base has changed": ("class ThingQuery(Query)", "class ThingQuery"),
}
CASES = [
    pytest.param(due, *edit, id=name)
    for due, edits in ((Due.NOTHING, NOTHING), (Due.MINOR, MINOR), (Due.MAJOR, MAJOR))
    for name, edit in edits.items()
]
NEEDED = {Due.MINOR: "1.1", Due.MAJOR: "2.0"}


@pytest.mark.parametrize(("due", "old", "new"), CASES)
def test_each_change_asks_for_its_version(contract, due, old, new):
    """Without it the change is refused with the version to set, with it nothing is said."""
    before, after = contract(), contract(old, new)
    assert max((c.due for c in changes(before.surface, after.surface)), default=0) is due or (
        due is Due.NOTHING and before.surface == after.surface
    )
    found = problems({"thing": before}, {"thing": after})
    if due is Due.NOTHING:
        assert not found
        return
    assert f"thing 1.0 needs a new {due.name.lower()} version" in found[0]
    assert f'set version="{NEEDED[due]}"' in found[0]
    later = contract(old, new, version=NEEDED[due])
    assert problems({"thing": before}, {"thing": later}) == []


def test_a_minor_version_is_no_major_one(contract):
    before, after = contract(), contract(FIELD, "", version="1.7")
    (found,) = problems({"thing": before}, {"thing": after})
    assert found == (
        'thing 1.0 needs a new major version: set version="2.0" in its row of '
        "framework/plugins/kinds.py\n  ThingQuery.colour is gone"
    )


def test_types_of_other_files_are_part_of_it(contract):
    """What a signature mentions, also for type checkers only; what it does not mention is not."""
    before = contract()
    assert before.surface["other.Page.text"] == "field str = ''"
    gone = contract(other=('    text: str = ""\n', ""))
    (change,) = changes(before.surface, gone.surface)
    assert (change.due, change.text) == (Due.MAJOR, "other.Page.text is gone")
    unseen = contract(other=("    def nothing(self) -> None: ...", "    pass"))
    assert changes(before.surface, unseen.surface) == []


def test_a_new_query_field_says_the_version_that_brought_it(contract):
    before = contract()
    late = f'{FIELD}    deep: int = versioned(since="1.0", neutral=0)\n'
    (found,) = problems({"thing": before}, {"thing": contract(FIELD, late, version="1.1")})
    assert found == 'thing: ThingQuery.deep came with this version: write since="1.1"'


def test_a_stable_contract_stays_stable(contract):
    assert problems({"thing": contract()}, {}) == [
        "thing was stable and is so no more: a stable contract is kept"
    ]


def test_the_snapshot_is_written_only_when_nothing_is_due(contract, tmp_path):
    file = tmp_path / "contracts.json"
    before = contract()
    assert write({"thing": before}, file) == []  # a contract that has become stable
    assert read(file) == {"thing": before}
    text = file.read_text()
    assert "needs a new major version" in write({"thing": contract(FIELD, "")}, file)[0]
    assert file.read_text() == text
    after = contract(FIELD, "", version="2.0")
    assert write({"thing": after}, file) == []
    assert read(file) == {"thing": after}


def test_the_command_ends_with_what_is_due(contract, tmp_path, monkeypatch):
    monkeypatch.setattr(snapshot, "write", lambda contracts: ["x is due"])
    with pytest.raises(SystemExit, match="x is due"):
        snapshot.main()
