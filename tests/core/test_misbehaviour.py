"""Whatever a plugin does that the core calls, the error names it and concerns few requests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from framework.contracts.kv_cache_spec import CacheManagerType, FullAttentionSpec
from framework.contracts.participant import External, Hold, Refuse, SchedulerParticipant, Wait
from framework.contracts.step import LateInputs, Logprobs, PromptLogprobs
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.kv.managers import BUILT_IN
from framework.core.policies import FirstComeFirstServed
from framework.errors import EngineDeadError, PluginError
from framework.testing import ScriptedRunner, expected_tokens


def boom(*arguments):
    raise RuntimeError("boom")


class Unshown:
    """Neither a value nor an error of this kind can be shown."""

    def __repr__(self):
        raise ValueError("no repr")


class Mute(RuntimeError):
    def __str__(self):
        raise ValueError("no text")


def mute(*arguments):
    raise Mute


# Cache managers and specs


@dataclass(frozen=True, slots=True, kw_only=True)
class OddSpec(FullAttentionSpec):
    """first: like a window over the first tokens."""


class Odd(CacheManagerType):
    """Keeps nothing that is full, and takes whatever is there."""

    spec_class = OddSpec
    keeps_all: ClassVar[bool] = False

    def longest_hit(self, present, page_tokens, spec):
        return next((i for i, there in enumerate(present) if not there), len(present))

    def droppable(self, computed, page_tokens, spec):
        return 0, 0


SPEC = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}


def odd_engine(engine, manager=None, spec=OddSpec, **config):
    manager = manager or Odd()
    more = config.pop("managers", (manager,))
    managers = (*(make() for make in BUILT_IN), *more)
    runner = {"layers": {"a": spec(**SPEC)}, "managers": (Odd(),), **config.pop("runner", {})}
    return engine(managers=managers, runner=runner, **config)


ANSWERS = [
    ("longest_hit", boom),
    ("longest_hit", mute),
    ("longest_hit", lambda *a: None),
    ("longest_hit", lambda *a: Unshown()),
    ("longest_hit", lambda *a: -1),
    ("longest_hit", lambda *a: 10**30),
    ("longest_hit", lambda *a: 1.5),
    ("longest_hit", lambda *a: float("nan")),
    ("longest_hit", lambda *a: True),
    ("droppable", boom),
    ("droppable", lambda *a: None),
    ("droppable", lambda *a: 3),
    ("droppable", lambda *a: (0, 10**30)),
    ("droppable", lambda *a: (-3, 1)),
    ("droppable", lambda computed, size, spec: (0, computed // size + 1)),
    ("droppable", lambda *a: (0.0, 1.0)),
]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("method", "answer"), ANSWERS)
def test_a_cache_manager_that_fails_ends_the_requests_it_was_asked_about(
    engine, alone, method, answer, depth
):
    manager = Odd()
    one = odd_engine(engine, manager, loop_depth=depth, runner={"num_pages": 400})
    one.add("first", [1] * 9, 3)
    assert one.run()["first"].tokens == alone([1] * 9, 3).tokens
    one.add("runs", [2] * 2, 30)
    one.step()
    one.step()
    setattr(manager, method, answer)
    one.add("bad", [1] * 9, 6)
    answers = one.run()
    assert answers["bad"].reason == "error"
    assert "test_misbehaviour:Odd " in answers["bad"].error
    assert answers["runs"].reason == ("error" if method == "droppable" else "length")
    delattr(manager, method)
    one.add("good", [1] * 9, 6)
    assert one.run()["good"].tokens == alone([1] * 9, 6).tokens


@pytest.mark.parametrize("depth", [1, 2])
def test_a_request_ends_in_the_step_in_which_its_cache_manager_failed(engine, depth):
    """Also where steps equal the one before."""
    manager = Odd()
    one = odd_engine(engine, manager, loop_depth=depth, runner={"page_tokens": 8})
    for name in "ab":
        one.add(name, [ord(name)] * 3, 40)
    for _ in range(3):
        one.step()
    assert one.core._state.steady is not None
    manager.droppable = boom
    ends = []
    while not ends:
        outputs = one.step()
        ends = [outputs.request_ids[end.row] for end in outputs.finished]
    assert ends == ["a", "b"]
    confirmed = 3 + len(one.answers["a"].tokens) - 1
    assert confirmed == 8
    one.run()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_cache_manager_that_fails_when_pages_are_lacking_ends_its_requests_alone(engine, depth):
    """It is asked then what it would give back, in the middle of planning a step."""
    manager = Odd()
    one = odd_engine(engine, manager, loop_depth=depth, runner={"num_pages": 12}, max_model_len=40)
    for name in "ab":
        one.add(name, [ord(name)] * 2, 30)
    while one.core._state.kv.pool.num_free > 1:
        one.step()
    manager.droppable = boom
    answers = one.run()
    assert {answer.reason for answer in answers.values()} == {"error"}
    delattr(manager, "droppable")
    one.add("good", [1] * 9, 6)
    assert one.run()["good"].reason == "length"


def test_a_hit_with_a_page_that_is_lacking_and_not_dropped_is_refused(engine):
    manager = Odd()
    one = odd_engine(engine, manager)
    one.add("a", [1] * 9, 2)
    one.run()
    manager.longest_hit = lambda present, size, spec: len(present)
    one.add("b", [1] * 5 + [2] * 9, 2)
    answer = one.run()["b"]
    assert answer.reason == "error"
    assert "Odd took a hit for whole of which a page is lacking" in answer.error


def test_a_prefix_is_not_pinned_where_the_manager_fails_and_the_engine_goes_on(engine):
    manager = Odd()
    one = odd_engine(engine, manager)
    one.add("a", [1] * 9, 2)
    one.run()
    manager.longest_hit = boom
    with pytest.raises(PluginError, match="Odd failed while counting"):
        one.core.pin_prefix([1] * 9)
    del manager.longest_hit
    one.add("b", [1] * 9, 2)
    assert one.run()["b"].cached == 8


class Twin(Odd):
    pass


class Speechless(Odd):
    @property
    def carries_state(self):
        raise RuntimeError("boom")


class OfNothing(Odd):
    spec_class = 3


@pytest.mark.parametrize(
    ("second", "kind", "words"),
    [
        (Speechless, PluginError, "Speechless failed while telling what it serves"),
        (OfNothing, PluginError, "OfNothing serves no spec"),
    ],
)
def test_managers_are_checked_when_the_engine_starts(engine, second, kind, words):
    managers = (*(make() for make in BUILT_IN), Odd(), second())
    with pytest.raises(kind, match=words):
        engine(managers=managers)


def test_of_two_managers_for_one_spec_the_later_serves_and_the_log_names_both(engine, caplog):
    twin = Twin()
    twin.longest_hit = lambda present, size, spec: 0
    one = odd_engine(engine, managers=(Odd(), twin))
    for name in "ab":
        one.add(name, [1] * 9, 2)
        assert one.run()[name].cached == 0
    assert "OddSpec are managed by" in caplog.text
    assert "Twin, not by" in caplog.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat(FullAttentionSpec):
    """Its pages do not grow with their tokens."""

    def page_bytes(self, page_tokens):
        return 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Modest(FullAttentionSpec):
    """Counts too few pages."""

    def max_pages(self, length, page_tokens, step_tokens):
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken(FullAttentionSpec):
    def max_pages(self, length, page_tokens, step_tokens):
        raise RuntimeError("boom")


@dataclass(frozen=True, slots=True, kw_only=True)
class Negative(FullAttentionSpec):
    def max_pages(self, length, page_tokens, step_tokens):
        return -4


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Flat, "Flat has pages that do not grow"),
        (Modest, "Modest counts fewer pages than are kept"),
        (Broken, "Broken failed while counting the pages"),
        (Negative, "Negative gave a wrong max_pages"),
    ],
)
def test_specs_are_checked_when_the_engine_starts(engine, spec, words):
    with pytest.raises(PluginError, match=words):
        engine(runner={"layers": {"a": spec(**SPEC)}, "max_model_len": 100})


# Runners

TOLD = [
    ("layers", {}),
    ("layers", None),
    ("layers", {"a": "full"}),
    ("page_tokens", ()),
    ("page_tokens", (0,)),
    ("page_tokens", None),
    ("bytes_free", None),
    ("bytes_free", -1),
    ("bytes_free", float("inf")),
    ("vocab_size", 0),
    ("max_loop_depth", "2"),
    ("max_model_len", 0),
    ("max_model_len", 2**63),
    ("embedding_size", True),
    ("kernel_page_tokens", {FullAttentionSpec(**SPEC): 0}),
    ("kernel_page_tokens", 16),
    ("layout", "diagonal"),
    ("features", ["logprobs"]),
    ("control_ops", None),
]


@pytest.mark.parametrize(("name", "value"), TOLD)
def test_what_a_runner_tells_is_checked_when_the_engine_starts(name, value):
    """By its own name, not by that of a spec that is asked with it."""
    runner = ScriptedRunner()
    info = replace(runner.info(), **{name: value})
    words = f"ScriptedRunner told a wrong {name} when it was loaded"
    with pytest.raises(PluginError, match=words):
        EngineCore(runner, info, CoreConfig(), policy=FirstComeFirstServed())


def change(**fields):
    return lambda result: replace(result, **fields)


INT = np.int32
LOGPROBS = Logprobs(
    offsets=np.array([0, 1], INT),
    ids=np.array([7], INT),
    values=np.zeros(1, np.float32),
    ranks=np.array([1], INT),
)
ODD_LOGPROBS = (
    [0.0],
    replace(LOGPROBS, ids=None),
    replace(LOGPROBS, ids=np.zeros(2, INT)),
    replace(LOGPROBS, ranks=np.zeros(1)),
    replace(LOGPROBS, values=np.zeros(1, INT)),
    replace(LOGPROBS, offsets=np.array([0, 2], INT)),
    replace(LOGPROBS, offsets=np.array([1, 1], INT)),
    replace(LOGPROBS, offsets=np.zeros(0, INT)),
    replace(LOGPROBS, offsets=np.array([0, 2, 1], INT), ranks=np.ones(2, INT)),
)


def scored(**fields):
    return PromptLogprobs(**{"row": 0, "start": 1, "logprobs": LOGPROBS, **fields})


RESULTS = [
    lambda result: None,
    lambda result: Unshown(),
    change(step_id=77),
    change(slots=np.array([5], INT)),
    change(generations=None),
    change(token_ids=None),
    change(token_ids=[3]),
    change(token_ids=np.array([0.5])),
    change(token_offsets=np.array([0, 5], INT)),
    change(token_offsets=np.array([0, 3], INT), token_ids=np.arange(3, dtype=INT)),
    change(errors={9: "no such row"}),
    change(invalid_pages=np.array([10**6], INT)),
    change(invalid_pages=None),
    change(draft_ids=np.array([1, 2], INT), draft_offsets=np.array([0], INT)),
    change(draft_ids=np.array([2**40]), draft_offsets=np.array([0, 1], INT)),
    change(draft_ids=np.array([-1], INT), draft_offsets=np.array([0, 1], INT)),
    # Of a vocabulary of 1000; where a row has no stop ids, -1 stands for none.
    change(token_ids=np.array([-1], INT)),
    change(token_ids=np.array([1000], INT)),
    change(token_ids=np.array([2**32 + 3])),
    change(token_ids=np.array([2**63], np.uint64)),
    change(token_ids=np.array([1000], INT), errors=None),
    change(errors=np.zeros(2)),
    change(errors={0: None}),
    change(errors={0.0: "no row"}),
    change(errors=[0]),
    change(pooled=np.zeros(2)),
    change(attachments=np.zeros(2)),
    change(attachments={"a": "text"}),
    change(prompt_logprobs=np.zeros(2)),
    change(prompt_logprobs=(scored(row=0.0),)),
    change(prompt_logprobs=(scored(start="1"),)),
    change(prompt_logprobs=(scored(start=-1),)),
    change(prompt_logprobs=(scored(start=2),)),
    change(prompt_logprobs=(scored(start=1),)),  # of a prompt of one token
    change(prompt_logprobs=(scored(logprobs=None),)),
    *(change(logprobs=odd, logprob_tokens=np.zeros(1, INT)) for odd in ODD_LOGPROBS),
    # What a step that equals the one before does not look at.
    change(errors=None),
    change(prompt_logprobs=None),
    change(accepted=np.array([4], INT)),
    change(accepted=np.array([0.0])),
    change(accepted=np.array([np.nan])),
    change(draft_offsets=[0, 0]),
    change(logprob_tokens=None),
]
UNSEEN = 7


@pytest.mark.parametrize(
    ("answer", "when"), [(a, 0) for a in RESULTS] + [(a, 6) for a in RESULTS[:-UNSEEN]]
)
def test_a_result_that_cannot_be_stops_the_engine_with_the_runners_name(engine, answer, when):
    one = engine()
    one.add("a", [1], 30)
    for _ in range(when):
        one.step()
    finish = one.runner.finish
    one.runner.finish = lambda ticket, late: answer(finish(ticket, late))
    with pytest.raises(
        EngineDeadError, match=r"plugin framework\.testing\.scripted:ScriptedRunner"
    ):
        one.core.step()


@pytest.mark.parametrize("stop_ids", [(), (7,)])
@pytest.mark.parametrize("token", [-1, 1000])
def test_a_token_outside_the_vocabulary_is_the_runners_fault_in_any_step(engine, stop_ids, token):
    """In the first step as in those that equal the one before; others come before it."""
    for when in range(6):
        one = engine()
        for name in "abc":
            one.add(name, [1], 30, stop_ids=stop_ids)
        for _ in range(when):
            one.step()
        finish = one.runner.finish
        strange = np.array([999, 0, token], INT)
        one.runner.finish = lambda t, late, f=finish, ids=strange: replace(
            f(t, late), token_ids=ids
        )
        with pytest.raises(EngineDeadError, match=r"ScriptedRunner.*\n.*\n.*in row 2, outside"):
            one.core.step()


def test_a_draft_beyond_the_vocabulary_is_only_not_accepted(engine):
    one = engine(runner={"drafter": lambda request, tokens, wanted: [1000] * wanted}, max_drafts=2)
    one.add("a", [1], 8)
    assert one.run()["a"].tokens == expected_tokens([1], 8)
    assert one.core.stats.drafted > 0


def test_what_comes_with_an_error_is_no_token(engine):
    one = engine(runner={"fail_rows": {(3, 1): "no number"}})
    one.add("a", [1], 8)
    one.add("b", [2], 8)
    finish = one.runner.finish

    def with_garbage(ticket, late):
        result = finish(ticket, late)
        ids = result.token_ids.copy()
        ids[[*result.errors]] = -1
        return replace(result, token_ids=ids)

    one.runner.finish = with_garbage
    answers = one.run()
    assert answers["a"].tokens == expected_tokens([1], 8)
    assert answers["b"].tokens == expected_tokens([2], 8)[:2]
    assert answers["b"].error == "no number"


@pytest.mark.parametrize("method", ["submit", "finish"])
@pytest.mark.parametrize("answer", [boom, mute, lambda *a: None])
def test_a_runner_that_fails_in_a_step_is_named(engine, method, answer):
    one = engine()
    one.add("a", [1], 30)
    setattr(one.runner, method, answer)
    with pytest.raises(EngineDeadError, match="ScriptedRunner"):
        one.core.step()


# Participants


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("steady", [1, 4])
def test_a_failing_absorb_ends_its_requests_in_that_step(engine, depth, steady):
    """The step's token is not handed out: the participant has not seen it."""
    bad = SchedulerParticipant()
    one = engine(participants={"bad": bad}, loop_depth=depth)
    one.add("its", [1] * 3, 20, extras={"bad": b""})
    one.add("other", [2] * 3, 20)
    for _ in range(steady):
        one.step()
    before = len(one.answers["its"].tokens)
    bad.absorb = boom
    outputs = one.step()
    assert [outputs.request_ids[end.row] for end in outputs.finished] == ["its"]
    assert len(one.answers["its"].tokens) == before
    assert "failed in absorb: RuntimeError: boom" in one.answers["its"].error
    assert one.run()["other"].reason == "length"


