"""Stories under sizes that nobody should choose: pages of one token, a pool of one page beside the
null page, a step of one token, a line of one, all pages kept free by the watermark.  Whatever may
be chosen must be served: counts are exact after every step, every request ends, and what it gets
is what it would get alone."""

from __future__ import annotations

import random

import pytest

from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    FullAttentionSpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.contracts.participant import READY, Hold, Refuse, SchedulerParticipant, Wait
from framework.core.policies import Priority, PriorityOptions
from framework.errors import ConfigError, InputError, OverloadedError
from framework.testing.harness import Harness
from tests.core.test_machine import HEADS, MODELS, POLICIES, VOCABULARY, LateConnector, truth

LAYERS = {
    **MODELS,
    "sinks": {
        "full": FullAttentionSpec(**HEADS),
        "sinks": SinkWindowSpec(**HEADS, window=4, sinks=2),
    },
    "window": {"window": SlidingWindowSpec(**HEADS, window=1)},
    "chunk": {"chunk": ChunkedLocalSpec(**HEADS, chunk=5)},
}


def after(looks):
    """False so many times."""
    left = iter([False] * looks)
    return lambda: next(left, True)


class Moody(SchedulerParticipant):
    """Lets requests wait, refuses some, gives any part of the tokens, and keeps pages."""

    def __init__(self, chance):
        super().__init__()
        self.chance = chance

    def admit(self, request):
        mood = self.chance.random()
        if mood < 0.03:
            return Refuse("no")
        return Wait("moody", after(self.chance.randrange(4))) if mood < 0.3 else READY

    def limit(self, request, start, tokens):
        return self.chance.randint(0, tokens)

    def release(self, request):
        return Hold(after(self.chance.randrange(5))) if self.chance.random() < 0.5 else None


