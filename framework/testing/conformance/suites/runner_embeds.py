"""Clauses about prompts that are given as embeddings, for runners that take such."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from framework.contracts.step import F32
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.runner_life import STEP
from framework.testing.conformance.suites.runner_steps import RunnerSteps

EMBEDS = "prompt_embeds"


class RunnerEmbeds(RunnerSteps):
    """See `RunnerSuite`."""

    @clause(
        "RUN-050",
        "a prompt given as embeddings is computed from these, cut or whole, and from nothing else",
        needs=EMBEDS,
        of=STEP,
    )
    def embeddings_are_computed(self) -> None:
        """Beside a request of the same ids, which are 0; and no other embeddings give the same."""
        with tempfile.TemporaryDirectory() as folder:
            for case in self.cases(3):
                length = int(case.rng.integers(4, 12))
                cut = int(case.rng.integers(1, length))
                case.note(length=length, cut=cut)
                ids = [0] * length
                plain = self.alone(ids, 2)
                own = self._vectors(case, length)
                payloads = self._kept(folder, own)
                true = self.alone(ids, 3, payloads=payloads)
                driver = self.driver()
                driver.admit(0, ids, self.sampling(), payloads=payloads)
                driver.admit(1, ids, self.sampling())
                self.no_errors(driver.run((0, cut), (1, length)))
                self.no_errors(driver.run((0, length - cut), (1, 1)))
                driver.generate(0, 2)
                found = driver.requests[0].tokens[length:], driver.requests[1].tokens[length:]
                self.same((found[0], ()), (true[0], ()), "embeddings in two parts")
                self.same((found[1], ()), (plain[0], ()), "ids beside embeddings")
                other = self.alone(ids, 3, payloads=self._kept(folder, own[::-1].copy()))
                self._differ(other, true)

    def _vectors(self, case: Case, length: int) -> F32:
        size = length, self.info.prompt_embeds or 0
        expect(size[1] > 0, "prompt_embeds is declared, and not how many numbers one has")
        return case.rng.normal(size=size).astype(np.float32)

    @staticmethod
    def _kept(folder: str, vectors: F32) -> dict[str, str]:
        path = Path(folder) / f"{len(list(Path(folder).iterdir()))}.npy"
        np.save(path, vectors)
        return {EMBEDS: str(path)}

    def _differ(
        self,
        found: tuple[list[int], list[np.ndarray]],
        true: tuple[list[int], list[np.ndarray]],
    ) -> None:
        scores = (np.array_equal(a, b) for a, b in zip(found[1], true[1], strict=True))
        expect(
            found[0] != true[0] or not all(scores),
            "other embeddings of the same length change nothing",
            found=f"tokens {found[0]} of both",
        )

    @clause(
        "RUN-051",
        "embeddings that cannot be read, or do not fit, end their own request alone",
        needs=EMBEDS,
        of=STEP,
    )
    def bad_embeddings_end_one_request(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for case in self.cases(3):
                prompt = self.prompt(case, 6)
                true = self.alone(prompt, 2)
                vectors = self._vectors(case, 6)
                bad = {
                    "a file that is not there": {EMBEDS: str(Path(folder) / "gone.npy")},
                    "too few of them": self._kept(folder, vectors[1:]),
                    "a number too many in each": self._kept(
                        folder, np.pad(vectors, ((0, 0), (0, 1)))
                    ),
                }
                for what, payloads in bad.items():
                    case.note(embeddings=what)
                    driver = self.driver()
                    driver.admit(0, [0] * 6, self.sampling(), payloads=payloads)
                    driver.admit(1, prompt, self.sampling())
                    result = driver.run((0, 6), (1, 6))
                    expect(
                        list(result.errors) == [0],
                        f"{what}: not its row alone has an error",
                        expected="a sentence for row 0",
                        found=dict(result.errors),
                    )
                    self.same((self.tokens(result, 1), ()), (true[0][:1], ()), "a row beside it")

    @clause("RUN-052", "undeclared embeddings are refused", lacks=EMBEDS, of=STEP)
    def embeddings_are_refused(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 6), self.sampling(), payloads={EMBEDS: "gone.npy"})
            self.refuses(case, EMBEDS, driver, driver.plan((0, 6)))