METHODS = ["admit", "external_prefix", "limit", "attach", "absorb", "late"]


@pytest.mark.parametrize("answer", [mute, lambda *a: Unshown()])
@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_shown_is_told_all_the_same(engine, method, answer):
    bad = SchedulerParticipant()
    setattr(bad, method, answer)
    one = engine(participants={"bad": bad})
    one.add("its", [1], extras={"bad": b""})
    one.add("other", [2])
    answers = one.run()
    if method != "absorb" or answer is mute:
        assert "'bad'" in answers["its"].error
    assert answers["other"].reason == "length"


class Vandal(SchedulerParticipant):
    """Writes to all that it is shown, then fails."""

    attends_all = True

    def _wreck(self, record, requests):
        for name in ("slots", "generations", "computed", "num_new", "token_ids", "token_offsets"):
            array = getattr(record, name, None)
            if array is not None:
                try:
                    array[:] = 99
                except ValueError:
                    continue
                raise AssertionError("written to")
        for mapping in (requests, record.attachments):
            try:
                mapping.clear()
            except AttributeError:
                continue
            raise AssertionError("emptied")

    def attach(self, plan, requests):
        self._wreck(plan, requests)
        for update in plan.pages:
            assert not update.ids.flags.writeable

    def late(self, plan, requests):
        self._wreck(plan, requests)

    def absorb(self, result, requests):
        self._wreck(result, requests)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_participant_cannot_write_to_what_it_is_shown(engine, alone, depth):
    one = engine(participants={"vandal": Vandal()}, loop_depth=depth)
    one.add("a", [1] * 9)
    answer = one.run()["a"]
    assert answer.error is None
    assert answer.tokens == alone([1] * 9).tokens


