"""Vectors through the engine: `LLM.embed` and `AsyncEngine.encode`, over a scripted runner."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from framework import LLM, PoolingParams, SamplingParams
from framework.contracts.io_processor import Place
from framework.engine.async_engine import AsyncEngine
from framework.errors import InputError, TooLongError, UnsupportedError
from framework.io.embedding import EmbeddingProcessor
from framework.testing.byte_tokenizer import ByteTokenizer
from framework.testing.fake_model import MODEL, fake_plugins
from framework.testing.scripts import classified, pooled

SIZE = 8
POOL = PoolingParams()


def options(**of_executor):
    return {
        "plugins": fake_plugins(),
        "executor": "echo",
        "plugin_options": {f"executor.echo.{k}": v for k, v in of_executor.items()},
    }


@pytest.fixture(scope="module")
def llm():
    with LLM(MODEL, **options(encoder=True, max_model_len=32)) as made:
        yield made


def vector(text, params=POOL):
    return pooled(list(text.encode()), SIZE, params).tolist()


def test_each_prompt_has_its_vector_in_order(llm):
    prompts = ["hello", [104, 105], {"prompt": "hi"}, {"prompt": "x", "prompt_token_ids": [1, 2]}]
    found = llm.embed(prompts)
    assert [one.embedding.tolist() for one in found] == [
        *(vector("hello"), vector("hi"), vector("hi")),
        pooled([1, 2], SIZE, POOL).tolist(),
    ]
    assert [one.prompt for one in found] == ["hello", None, "hi", "x"]
    assert found[1].prompt_token_ids == [104, 105]
    assert found[0].embedding.dtype == np.float32
    assert len(llm.embed("one")) == 1
    llm.check_integrity()


def test_parameters_reach_the_runner(llm):
    params = PoolingParams(dimensions=3, normalize=True)
    [found] = llm.embed("hello", params)
    assert found.embedding.tolist() == vector("hello", params)
    assert np.linalg.norm(found.embedding) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("keep", "most"), [(5, 5), (-1, 32), (100, 40)])
def test_a_long_prompt_is_cut_at_its_end_where_that_is_asked(llm, keep, most):
    params = PoolingParams(truncate_prompt_tokens=keep)
    text = "".join(map(chr, range(48, 88)))
    for prompt in (text, list(text.encode())):
        if most > 32:
            with pytest.raises(TooLongError):
                llm.embed(prompt, params)
        else:
            assert llm.embed(prompt, params)[0].prompt_token_ids == list(text.encode())[:most]


@pytest.mark.parametrize(
    ("bad", "words"),
    [("x" * 100, "too long"), ([7] * 100, "too long"), ("x" * 10**6, "too long"), ([999], "range")],
)
def test_of_several_prompts_the_one_that_is_wrong_is_named(llm, bad, words):
    good = [5] if isinstance(bad, list) else "five"
    with pytest.raises(InputError, match=f"^prompt 2: .*{words}"):
        llm.embed([good, good, bad])
    with pytest.raises(InputError, match=f"^(the prompt|token id).*{words}"):
        llm.embed([bad])


class Framed(ByteTokenizer):
    """Puts a mark before a text and two behind it, as encoders want it."""

    def encode(self, text, *, add_special_tokens=True):
        ids = super().encode(text)
        return [257, *ids, 256, 258] if add_special_tokens else ids


@pytest.mark.parametrize(
    ("keep", "ids"),
    [
        (4, [257, 97, 256, 258]),
        (6, [257, 97, 98, 99, 256, 258]),
        (7, [257, 97, 98, 99, 100, 256, 258]),
        (100, [257, 97, 98, 99, 100, 256, 258]),
        (3, [257, 97, 98]),
        (1, [257]),
    ],
)
def test_what_stands_around_a_text_stays_when_it_is_cut(keep, ids):
    params = PoolingParams(truncate_prompt_tokens=keep)
    place = Place(tokenizer=Framed(), params=params, max_tokens=50)
    assert EmbeddingProcessor().read("abcd", place).prompts[0].ids == ids


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ("", "empty"),
        ([], "nothing to embed"),
        ([""], "empty"),
        (["a", ""], "prompt 1: the prompt is empty"),
        ([[]], "empty"),
        ([[5], [-1]], "prompt 1"),
        ([260], "260 is out of range"),
        ([[1], [10**30]], "out of range"),
        (["a", 5], "prompt 1"),
        (None, "prompts"),
        ({"promt": "a"}, "did you mean"),
        ("a" * 33, "too long"),
        ("a" * 100_000, "a prompt within max_model_len"),
        ([[1] * 33], "too long"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_bad_prompts_are_the_callers_error_and_nothing_runs(llm, prompts, words):
    with pytest.raises(InputError, match=words) as caught:
        llm.embed(prompts)
    assert caught.value.parameter
    assert llm.stats.running == llm.stats.waiting == 0
    assert llm.embed("ok")[0].embedding.tolist() == vector("ok")


@pytest.mark.parametrize(
    "values",
    [
        {"pooling": "max"},
        {"pooling": ["mean"]},
        {"normalize": 1},
        {"dimensions": 0},
        {"dimensions": True},
        {"dimensions": 1 << 40},
        {"dimensions": 2.0},
        {"truncate_prompt_tokens": 0},
        {"truncate_prompt_tokens": -2},
        {"truncate_prompt_tokens": -1.0},
        {"truncate_prompt_tokens": "1"},
    ],
)
def test_bad_parameters_name_themselves(values):
    with pytest.raises(InputError) as caught:
        PoolingParams(**values)
    assert caught.value.parameter == next(iter(values))


def test_more_numbers_than_the_model_has_are_refused(llm):
    with pytest.raises(InputError, match="at most 8") as caught:
        llm.embed("a", PoolingParams(dimensions=9))
    assert caught.value.parameter == "dimensions"


def test_an_embedding_model_generates_nothing(llm):
    for ask in (
        lambda: llm.generate("hi"),
        lambda: llm.chat([{"role": "user", "content": "hi"}]),
        lambda: llm.stream("hi"),
        lambda: llm.ask("text", "hi", SamplingParams()),
    ):
        with pytest.raises(UnsupportedError, match="it does not generate text"):
            ask()


def test_a_generative_model_makes_no_vectors_unless_loaded_for_it():
    with LLM(MODEL, **options()) as llm, pytest.raises(UnsupportedError, match="pooling"):
        llm.embed("hi")
    with LLM(MODEL, **options(embedding_size=4)) as llm:
        assert llm.embed("hi")[0].embedding.tolist() == pooled([104, 105], 4, POOL).tolist()
        assert llm.generate("hi", SamplingParams(max_tokens=2))[0].outputs[0].text == "hi"


@pytest.mark.parametrize("in_process", [True, False])
def test_a_server_encodes_many_at_a_time(in_process):
    async def main():
        async with AsyncEngine(MODEL, in_process=in_process, **options(encoder=True)) as engine:
            texts = [f"text {n}" for n in range(20)]
            found = await asyncio.gather(*(engine.encode(text) for text in texts))
            assert [one.embedding.tolist() for one in found] == [vector(text) for text in texts]
            several = await engine.ask("embedding", texts, PoolingParams(dimensions=2))
            assert [len(one.embedding) for one in several] == [2] * 20
            with pytest.raises(InputError, match="one prompt"):
                await engine.encode(["a", "b"])
            with pytest.raises(InputError, match="prompt 1"):
                await engine.ask("embedding", ["a", ""])
            with pytest.raises(UnsupportedError, match="does not generate"):
                async for _ in engine.generate("hi"):
                    pass
            await engine.check_integrity()

    asyncio.run(main())


LABELS = ("calm", "loud", "odd")
CLASSES = PoolingParams(task="classify")


@pytest.fixture(scope="module")
def classifier():
    with LLM(MODEL, **options(class_labels=",".join(LABELS), max_model_len=32)) as made:
        yield made


def test_each_prompt_has_its_classes_in_order(classifier):
    prompts = ["hello", [104, 105], {"prompt": "world!"}]
    for one, text in zip(classifier.classify(prompts), ["hello", "hi", "world!"], strict=True):
        right = classified(list(text.encode()), len(LABELS), CLASSES)
        assert one.probs.tolist() == right.tolist()
        assert one.label == LABELS[right.argmax()]
    raw = PoolingParams(task="classify", use_activation=False, truncate_prompt_tokens=2)
    [one] = classifier.classify("hide", raw)
    assert one.probs.tolist() == classified(list(b"hi"), len(LABELS), raw).tolist()
    classifier.check_integrity()


def test_who_does_not_classify_or_embed_says_so(llm, classifier):
    with pytest.raises(UnsupportedError, match="does not classify"):
        llm.classify("a")
    with pytest.raises(UnsupportedError, match="not loaded to make embeddings"):
        classifier.embed("a")
    with pytest.raises(UnsupportedError, match=r"(?s)does not generate text.*request for classes"):
        classifier.generate("a")


@pytest.mark.parametrize(
    "values",
    [
        {"task": "score"},
        {"task": None},
        {"use_activation": True},
        {"use_activation": 1, "task": "classify"},
        {"pooling": "mean", "task": "classify"},
        {"normalize": False, "task": "classify"},
        {"dimensions": 2, "task": "classify"},
    ],
)
def test_parameters_that_mean_nothing_for_a_task_name_themselves(values):
    with pytest.raises(InputError) as caught:
        PoolingParams(**values)
    assert caught.value.parameter == next(iter(values))


def test_classes_come_from_a_core_in_another_process():
    async def run():
        async with AsyncEngine(MODEL, **options(class_labels=",".join(LABELS))) as engine:
            assert engine.class_labels == LABELS
            found = await engine.encode("hello", CLASSES)
            right = classified(list(b"hello"), len(LABELS), CLASSES)
            assert found.embedding.tolist() == right.tolist()

    asyncio.run(run())