class Story:
    """Raises ConfigError if this choice of sizes cannot be served at all."""

    def __init__(self, seed):
        self.chance = chance = random.Random(seed)
        pick = chance.choice
        model = pick(sorted(LAYERS))
        chunked = pick([True] * 5 + [False])
        # Steps that equal one another come only where little happens.
        self.calm = pick([True, False])
        alone = model == "state" or self.calm
        policy = pick([*POLICIES, None])
        self.now, self.good, self.asleep = 0.0, 2, False
        self.asked, self.pins, self.count = {}, [], 0
        late = LateConnector()
        self.participants = {"late": late} if pick([True, False]) and not self.calm else {}
        if pick([True, False]) and not self.calm:
            self.participants["moody"] = Moody(chance)
        self.one = Harness(
            policy=Priority(PriorityOptions(ageing_seconds=0.5)) if policy is None else policy(),
            participants=self.participants,
            clock=lambda: self.now,
            runner={
                "layers": LAYERS[model],
                "num_pages": pick([2, 3, 4, 5, 8, 15, 40, 80, 80, 80]),
                "page_tokens": pick([1, 1, 2, 3, 4]),
                "vocab_size": VOCABULARY,
                "drafter": self.draft,
                "max_model_len": pick([None, 3, 12, 45]),
            },
            loop_depth=pick([1, 2]),
            max_num_batched_tokens=pick([1, 1, 2, 3, 7, 30] if chunked else [45, 60]),
            max_num_seqs=pick([1, 2, 3, 7]),
            max_num_active=pick([None, None, 1, 2]),
            max_drafts=0 if alone else pick([0, 0, 1, 3]),
            lookahead=0 if alone else pick([0, 0, 1, 5]),
            enable_chunked_prefill=chunked,
            long_prefill_threshold=pick([None, "auto", 1, 3]) if chunked else None,
            watermark=pick([0.0, 0.3, 0.99]),
            whole_sequence_must_fit=pick([False, False, True]),
            max_queued_requests=pick([None, None, 1, 3]),
            max_queued_tokens=pick([None, None, 5, 30]),
            queue_timeout=pick([None, None, 5.0]),
            enable_prefix_caching=(chunked or model != "state") and pick([True] * 4 + [False]),
            enable_kv_events=pick([True, False]),
            participant_timeout=None,
        )
        late.runner = self.one.runner

    def draft(self, request, tokens, wanted):
        right = truth(tokens, wanted)
        drafts = [t if k < self.good else (t + 1) % VOCABULARY for k, t in enumerate(right)]
        return drafts[: self.good + 1]

    def step(self):
        for _ in range(self.chance.randint(1, 20 if self.calm else 6)):
            self.one.step()
            self.now += 0.1

    def add(self):
        chance, name = self.chance, str(self.count)
        self.count += 1
        most = min(self.one.core.max_model_len, 40)
        prompt = [chance.randrange(3)] * chance.randint(1, most)
        if chance.random() < 0.3:
            prompt[-1] = self.count % VOCABULARY
        count, extras = chance.randint(1, chance.choice([9, 30])), {}
        if "late" in self.participants and chance.random() < 0.35:
            told = (chance.randint(1, 24), chance.randint(1, 4), chance.randint(-1, 24))
            extras["late"] = b"%d,%d,%d" % told
        if "moody" in self.participants and chance.random() < 0.5:
            extras["moody"] = b""
        asked = {
            "priority": chance.randint(-2, 2),
            "tenant": str(prompt[0]),
            "salt": chance.choice([None, None, "s"]),
            "deadline": chance.choice([None] * 6 + [0.5, 3.0]),
            "stop_ids": (chance.randrange(VOCABULARY),) if chance.random() < 0.15 else (),
            "prompt_logprobs": chance.choice([None] * 4 + [0]),
            "extras": extras,
        }
        try:
            self.one.add(name, prompt, count, **asked)
        except (InputError, OverloadedError):
            return
        right = truth(prompt, count)
        for place, token in enumerate(right):
            if token in asked["stop_ids"]:
                right = right[: place + 1]
                break
        self.asked[name] = (right, prompt, extras)

    def burst(self):
        for _ in range(self.chance.randint(2, 8)):
            self.add()

    def wait(self):
        self.now += self.chance.choice([0.2, 2.0, 10.0])

    def abort(self):
        some = sorted(self.asked)
        self.one.core.abort(self.chance.sample(some, self.chance.randint(0, len(some))))

    def pause(self):
        self.one.core.pause()
        self.step()
        if self.chance.random() < 0.7:
            self.one.core.resume()

    def clear(self):
        self.one.core.reset_prefix_cache()

    def draft_otherwise(self):
        self.good = self.chance.randrange(4)

    def lose(self):
        pages = self.one.core.cache_plan.num_pages
        lost = [self.chance.randrange(1, pages) for _ in range(self.chance.randint(1, 3))]
        self.one.runner.lose_pages = {len(self.one.runner.plans) + 1: lost}

    def pin(self):
        if self.asked and not self.asleep:
            _, prompt, _ = self.chance.choice(list(self.asked.values()))
            try:
                self.pins.append(self.one.core.pin_prefix(prompt)[0])
            except InputError:
                return

    def unpin(self):
        if self.pins:
            self.one.core.unpin_prefix(self.pins.pop())

    def change_weights(self):
        if not self.participants:  # pages that come from elsewhere would be of the old ones
            self.one.core.weights_changed()

    def sleep_or_wake(self):
        if self.asleep:
            self.one.core.wake_up()
            self.asleep = False
        elif not self.participants:
            self.one.core.sleep(self.chance.choice([1, 2]))
            self.asleep = True

    def tell(self):
        rare = [self.abort, self.pause, self.clear, self.draft_otherwise, self.lose, self.pin]
        rare += [self.unpin, self.change_weights, self.sleep_or_wake, self.wait, self.burst]
        for _ in range(self.chance.randint(5, 45)):
            self.chance.choice([self.add] * 6 + [self.step] * 6 + rare)()
            self.one.core.check_integrity()
        if self.asleep:
            self.one.core.wake_up()
        self.one.core.resume()
        while self.pins:
            self.unpin()
        self.check(self.one.run(20_000))

    def check(self, answers):
        for name, (right, _, extras) in self.asked.items():
            answer = answers[name]
            assert answer.tokens == right[: len(answer.tokens)]
            if answer.reason in ("length", "stop"):
                assert len(answer.tokens) == len(right)
            elif answer.reason == "error":
                assert answer.timed_out or (extras and answer.error in ("lost", "no"))
            else:
                assert answer.reason == "abort"


def tell(seeds):
    """How many could be told."""
    told = 0
    for seed in seeds:
        try:
            story = Story(seed)
        except ConfigError:
            continue
        try:
            story.tell()
        except Exception as error:
            error.add_note(f"story {seed}")
            raise
        told += 1
    return told


def test_odd_sizes_change_no_answer():
    assert tell(range(60)) > 40


@pytest.mark.long
def test_odd_sizes_change_no_answer_in_two_thousand_stories():
    assert tell(range(1000, 3000)) > 1500
