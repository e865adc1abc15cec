"""Prompts as embeddings, from what a client sends to what the core is given."""

from __future__ import annotations

import base64
import gc
import io
import itertools
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from framework.contracts.io_processor import EnginePrompt, Reading
from framework.contracts.sampling import SamplingParams
from framework.engine.ability import Ability
from framework.engine.io import IOProcessors
from framework.engine.output_state import RequestState
from framework.engine.prompt_embeds import read_embeds
from framework.errors import InputError, PluginError, UnsupportedError
from framework.io.text import TextProcessor
from framework.testing.occupant import WIDTH

ONE = SamplingParams(max_tokens=1)
GOOD = np.arange(3 * WIDTH, dtype=np.float32).reshape(3, WIDTH)
TAKES = Ability(prompt_embeds=WIDTH)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def header(text, data=b"", version=(1, 0)):
    head = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(head)) + head + data


SHAPE = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}"
ODD_SHAPES = ("0, 4611686018427387904", f"{10**40}, 0", "True, 4", "0, -0", "4,")


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        GOOD.astype(np.float64),
        GOOD.astype(np.float16),
        GOOD.astype(">f4"),
        np.asfortranarray(GOOD),
        GOOD[::-1][::-1],
        npy(GOOD),
        npy(np.asfortranarray(GOOD)),
        npy(GOOD.astype(np.float16)),
        bytearray(npy(GOOD.astype(">f8"))),
        base64.b64encode(npy(GOOD)).decode(),
    ],
)
def test_every_form_gives_the_same_numbers(value):
    found = read_embeds(value)
    np.testing.assert_array_equal(found, GOOD)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert not found.flags.writeable
    assert not np.shares_memory(found, GOOD)


class Bomb:
    def __reduce__(self):
        return os._exit, (3,)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (GOOD[0], r"shape \[4\]"),
        (GOOD[None], r"shape \[1, 3, 4\]"),
        (GOOD[:0], r"shape \[0, 4\]"),
        (GOOD[:, :0], r"shape \[3, 0\]"),
        (GOOD.astype(np.int32), "int32"),
        (GOOD.astype(np.complex64), "complex64"),
        (GOOD.astype(np.longdouble), "float16, float32 or float64"),
        (GOOD * np.nan, "NaN"),
        (GOOD.astype(np.float64) * 1e300, "beyond float32"),
        (GOOD.tolist(), "list"),
        (5, "int"),
        ("", "0 bytes"),
        ("not base64!", "base64"),
        ("ä" * 8, "base64"),
        (base64.b64encode(b"PK\x03\x04 what torch.save writes").decode(), "npy"),
        (npy(np.array([[Bomb()]], object)), "object"),
        (npy(np.zeros((2, 2), [("a", "f4")])), r"\[\('a'"),
        (npy(GOOD)[:-1], "47 bytes"),
        (npy(GOOD) + b"\0", "49 bytes"),
        (npy(GOOD)[:20], "npy"),
        (
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4)}"),
            "0 bytes",
        ),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -4)}", b"0" * 16), "shape"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': ('a', 4)}"), "npy"),
        *((header(SHAPE % one, b""), "shape") for one in ODD_SHAPES),
        (header(SHAPE % f"0x{'f' * 9000}, 4"), "36000 bits"),
        (header("{'descr': '<f4', 'fortran_order': False}"), "npy"),
        (header("__import__('os')._exit(3)"), "npy"),
        (header("(" * 100), "npy"),
        (header("{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 4)}", version=(9, 9)), "npy"),
    ],
)
def test_what_is_no_such_array_is_one_clear_error(value, words):
    with pytest.raises(InputError, match=words) as caught:
        read_embeds(value)
    assert caught.value.parameter == "prompt_embeds"


SIZES = (0, 1, 2, 3, -1, True, None, 0.5, "4", 2**31, 2**62, 2**63, 10**400)


