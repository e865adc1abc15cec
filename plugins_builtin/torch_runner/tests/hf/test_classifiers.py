"""Encoders with a head for classes, against Transformers' own forward with its own attention."""

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from framework import LLM, PoolingParams
from framework.contracts.base import Supported
from framework.contracts.model import ArchitectureQuery
from framework.errors import ModelError, UnsupportedError
from framework_torch.hf import TransformersEncoder

WORDS = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz"]
COMMON = {
    "vocab_size": len(WORDS),
    "hidden_size": 64,
    "embedding_size": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "pad_token_id": 1,
}
LABELS = ("calm", "loud", "odd")
TEXTS = ["a", "b c d", "x y z " * 12, "q"]


def write_tokenizer(root):
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(root)


@pytest.fixture
def made(tmp_path):
    """made(name, labels, **changes) -> (folder, the model in Transformers)."""

    def make(name, labels=LABELS, **changes):
        torch.manual_seed(sum(name.encode()))
        given = {**COMMON, "id2label": dict(enumerate(labels)), **changes}
        config = getattr(transformers, f"{name}Config")(**given)
        model = transformers.AutoModelForSequenceClassification.from_config(
            config, attn_implementation="eager"
        )
        model = model.float().eval()
        for parameter in model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        model.save_pretrained(tmp_path)
        write_tokenizer(tmp_path)
        return tmp_path, model

    return make


@torch.no_grad()
def logits_of(model, ids):
    return model(input_ids=torch.tensor([ids])).logits[0].numpy()


@pytest.mark.parametrize("name", ["Bert", "Roberta", "XLMRoberta", "Electra"])
def test_classes_are_those_of_transformers_alone_and_together(name, made):
    root, reference = made(name)
    with LLM(root, dtype="float32") as llm:
        together = llm.classify(TEXTS)
        raw = llm.classify(TEXTS, PoolingParams(task="classify", use_activation=False))
        for text, found, numbers in zip(TEXTS, together, raw, strict=True):
            right = logits_of(reference, found.prompt_token_ids)
            assert (found.prompt_token_ids[0], found.prompt_token_ids[-1]) == (0, 2)
            np.testing.assert_allclose(numbers.probs, right, atol=1e-4, rtol=0)
            np.testing.assert_allclose(
                found.probs, torch.tensor(right).softmax(-1).numpy(), atol=1e-4, rtol=0
            )
            assert found.label == LABELS[int(right.argmax())]
            [alone] = llm.classify(text)
            np.testing.assert_allclose(alone.probs, found.probs, atol=1e-5, rtol=0)
        assert np.ptp([one.probs for one in together], axis=0).max() > 0.01, "all texts are alike"
        llm.check_integrity()


@pytest.mark.parametrize(
    ("labels", "kind", "activation"),
    [
        (LABELS, "multi_label_classification", torch.sigmoid),
        (("score",), None, torch.sigmoid),
        (("score",), "regression", lambda numbers: numbers),
    ],
)
def test_probabilities_are_what_the_model_was_trained_for(labels, kind, activation, made):
    root, reference = made("Bert", labels, problem_type=kind)
    with LLM(root, dtype="float32") as llm:
        [found] = llm.classify("b c d")
    right = activation(torch.tensor(logits_of(reference, found.prompt_token_ids))).numpy()
    np.testing.assert_allclose(found.probs, right, atol=1e-4, rtol=0)


def test_it_makes_vectors_where_the_operator_says_how_and_text_never(made):
    root, reference = made("Bert")
    with LLM(root, dtype="float32") as llm:
        with pytest.raises(UnsupportedError, match="not loaded to make embeddings"):
            llm.embed("a")
        with pytest.raises(UnsupportedError, match="does not generate text"):
            llm.generate("a")
    with LLM(root, dtype="float32", pooling="mean") as llm:
        [vector], [classes] = llm.embed("b c"), llm.classify("b c")
        with torch.no_grad():
            states = reference.bert(input_ids=torch.tensor([vector.prompt_token_ids]))
        mean = states.last_hidden_state[0].mean(0)
        right = torch.nn.functional.normalize(mean, dim=0).numpy()
        np.testing.assert_allclose(vector.embedding, right, atol=1e-4, rtol=0)
        assert classes.probs.shape == (3,)


def test_spare_tensors_are_passed_over_and_a_missing_head_is_named(made):
    root, _ = made("Roberta")
    file = root / "model.safetensors"
    tensors = load_file(file)
    spare = {"roberta.pooler.dense.weight": torch.zeros(64, 64)}
    save_file({**tensors, **spare}, file, metadata={"format": "pt"})
    with LLM(root, dtype="float32") as llm:
        assert llm.classify("a")[0].label in LABELS
    headless = {name: value for name, value in tensors.items() if "out_proj" not in name}
    save_file(headless, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="missing") as caught:
        LLM(root, dtype="float32")
    assert "classifier.out_proj" in str(caught.value)


def test_an_architecture_with_a_head_is_supported(made):
    root, _ = made("Bert")
    config = json.loads((root / "config.json").read_text())
    query = ArchitectureQuery(architecture="BertForSequenceClassification", config=config)
    assert isinstance(TransformersEncoder().answer(query), Supported)
