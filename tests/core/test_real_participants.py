"""Four families that other engines weave into their scheduler, each as a participant."""

from __future__ import annotations

import math

import pytest

from framework.contracts.kv_cache_spec import (
    FullAttentionSpec,
    MambaSpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.contracts.participant import (
    READY,
    External,
    Hold,
    Refuse,
    SchedulerParticipant,
    Wait,
)


class SlowGrammar(SchedulerParticipant):
    """Compiles for a number of looks; requests stand aside until it is done."""

    def __init__(self, looks):
        super().__init__()
        self.looks, self.compiled = looks, {}

    def admit(self, request):
        grammar = request.input.extras["grammar"]
        if grammar == b"bad":
            return Refuse("the grammar does not compile")
        left = self.compiled.setdefault(grammar, [self.looks])
        if left[0] <= 0:
            return READY

        def look():
            left[0] -= 1
            return left[0] <= 0

        return Wait("compiling", look)


def test_requests_wait_for_their_grammar_and_block_nobody(engine, alone):
    one = engine(participants={"grammar": SlowGrammar(6)}, max_num_seqs=2)
    one.add("bad", [1], extras={"grammar": b"bad"})
    one.add("slow", [2] * 5, extras={"grammar": b"x"})
    one.add("plain", [3] * 5, 3)
    answers = one.run()
    assert (answers["bad"].reason, answers["bad"].error) == (
        "error",
        "the grammar does not compile",
    )
    assert answers["slow"].tokens == alone([2] * 5).tokens
    order = [name for plan in one.runner.plans for name in (r.request_id for r in plan.admitted)]
    assert order == ["plain", "slow"]


class Connector(SchedulerParticipant):
    """Pages that arrive some looks after a request took its slot, in whole or in part.

    bring: request id -> tokens that arrive (less than offered: a failure), or Refuse.
    """

    attends_all = True

    def __init__(self, offered, bring, looks):
        super().__init__()
        self.offered, self.bring, self.looks = offered, bring, looks
        self.runner = None
        self.busy = {}

    def external_prefix(self, request, local_hit):
        offered = max(min(self.offered, len(request.tokens) - 1) - local_hit, 0)
        if not offered:
            return External(0)
        self.busy[request.id] = self.looks

        def arrived():
            self.busy[request.id] -= 1
            if self.busy[request.id] > 0 or not self.runner.holds(request.id):
                return None
            del self.busy[request.id]
            answer = self.bring.get(request.id, offered)
            if isinstance(answer, int):
                self.runner.fill(request.id, local_hit, local_hit + min(answer, offered))
            return answer

        return External(offered, arrived)

    def release(self, request):
        if request.id in self.busy:
            return Hold(lambda: self._tick(request.id))
        return None

    def _tick(self, name):
        self.busy[name] -= 1
        if self.busy[name] > 0:
            return False
        del self.busy[name]
        return True


def connected(engine, connector, **options):
    one = engine(participants={"remote": connector}, **options)
    connector.runner = one.runner
    return one


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("looks", [1, 5])
def test_pages_from_elsewhere_arrive_late_while_others_run(engine, alone, depth, looks):
    one = connected(engine, Connector(12, {}, looks), loop_depth=depth)
    one.add("a", [1] * 20)
    one.add("b", [2] * 5)
    answers = one.run()
    assert answers["a"].tokens == alone([1] * 20).tokens
    assert answers["b"].tokens == alone([2] * 5).tokens
    computed = sum(
        int(plan.num_new[row])
        for plan in one.runner.plans
        for row in range(plan.num_rows)
        if plan.slots[row] == one.runner.plans[0].admitted[0].slot
    )
    assert computed == 20 - 12 + 7  # the rest of the prompt, then all but the last output


@pytest.mark.parametrize("depth", [1, 2])
def test_pages_that_fail_to_arrive_are_computed_or_fail_the_request(engine, alone, depth):
    bring = {"half": 6, "none": 0, "fails": Refuse("the peer is gone")}
    one = connected(engine, Connector(12, bring, 3), loop_depth=depth)
    for index, name in enumerate(("half", "none", "fails", "well")):
        one.add(name, [index + 1] * 20)
    answers = one.run()
    assert (answers["fails"].reason, answers["fails"].error) == ("error", "the peer is gone")
    for index, name in enumerate(("half", "none", "fails", "well")):
        if name != "fails":
            assert answers[name].tokens == alone([index + 1] * 20).tokens


@pytest.mark.parametrize("later", [False, True])
def test_of_a_whole_prompt_from_elsewhere_the_last_token_is_computed(engine, alone, later):
    class Whole(SchedulerParticipant):
        attends_all = True

        def external_prefix(self, request, local_hit):
            return External(100, self.arrived if later else None)

        def arrived(self):
            return 100 if one.runner.holds("a") else None

    one = engine(participants={"whole": Whole()})
    one.runner.worker = lambda plan: [one.runner.fill(r.request_id, 0, 20) for r in plan.admitted]
    one.add("a", [1] * 20)
    assert one.run()["a"].tokens == alone([1] * 20).tokens
    plan = next(plan for plan in one.runner.plans if plan.num_rows)
    assert (plan.computed.tolist(), plan.num_new.tolist()) == ([19], [1])


@pytest.mark.parametrize("depth", [1, 2])
def test_pages_of_an_aborted_load_are_held_until_it_is_over(engine, depth):
    connector = Connector(12, {}, 8)
    one = connected(engine, connector, loop_depth=depth)
    one.add("a", [1] * 20)
    one.step()
    assert one.core.stats.loading == 1
    one.core.abort(["a"])
    one.step()
    assert one.core.stats.pages_used == 3
    one.add("b", [2] * 5, 9)
    while one.core.has_work() or connector.busy:
        one.step()
    one.step()
    assert one.core.stats.pages_used == 0
    assert one.answers["a"].reason == "abort"


HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}
BOUNDED = {
    "window": SlidingWindowSpec(**HEADS, window=6),
    "sinks": SinkWindowSpec(**HEADS, window=6, sinks=3),
    "state": MambaSpec(shapes=((4,),), dtypes=("float32",)),
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("must", [False, True])
@pytest.mark.parametrize("brings", [{}, {"a": 0}, {"a": 7}, {"a": 8}])
@pytest.mark.parametrize("kind", sorted(BOUNDED))
def test_more_from_elsewhere_than_the_cache_holds_at_one_time_is_computed(
    engine, alone, kind, brings, must, depth
):
    """A request longer than its pages, as those behind it are given back: also when they came
    from elsewhere.  What lies behind the tokens that came is no state to go on from."""
    one = connected(
        engine,
        Connector(200, brings, 2),
        runner={"layers": {"own": BOUNDED[kind]}, "num_pages": 14, "max_model_len": 300},
        max_num_batched_tokens=8,
        loop_depth=depth,
        whole_sequence_must_fit=must,
    )
    one.add("a", [1] * 150)
    assert one.run()["a"].tokens == alone([1] * 150).tokens
    first = next(int(plan.computed[0]) for plan in one.runner.plans if plan.num_rows)
    assert first == brings.get("a", 13 * 4)


@pytest.mark.parametrize("kind", sorted(BOUNDED))
def test_of_what_is_there_at_once_no_more_is_taken_than_fits_beside_a_step(engine, alone, kind):
    class Local(SchedulerParticipant):
        attends_all = True

        def external_prefix(self, request, local_hit):
            return External(max(200 - local_hit, 0))

    layers = {"own": BOUNDED[kind], "full": FullAttentionSpec(**HEADS)}
    one = engine(
        participants={"local": Local()},
        runner={"layers": layers, "num_pages": 60, "max_model_len": 200},
        max_num_batched_tokens=8,
    )

    def fill(plan):
        for request in plan.admitted:
            row = plan.slots.tolist().index(request.slot)
            one.runner.fill(request.request_id, 0, int(plan.computed[row]))

    one.runner.worker = fill
    one.add("a", [1] * 150)
    assert one.run()["a"].tokens == alone([1] * 150).tokens
    assert one.runner.plans[0].computed.tolist() == [0 if kind == "state" else 59 // 2 * 4 - 8]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_state_goes_on_from_the_end_of_a_page_where_more_came_than_is_taken(engine, alone, depth):
    """All of the prompt came, and its last token is computed here: after the one before it no
    state was kept."""

    class Whole(SchedulerParticipant):
        attends_all = True

        def external_prefix(self, request, local_hit):
            return External(100, lambda: 100 if one.runner.holds("a") else None)

    layers = {"own": BOUNDED["state"], "full": FullAttentionSpec(**HEADS)}
    one = engine(participants={"whole": Whole()}, runner={"layers": layers}, loop_depth=depth)
    one.runner.worker = lambda plan: [one.runner.fill(r.request_id, 0, 19) for r in plan.admitted]
    one.add("a", [1] * 19)
    assert one.run()["a"].tokens == alone([1] * 19).tokens
    assert next(int(plan.computed[0]) for plan in one.runner.plans if plan.num_rows) == 16


def test_tokens_that_are_there_at_once_are_not_computed(engine, alone):
    class Local(SchedulerParticipant):
        attends_all = True

        def external_prefix(self, request, local_hit):
            return External(8 - local_hit) if local_hit < 8 else External(0)

        def attach(self, plan, requests):
            return b",".join(r.id.encode() for r in requests.values())

    one = engine(participants={"local": Local()})
    enter = one.runner._enter

    def loading(plan):
        enter(plan)
        for request in plan.admitted:
            one.runner.fill(request.request_id, 0, 8)

    one.runner._enter = loading
    one.add("a", [1] * 20)
    assert one.run()["a"].tokens == alone([1] * 20).tokens
    assert one.runner.plans[0].num_new.tolist() == [12]
    assert one.runner.plans[0].attachments == {"local": b"a"}


def test_who_offers_nothing_keeps_nobody_from_offering(engine, alone):
    class Offers(SchedulerParticipant):
        attends_all = True

        def __init__(self, tokens):
            super().__init__()
            self.tokens = tokens

        def external_prefix(self, request, local_hit):
            return External(self.tokens)

    parts = {"none": Offers(0), "first": Offers(8), "second": Offers(12)}
    one = engine(participants=parts)
    one.runner.worker = lambda plan: [one.runner.fill(r.request_id, 0, 8) for r in plan.admitted]
    one.add("a", [1] * 20)
    assert one.run()["a"].tokens == alone([1] * 20).tokens
    assert one.runner.plans[0].computed.tolist() == [8]


class AdapterSlots(SchedulerParticipant):
    """At most so many different adapters at one time."""

    def __init__(self, most):
        super().__init__()
        self.most, self.users = most, {}

    def admit(self, request):
        adapter = request.input.adapter
        if adapter in self.users or len(self.users) < self.most:
            self.users.setdefault(adapter, set()).add(request.id)
            return READY
        return Wait("adapter slots", lambda: len(self.users) < self.most)

    def release(self, request):
        users = self.users.get(request.input.adapter, set())
        users.discard(request.id)
        if not users:
            self.users.pop(request.input.adapter, None)


def test_concurrent_adapters_are_limited(engine):
    slots = AdapterSlots(2)
    one = engine(participants={"lora": slots}, runner={"features": frozenset(("adapters",))})
    for index in range(8):
        one.add(str(index), [index], 4, adapter=index % 4, extras={"lora": b""})
    while one.core.has_work():
        one.step()
        running = {r.input.adapter for r in one.core._state.slots.requests if r is not None}
        assert len(running) <= 2
    assert {answer.reason for answer in one.answers.values()} == {"length"}
    assert slots.users == {}


class EncoderBudget(SchedulerParticipant):
    """Items at places of the prompt must be encoded before the chunk that reaches them; at
    most so many encoder tokens a step.  extras: "start:length,..." per request."""

    def __init__(self, budget):
        super().__init__()
        self.budget, self.encoded, self.noted = budget, set(), {}

    def _items(self, request):
        text = request.input.extras["encoder"].decode()
        return [tuple(int(x) for x in item.split(":")) for item in text.split(",")]

    def limit(self, request, start, tokens):
        spent = sum(length for length in self.noted.values())
        for at, length in self._items(request):
            key = (request.id, at)
            if at + length <= start or key in self.encoded or at >= start + tokens:
                continue
            if key not in self.noted and spent + length > self.budget:
                return max(at - start, 0)
            if key not in self.noted:
                self.noted[key] = length
                spent += length
        return tokens

    def attach(self, plan, requests):
        todo = []
        by_slot = dict(zip(plan.slots.tolist(), range(plan.num_rows), strict=True))
        for slot, request in requests.items():
            row = by_slot[slot]
            end = plan.computed[row] + plan.num_new[row]
            for at, length in self._items(request):
                key = (request.id, at)
                if at < end and key not in self.encoded:
                    self.encoded.add(key)
                    todo.append((key, length))
        self.noted.clear()
        assert sum(length for _, length in todo) <= self.budget
        self.steps = [*getattr(self, "steps", []), todo]
        return repr(todo).encode() if todo else None


@pytest.mark.parametrize("budget", [5, 7, 100])
def test_an_encoder_budget_cuts_chunks_before_items_and_items_straddle_chunks(
    engine, alone, budget
):
    encoder = EncoderBudget(10)
    one = engine(participants={"encoder": encoder}, max_num_batched_tokens=budget)
    one.add("a", [1] * 40, extras={"encoder": b"3:8,15:6,30:10"})
    one.add("b", [2] * 20, extras={"encoder": b"0:9"})
    answers = one.run()
    assert answers["a"].tokens == alone([1] * 40).tokens
    assert answers["b"].tokens == alone([2] * 20).tokens
    assert len(encoder.encoded) == 4
    done = [key for step in encoder.steps for key, _ in step]
    assert len(done) == len(set(done)) == 4
    assert math.isclose(sum(n for step in encoder.steps for _, n in step), 33)


def test_a_step_without_interested_requests_asks_no_participant(engine):
    class Loud(SchedulerParticipant):
        def __getattribute__(self, name):
            if name in ("admit", "limit", "attach", "absorb", "late", "release"):
                raise AssertionError(f"{name} was asked")
            return super().__getattribute__(name)

    one = engine(participants={"loud": Loud()})
    one.add("a", [1] * 9, 20)
    for _ in range(5):
        one.step()
    assert one.core._state.steady is not None
    assert one.run()["a"].reason == "length"


@pytest.mark.parametrize("depth", [1, 2])
def test_who_comes_while_nobody_was_interested_is_attended_from_the_start(engine, depth):
    class Watcher(SchedulerParticipant):
        def __init__(self):
            super().__init__()
            self.calls, self.notes = [], 0

        def attach(self, plan, requests):
            self.calls.append([r.id for r in requests.values()])

        def absorb(self, result, requests):
            self.notes += result.attachments.get("watch") == b"news"

    watcher, news = Watcher(), {}
    one = engine(
        participants={"watch": watcher}, loop_depth=depth, runner={"attachments": lambda plan: news}
    )
    one.add("a", [1], 30)
    for _ in range(5):
        one.step()
    assert one.core._state.steady is not None
    assert watcher.calls == []
    news["watch"] = b"news"
    one.step()
    assert watcher.notes == 1  # of its worker half
    news.clear()
    one.add("b", [2], 4, extras={"watch": b""})
    one.run()
    assert watcher.calls == [["b"]] * 4
    assert one.core._state.watched == 0