@pytest.mark.parametrize("descr", ["<f4", ">f8", "<f16", "|O", "V9", "<c8", "f4,f4", "", []])
@pytest.mark.parametrize("by_columns", [True, False])
def test_any_header_gives_an_array_or_one_clear_error(descr, by_columns):
    arrays = 0
    for shape, data in itertools.product(itertools.product(SIZES, SIZES), (b"", b"1" * 24)):
        text = repr({"descr": descr, "fortran_order": by_columns, "shape": shape}).encode()
        size = struct.pack("<I", len(text))
        try:
            found = read_embeds(b"\x93NUMPY\x02\x00" + size + text + data)
        except InputError:
            continue
        arrays += 1
        assert found.shape == shape
        assert len(data) in {4 * found.size, 8 * found.size}
    assert arrays == {"<f4": 2, ">f8": 2}.get(str(descr), 0)


def test_the_prompt_runs_and_its_data_go_with_it(harness):
    engine = harness(able=TAKES)
    request = engine.inputs.process({"prompt_embeds": GOOD, "prompt": "shown"}, ONE)
    assert (request.prompt, request.prompt_token_ids) == ("shown", [0, 0, 0])
    path = Path(request.inputs[0].payloads["prompt_embeds"])
    np.testing.assert_array_equal(np.load(path), GOOD)
    assert path.parent.stat().st_mode & 0o077 == 0
    output = engine.run({"prompt_embeds": GOOD}, ONE)
    assert output.finished
    assert output.outputs[0].finish_reason != "error"
    del request
    gc.collect()
    assert not path.exists()
    engine.check_empty()


def test_other_prompts_are_other_pages_and_the_same_one_is_found_again(harness):
    engine = harness(able=TAKES, max_model_len=64)
    long = np.tile(GOOD, (4, 1))
    for number, embeds in enumerate((long, long, long[::-1], long)):
        [first] = {engine.run({"prompt_embeds": embeds}, ONE).num_cached_tokens}
        assert first == (8 if number in (1, 3) else 0)


def test_data_that_are_gone_end_their_own_request_behind_pages_of_the_cache_too(harness):
    """A client left; the others, and those who bring the same data again, are served."""
    engine = harness(able=TAKES, max_model_len=64)
    prompt = {"prompt_embeds": np.tile(GOOD, (4, 1))}
    assert engine.run(prompt, ONE).finished
    for cached in (8, 8):
        gone, other = engine.inputs.process(prompt, ONE), engine.inputs.process([1, 2], ONE)
        os.unlink(gone.inputs[0].payloads["prompt_embeds"])
        engine.client.add([gone, other])
        ends = [engine.client.wait(one.request_id).outputs[0] for one in (gone, other)]
        assert [end.finish_reason == "error" for end in ends] == [True, False]
        assert "cannot be read" in ends[0].stop_reason
        del gone
        assert engine.run(prompt, ONE).num_cached_tokens == cached
    engine.client.settle()
    engine.check_empty()


def test_who_takes_none_says_so(harness):
    engine = harness()
    with pytest.raises(UnsupportedError, match="prompts as embeddings"):
        engine.inputs.process({"prompt_embeds": GOOD}, ONE)
    with pytest.raises(InputError, match="4 numbers"):
        harness(able=TAKES).inputs.process({"prompt_embeds": GOOD[:, :2]}, ONE)


@pytest.mark.parametrize(
    "embeds",
    [GOOD[:2], GOOD.astype(np.float64), GOOD[0], "no", np.full((3, WIDTH), np.inf, np.float32)],
)
def test_a_processor_that_reads_other_embeddings_than_ids_is_at_fault(harness, embeds):
    class Wrong(TextProcessor):
        def read(self, request, place):
            return Reading(prompts=(EnginePrompt(ids=[0, 0, 0], embeds=embeds),))

    engine = harness(able=TAKES)
    engine.inputs.reader._processors = IOProcessors({"text": Wrong()})
    with pytest.raises(PluginError, match="embeddings"):
        engine.inputs.process("a", ONE)


def test_output_continues_embeddings_whatever_id_0_is(harness):
    engine = harness(able=TAKES)
    request = engine.inputs.process({"prompt_embeds": GOOD}, ONE)

    class Special:
        special_ids = frozenset([0])
        token_bytes = staticmethod(lambda token: b"")

    state = RequestState.__new__(RequestState)
    state.request = request
    assert state._continues(Special())
    state.request = engine.inputs.process([0, 0, 0], ONE)
    assert not state._continues(Special())