@pytest.mark.parametrize(
    "part",
    [
        LateInputs(attachments={3: b""}),
        LateInputs(attachments={"a": "text"}),
        LateInputs(bitmask=np.zeros((2, 32), np.uint32), bitmask_rows=np.zeros(2, np.int32)),
    ],
)
def test_late_inputs_that_cannot_be_end_their_requests(engine, part):
    bad = SchedulerParticipant()
    bad.late = lambda plan, requests: part
    one = engine(participants={"bad": bad})
    one.add("its", [1], extras={"bad": b""})
    one.add("other", [2])
    answers = one.run()
    assert "'bad'" in answers["its"].error
    assert answers["other"].reason == "length"


def test_facts_that_fail_are_named_when_the_engine_starts(engine):
    class Shy(SchedulerParticipant):
        @property
        def attends_all(self):
            raise RuntimeError("boom")

    with pytest.raises(PluginError, match="Shy failed while telling whether it attends"):
        engine(participants={"shy": Shy()})


def test_a_wake_that_fails_while_no_slot_is_free_ends_its_request_at_once(engine):
    bad = SchedulerParticipant()
    bad.admit = lambda request: Wait("w", boom)
    one = engine(participants={"bad": bad}, max_num_seqs=2)
    one.add("its", [1], extras={"bad": b""})
    one.step()
    one.add("runs", [2], 30)
    outputs = one.step()
    outputs = one.step() if not outputs.finished else outputs
    assert outputs.request_ids[outputs.finished[0].row] == "its"
    one.run()


