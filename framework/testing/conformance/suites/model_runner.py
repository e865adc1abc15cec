"""The suite of kind `model_runner`: life, steps, and what a runner may declare or must refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from framework.contracts.step import LateInputs
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.runner_embeds import RunnerEmbeds
from framework.testing.conformance.suites.runner_life import STEP


class RunnerClauses(RunnerEmbeds):
    """All clauses that a runner and an executor share."""

    # What requests may ask

    def _asks(self, what: str, **asked: Any) -> None:
        """A plan that admits a request with these sampling parameters is refused."""
        for case in self.cases(1):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 6), self.sampling(**asked))
            self.refuses(case, what, driver, driver.plan((0, 6)))

    @clause("RUN-040", "log-probabilities fit the tokens", needs="logprobs", of=STEP)
    def scores_fit_the_tokens(self) -> None:
        for case in self.cases(3):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 5), self.sampling(logprobs=3))
            driver.admit(1, self.prompt(case, 7), self.sampling(logprobs=None))
            driver.admit(2, self.prompt(case, 6), self.sampling(logprobs=0))
            result = driver.run((0, 5), (1, 7), (2, 6))
            scores = result.logprobs
            asked = [int(result.token_offsets[0]), int(result.token_offsets[2])]
            if scores is None or result.logprob_tokens.tolist() != asked:
                expect(
                    False,
                    "the log-probabilities are not of those who asked",
                    expected=f"of tokens {asked}",
                    found=None if scores is None else result.logprob_tokens,
                )
                return
            for index, most in enumerate((4, 1)):
                one = scores.slice(index, index + 1)
                token = int(result.token_ids[asked[index]])
                expect(one.ids[0] == token, "entry 0 is not the token", expected=token, found=one)
                expect(len(one.ids) <= most, f"more than {most} entries", found=one)
                others = one.values[1:]
                expect(bool((np.diff(others) <= 0).all()), "not best first", found=others)
                fine = one.ranks[0] >= 1 and bool((one.values <= 1e-4).all())
                expect(fine, "no log-probabilities and ranks", found=one)

    @clause(
        "RUN-041", "log-probabilities that are not declared are refused", lacks="logprobs", of=STEP
    )
    def scores_are_refused(self) -> None:
        self._asks("logprobs", logprobs=2)

    @clause(
        "RUN-042",
        "each prompt token from the second on is scored once, however the prompt is cut",
        needs="prompt_logprobs",
        of=STEP,
    )
    def prompts_are_scored(self) -> None:
        for case in self.cases(3):
            prompt = self.prompt(case, 14)
            whole = self._prompt_scores(prompt, [14])
            cut = int(case.rng.integers(1, 14))
            case.note(cut=cut)
            found = self._prompt_scores(prompt, [cut, 14 - cut])
            self.same(([], [found]), ([], [whole]), "a prompt in two parts")

    def _prompt_scores(self, prompt: list[int], cuts: list[int]) -> np.ndarray:
        driver = self.driver()
        driver.admit(2, [1, 2], self.sampling())
        driver.admit(0, prompt, self.sampling(prompt_logprobs=1))
        scores: dict[int, float] = {}
        for new in cuts:
            result = driver.run((2, 2 if new == cuts[0] else 1), (0, new))
            for part in result.prompt_logprobs:
                expect(part.row == 1, "prompt scores of another row", expected=1, found=part.row)
                for index in range(len(part.logprobs)):
                    place = part.start + index
                    first = int(part.logprobs.offsets[index])
                    token = int(part.logprobs.ids[first])
                    wrong = place in scores or token != prompt[place]
                    expect(not wrong, f"position {place} twice, or of another token", found=token)
                    scores[place] = float(part.logprobs.values[first])
        expect(
            sorted(scores) == list(range(1, len(prompt))),
            "the wrong positions of the prompt are scored",
            expected=f"1 .. {len(prompt) - 1}",
            found=sorted(scores),
        )
        return np.array([scores[place] for place in sorted(scores)], np.float32)

    @clause(
        "RUN-043",
        "undeclared prompt scores are refused",
        lacks="prompt_logprobs",
        of=STEP,
    )
    def prompt_scores_are_refused(self) -> None:
        self._asks("prompt_logprobs", prompt_logprobs=1)

    @clause(
        "RUN-044",
        "drafts are accepted as far as they are what would have come, and one token more comes",
        needs="drafts",
        of=STEP,
    )
    def drafts_are_verified(self) -> None:
        for case in self.cases(4):
            prompt = self.prompt(case)
            true, _ = self.alone(prompt, 8)
            good = case.index
            case.note(right=good, of=3)
            driver = self.driver()
            driver.admit(0, prompt, self.sampling())
            driver.run((0, len(prompt)))
            vocabulary = self.info.vocab_size
            drafts = [t if k < good else (t + 1) % vocabulary for k, t in enumerate(true[1:4])]
            result = driver.run((0, 4), drafts={0: drafts})
            self.no_errors(result)
            found = self.tokens(result, 0)
            expect(
                found == true[1 : 2 + good] and int(result.accepted[0]) == good,
                "drafts are not verified",
                expected=f"{true[1 : 2 + good]}, {good} accepted",
                found=f"{found}, {int(result.accepted[0])} accepted",
            )
            driver.generate(0, 2)
            after = driver.requests[0].tokens[len(prompt) :]
            self.same((after, ()), (true[: len(after)], ()), "after drafts")

    @clause("RUN-045", "undeclared drafts are refused", lacks="drafts", of=STEP)
    def drafts_are_refused(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 6), self.sampling())
            driver.run((0, 6))
            self.refuses(case, "drafts", driver, driver.plan((0, 2), drafts={0: [1]}))

    @clause(
        "RUN-047",
        "a row with a mask gets a token of it, others what they get without",
        needs="structured_outputs",
        of=STEP,
    )
    def masks_are_kept(self) -> None:
        for case in self.cases(3):
            prompt = self.prompt(case, 6)
            free, _ = self.alone(prompt, 1)
            driver = self.driver()
            vocabulary = self.info.vocab_size
            only = (free[0] + int(case.rng.integers(1, vocabulary))) % vocabulary
            driver.admit(0, prompt, self.sampling())
            driver.admit(1, prompt, self.sampling(structured_outputs={"regex": "a+"}))
            result = driver.run((0, 6), (1, 6), late=self._masks(1, [only]))
            self.no_errors(result)
            found = self.tokens(result, 0), self.tokens(result, 1)
            wanted = free, [only]
            expect(found == wanted, "row 1 has a mask, row 0 none", expected=wanted, found=found)

    @clause(
        "RUN-049",
        "with drafts each token keeps to the mask of its own place, and none comes past the last",
        needs=("drafts", "structured_outputs"),
        of=STEP,
    )
    def masks_are_kept_with_drafts(self) -> None:
        """Beside a row without masks, whose drafts are right."""
        for case in self.cases(4):
            prompts = self.prompt(case), self.prompt(case)
            true, _ = self.alone(prompts[0], 5)
            vocabulary = self.info.vocab_size
            tokens = [int(t) for t in case.rng.choice(vocabulary, 4, replace=False)]
            drafts, masked = tokens[:3], 4
            if case.index % 2:
                drafts[1] = int(case.rng.choice([t for t in range(20) if t not in tokens]))
            elif case.index:
                masked = 2
            case.note(drafts=drafts, allowed=tokens[:masked])
            driver = self.driver()
            driver.admit(0, prompts[0], self.sampling())
            driver.admit(1, prompts[1], self.sampling(structured_outputs={"regex": "a+"}))
            driver.run(*((slot, len(prompt)) for slot, prompt in enumerate(prompts)))
            late = self._masks(1, tokens[:masked])
            result = driver.run((0, 4), (1, 4), drafts={0: true[1:4], 1: drafts}, late=late)
            self.no_errors(result)
            kept = 2 if masked == 2 or case.index % 2 else 4
            found = self.tokens(result, 0), self.tokens(result, 1), result.accepted.tolist()
            wanted = true[1:5], tokens[:kept], [3, kept - 1]
            expect(found == wanted, "row 1 has masks, row 0 none", expected=wanted, found=found)

    def _masks(self, row: int, tokens: Sequence[int]) -> LateInputs:
        """One token is allowed after each number of drafts."""
        masks = np.zeros((len(tokens), -(-self.info.vocab_size // 32)), np.uint32)
        for mask, token in zip(masks, tokens, strict=True):
            mask[token // 32] = 1 << (token % 32)
        return LateInputs(
            bitmask=masks,
            bitmask_rows=np.full(len(tokens), row, np.int32),
            covered=np.arange(len(tokens), dtype=np.int32),
        )

    @clause("RUN-048", "undeclared masks are refused", lacks="structured_outputs", of=STEP)
    def masks_are_refused(self) -> None:
        self._asks("structured_outputs", structured_outputs={"regex": "a+"})

    @clause("RUN-046", "whatever else is not declared is refused before it has an effect", of=STEP)
    def what_is_not_declared_is_refused(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            own: dict[str, dict[str, Any]] = {
                "adapters": {"adapter": 3},
                "image": {"payloads": {"image": "shm:0"}},
            }
            for what, more in own.items():
                if what not in self.info.features:
                    driver.admit(0, self.prompt(case, 6), self.sampling(), **more)
                    self.refuses(case, what, driver, driver.plan((0, 6)))
                    driver = self.driver()
            self._plans(case)

    def _plans(self, case: Case) -> None:
        fields: dict[str, dict[str, Any]] = {
            "draft_trees": {"draft_parents": np.zeros(0, np.int32)},
            "pooling": {"rows_to_pool": np.ones(1, np.bool_)},
            "encoder": {"encoder_run": ("image",)},
            "lockstep": {"lockstep": True},
            "what only another runner has": {},
        }
        for what, value in fields.items():
            if what not in self.info.features:
                driver = self.driver()
                driver.admit(0, self.prompt(case, 6), self.sampling())
                plan = driver.plan((0, 6), **value)
                plan = dataclasses.replace(plan, features=plan.features | {what})
                self.refuses(case, what, driver, plan)


class ModelRunnerSuite(RunnerClauses):
    """See `RunnerSuite` for what a subclass may set."""

    kind = "model_runner"
