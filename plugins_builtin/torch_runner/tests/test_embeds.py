"""Vectors of prompts, from a file to the rows of a step."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from framework.contracts.sampling import SamplingParams
from framework.contracts.step import AdmittedRequest
from framework_torch.embeds import PromptEmbeds

VECTORS = np.arange(12, dtype=np.float32).reshape(3, 4)


def request(path, slot=1):
    return AdmittedRequest(
        slot=slot,
        generation=1,
        request_id="a",
        tokens=np.zeros(3, np.int32),
        num_prompt=3,
        sampling=SamplingParams(),
        seed=0,
        payloads={"prompt_embeds": str(path)},
    )


def whole_prompt(slot):
    return SimpleNamespace(
        slots=np.array([slot]),
        computed=np.array([0]),
        lengths=np.array([3]),
        query_starts=np.array([0, 3]),
    )


def test_what_was_found_right_is_used_though_its_file_went(tmp_path):
    """A client that leaves between the two would have pages of id 0 named after its embeddings."""
    path = tmp_path / "a.npy"
    np.save(path, VECTORS)
    embeds, one = PromptEmbeds(4), request(path)
    assert embeds.problem(one) is None
    os.unlink(path)
    embeds.admit(one)
    hidden = torch.full((3, 4), -1.0)
    embeds.put(hidden, whole_prompt(1))
    np.testing.assert_array_equal(hidden.numpy(), VECTORS)
    embeds.drop(1)


def test_what_was_refused_leaves_nothing_for_the_next_in_its_slot(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, VECTORS)
    embeds, one = PromptEmbeds(4), request(path)
    assert embeds.problem(one) is None  # and another check refuses it
    plain = replace(one, payloads={})
    assert embeds.problem(plain) is None
    embeds.admit(plain)
    hidden = torch.full((3, 4), -1.0)
    embeds.put(hidden, whole_prompt(1))
    assert (hidden == -1).all()
    assert "cannot be read" in embeds.problem(request(tmp_path / "none"))