class OddInt(int):
    """Cannot be compared, nor told."""

    def __lt__(self, other):
        raise ValueError("lt")

    __gt__ = __le__ = __ge__ = __lt__

    def __int__(self):
        raise ValueError("int")


class OddText(str):
    __slots__ = ()

    def __bool__(self):
        raise ValueError("bool")

    def __str__(self):
        raise ValueError("str")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("method", "answer", "reason"),
    [
        ("limit", lambda *a: OddInt(3), "length"),
        ("external_prefix", lambda *a: External(OddInt(-3)), "length"),
        ("external_prefix", lambda *a: External(3, lambda: OddInt(0)), "length"),
        ("external_prefix", lambda *a: External(3, 5), "error"),
        ("external_prefix", lambda *a: Refuse(OddText("no")), "error"),
        ("admit", lambda *a: Refuse(OddText("no")), "error"),
        ("admit", lambda *a: Refuse(Unshown()), "error"),
        ("admit", lambda *a: Wait(OddText("w"), boom), "error"),
        ("admit", lambda *a: Wait("w", 3), "error"),
        ("release", lambda *a: Hold(3), "length"),
        ("release", lambda *a: Hold(Unshown), "length"),
    ],
)
def test_answers_of_odd_classes_are_read_as_what_they_are(engine, alone, method, answer, reason):
    odd = SchedulerParticipant()
    setattr(odd, method, answer)
    one = engine(participants={"odd": odd})
    one.add("its", [1] * 9, extras={"odd": b""})
    one.add("other", [2] * 9)
    answers = one.run()
    assert answers["its"].reason == reason
    assert answers["other"].tokens == alone([2] * 9).tokens
    if reason == "length":
        assert answers["its"].tokens == alone([1] * 9).tokens
    else:
        assert answers["its"].error == "no" or "'odd'" in answers["its"].error
