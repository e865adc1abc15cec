"""Encoding: ids equal those of the reference libraries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import WeightQuery
from framework.errors import InputError, ModelError
from framework_text.gguf_loader import GgufTokenizerLoader
from framework_text.gguf_metadata import read_head
from framework_text.gguf_pretokenizers import PRE_TOKENIZERS, build
from framework_text.text_tokenizer import TextTokenizer

TEXTS = [
    "",
    " ",
    "Hello world! 123",
    " leading and trailing ",
    "naïve café 日本語 한국어 العربية हिन्दी",
    "🙂👩‍👩‍👧 ﷽ \u200d\ufeff",
    "def f(x):\n    return x**2  # 42\n\n\n\tif x:\r\n",
    "1234567890 3.14 0x1F ½ ٣٤",
    "a  1   2    3",
    "don't I'LL we've 'tis",
    "   \n\n\n   \t\t",
    "\u00a0\u2003x\u3000y",
    "a\0b\x7f\x1b[0m",
    "e\u0301 é",
    "<|im_start|>user\nhi<|im_end|>\n",
    "<|endoftext|>x<repo_name>",
    "http://example.org/a_b?c=d&e=f%20",
    "x" * 3000,
    "word " * 500,
]


@pytest.fixture(scope="module")
def reference(smollm_path: Path):  # type: ignore[no-untyped-def]
    """Transformers' own reading of the file, with the pre-tokenizer of the model's own
    tokenizer.json: Transformers does not know the name "smollm" and does not split digits."""
    from tokenizers import pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    # What AutoTokenizer.from_pretrained(gguf_file=...) calls, without its ten seconds.
    architecture, tokenizer, _ = get_gguf_tokenizer(str(smollm_path))
    backend, _ = convert_gguf_tokenizer(architecture, tokenizer)
    library = PreTrainedTokenizerFast(tokenizer_object=backend)
    library.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    return library


@pytest.mark.parametrize("text", TEXTS)
def test_smollm_encodes_and_decodes_as_the_reference(
    smollm: TextTokenizer,
    reference,  # type: ignore[no-untyped-def]
    text: str,
) -> None:
    ids = smollm.encode(text)
    assert ids == reference.encode(text)
    assert ids == smollm.unwrap().encode(text)
    for skip in (True, False):
        assert smollm.decode(ids, skip_special_tokens=skip) == reference.decode(
            ids, skip_special_tokens=skip
        )
    assert smollm.decode(ids, skip_special_tokens=False) == text


def test_published_ids_of_smollm(smollm: TextTokenizer) -> None:
    assert smollm.encode("Hello world! 123") == [19556, 905, 17, 216, 33, 34, 35]
    assert smollm.encode("  multiple   spaces") == [216, 2701, 256, 5600]
    assert smollm.eos_ids == (2,)
    assert smollm.bos_id == 1
    assert smollm.vocab_size == 49152
    assert smollm.special_ids == frozenset(range(17))
    assert not smollm.strips_leading_space
    assert smollm.token_text(260) == "Ġthe"
    assert smollm.token_bytes(260) == b" the"


def test_smollm_is_ready_without_torch_in_seconds(smollm_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from framework.contracts.model_source import ModelFiles\n"
        "from framework_text.gguf_loader import GgufTokenizerLoader\n"
        "assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)\n"
        "path, start = Path(sys.argv[1]), time.process_time()\n"
        "files = dict(root=path.parent, weights=(path,), format='gguf', config={})\n"
        "model = ModelFiles(name='x', **files)\n"
        "GgufTokenizerLoader().load(model).encode('x')\n"
        "assert time.process_time() - start < 10, time.process_time() - start\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(smollm_path)], check=True, timeout=60)


@pytest.mark.parametrize("text", ["the cat", "in it in the", "théâtre 日本 cat", "x\ny", "", "a"])
def test_sentencepiece_encodes_as_transformers(
    spm: TextTokenizer, spm_path: Path, text: str
) -> None:
    from transformers import AutoTokenizer

    library = AutoTokenizer.from_pretrained(spm_path.parent, gguf_file=spm_path.name)
    ids = spm.encode(text)
    assert ids == library.encode(text)
    assert ids[0] == spm.bos_id == 1
    assert spm.encode(text, add_special_tokens=False) == ids[1:]
    assert spm.decode(ids) == text
    assert spm.strips_leading_space


def test_sentencepiece_adds_one_space_even_before_a_space(spm: TextTokenizer) -> None:
    texts = [spm.token_text(index) for index in spm.encode(" cat", add_special_tokens=False)]
    assert "".join(texts) == "▁▁cat"


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_rule_cuts_text_without_losing_any(name: str) -> None:
    pre_tokenizer = build(PRE_TOKENIZERS[name])
    alphabet_size = 0
    for text in TEXTS:
        pieces = pre_tokenizer.pre_tokenize_str(text)
        spans = [span for _, span in pieces]
        assert "".join(text[start:end] for start, end in spans) == text
        alphabet_size += len(pieces)
    assert alphabet_size > 100


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("llama-bpe", "I'LL pay 12345 now", ["I", "'LL", "Ġpay", "Ġ", "123", "45", "Ġnow"]),
        ("qwen2", "pay 123", ["pay", "Ġ", "1", "2", "3"]),
        ("gpt-2", "pay 123", ["pay", "Ġ123"]),
        ("smollm", "pay 123", ["pay", "Ġ", "1", "2", "3"]),
        ("tekken", "camelCase 12", ["camel", "Case", "Ġ", "1", "2"]),
        ("gpt-4o", "camelCase's 1234", ["camel", "Case's", "Ġ", "123", "4"]),
        ("deepseek-v3", "ab 1234", ["ab", "Ġ", "123", "4"]),
        ("default", "a1234", ["a", "123", "4"]),
    ],
)
def test_rules_cut_as_their_models_do(name: str, text: str, pieces: list[str]) -> None:
    found = build(PRE_TOKENIZERS[name]).pre_tokenize_str(text)
    assert [piece for piece, _ in found] == pieces


def tiny(write: Callable[..., Path], path: Path, **changes: object) -> Path:
    letters = list("abcdefgh")
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*letters, "ab", "<end>", "<begin>"],
        "tokenizer.ggml.token_type": [1] * 9 + [3, 3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 9,
        "tokenizer.ggml.bos_token_id": 10,
    }
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return write(path, {key: value for key, value in metadata.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pre": "no-such-rule"}, "no-such-rule.*not known"),
        ({"pre": None}, "None.*not known"),
        ({"model": "t5"}, "'t5'.*not known"),
        ({"model": None}, "no vocabulary"),
        ({"tokens": None}, "no vocabulary"),
        ({"tokens": "text"}, "wrong type"),
        ({"token_type": [1]}, "does not match the vocabulary"),
        ({"merges": ["a b c d"]}, "no tokenizer can be made"),
        ({"merges": ["a"]}, "not a pair"),
        ({"merges": ["a z"]}, "no tokenizer can be made"),
        ({"merges": None}, "without merges"),
        ({"eos_token_id": 11}, "eos_token_id is not a token"),
        ({"bos_token_id": 999}, "bos_token_id is not a token"),
    ],
)
def test_a_bad_vocabulary_is_an_error_that_names_the_file(
    write: Callable[..., Path],
    files: Callable[..., ModelFiles],
    tmp_path: Path,
    changes: dict[str, object],
    words: str,
) -> None:
    path = tiny(write, tmp_path / "tiny.gguf", **changes)
    with pytest.raises(ModelError, match=words) as caught:
        GgufTokenizerLoader().load(files(path))
    assert "tiny.gguf" in str(caught.value)


def test_bos_is_added_as_the_file_says(
    write: Callable[..., Path], files: Callable[..., ModelFiles], tmp_path: Path
) -> None:
    for settings, first in (
        ({"pre": "gpt-2"}, 8),
        ({"pre": "gpt-2", "add_bos_token": True}, 10),
        ({"pre": "llama-bpe"}, 10),
        ({"pre": "llama-bpe", "add_bos_token": False}, 8),
    ):
        tokenizer = GgufTokenizerLoader().load(files(tiny(write, tmp_path / "t.gguf", **settings)))
        assert tokenizer.encode("ab")[0] == first
        assert tokenizer.encode("ab", add_special_tokens=False) == [8]


def test_minus_one_means_that_there_is_no_such_token(
    write: Callable[..., Path], files: Callable[..., ModelFiles], tmp_path: Path
) -> None:
    path = tiny(write, tmp_path / "t.gguf", bos_token_id=0xFFFFFFFF, add_bos_token=True)
    tokenizer = GgufTokenizerLoader().load(files(path))
    assert tokenizer.bos_id is None
    assert tokenizer.encode("ab") == [8]


def test_user_defined_tokens_are_matched_whole_and_shown(
    write: Callable[..., Path], files: Callable[..., ModelFiles], tmp_path: Path
) -> None:
    """<begin> is one of those here, <end> a control token."""
    path = tiny(write, tmp_path / "t.gguf", token_type=[1] * 9 + [3, 4], bos_token_id=None)
    tokenizer = GgufTokenizerLoader().load(files(path))
    ids = tokenizer.encode("ab<begin><end>")
    assert ids == [8, 10, 9]
    assert tokenizer.decode(ids) == "ab<begin>"
    assert tokenizer.special_ids == {9}


def test_a_token_that_is_no_token_of_text_costs_nothing(
    write: Callable[..., Path], files: Callable[..., ModelFiles], tmp_path: Path
) -> None:
    """All ways to cut a token are merges: of 1024 letters they would be half a million."""
    tokens = ["<unk>", "</s>", *("a" * 2**power for power in range(11))]
    path = tiny(
        write,
        tmp_path / "t.gguf",
        model="llama",
        tokens=tokens,
        token_type=[2, 3] + [1] * 11,
        scores=np.arange(13, dtype=np.float32),
        merges=None,
        eos_token_id=1,
        bos_token_id=None,
        add_bos_token=False,
        add_space_prefix=False,
    )
    tokenizer = GgufTokenizerLoader().load(files(path))
    assert tokenizer.encode("a" * 512) == [11]
    assert tokenizer.encode("a" * 1024) == [11, 11]


def test_two_ids_with_one_spelling_both_have_their_text(
    write: Callable[..., Path], files: Callable[..., ModelFiles], tmp_path: Path
) -> None:
    changes = {"tokens": ["a", "b", "ab", "ab", "<end>", ""], "token_type": [1, 1, 1, 1, 3, 1]}
    path = tiny(write, tmp_path / "t.gguf", **changes, eos_token_id=4, bos_token_id=None)
    tokenizer = GgufTokenizerLoader().load(files(path))
    assert tokenizer.vocab_size == 6
    assert [tokenizer.token_bytes(index) for index in range(6)] == [
        b"a",
        b"b",
        b"ab",
        b"ab",
        b"<end>",
        b"",
    ]
    assert tokenizer.encode("ab") == [3]


def test_all_ends_are_known(
    write: Callable[..., Path], files: Callable[..., ModelFiles], tmp_path: Path
) -> None:
    tokens = [*"abcde", "<eos>", "<end_of_turn>", "<eot>", "<|im_end|>"]
    path = tiny(
        write,
        tmp_path / "t.gguf",
        tokens=tokens,
        merges=None,
        token_type=[1] * 5 + [3, 3, 3, 1],
        model="llama",
        scores=[0.0] * 9,
        eos_token_id=5,
        bos_token_id=None,
        eot_token_id=7,
    )
    model = files(path, generation_config={"eos_token_id": [1, 5]}, config={"eos_token_id": 2})
    # "<|im_end|>" is an ordinary token of this vocabulary, not an end.
    assert GgufTokenizerLoader().load(model).eos_ids == (1, 5, 2, 7, 6)


@pytest.mark.parametrize("bad", ["\ud800", "ok \udfff ok"])
def test_a_lone_surrogate_is_the_callers_error(smollm: TextTokenizer, bad: str) -> None:
    with pytest.raises(InputError, match="surrogate") as caught:
        smollm.encode(bad)
    assert caught.value.parameter == "prompt"
    assert smollm.encode("ok") == smollm.encode("ok")


def test_only_text_is_encoded(smollm: TextTokenizer) -> None:
    for bad in (None, 3, b"bytes", ["a"]):
        with pytest.raises(InputError, match="only text"):
            smollm.encode(bad)  # type: ignore[arg-type]


def test_answers_go_by_content(smollm_path: Path, tmp_path: Path) -> None:
    from framework.contracts.base import Rejected, Supported

    fake = tmp_path / "fake.gguf"
    fake.write_bytes(b"nonsense")
    loader = GgufTokenizerLoader()
    query = WeightQuery(root=smollm_path.parent, files=(smollm_path,))
    assert isinstance(loader.answer(query), Supported)
    for files in ((fake,), (tmp_path / "absent.gguf",), ()):
        assert isinstance(loader.answer(WeightQuery(root=tmp_path, files=files)), Rejected)
    assert read_head(smollm_path).architecture == "llama"
