"""How a byte-level BPE vocabulary cuts text before merging, by `tokenizer.ggml.pre`.

A GGUF file does not carry the rule, only a name for it.  The rules are those of the models'
own tokenizer.json files (and, for "default", what llama.cpp does for it); the names are those
that llama.cpp's converter writes.  A wrong rule gives ids that look right and are not, so a
name that is not in the table is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from framework.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_CASED_END = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_CASED_END}"
_GPT4O = rf"{_CASED[0]}{_CONTRACTIONS}?|{_CASED[1]}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_CASED_END}"
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTokenizer:
    """splits: regular expressions (Oniguruma), applied in order; matches and gaps are pieces.

    nfc: text is brought to Unicode's form C first.  ignore_merges: a piece that is a token is
    that token, whatever the merges say.  add_bos: if the file does not say.
    """

    splits: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


_LLAMA3_RULE = PreTokenizer(splits=(_LLAMA3,), ignore_merges=True, add_bos=True)

_FAMILIES: tuple[tuple[str, PreTokenizer], ...] = (
    (
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat a.x-4.0 mellum exaone4",
        PreTokenizer(splits=(_GPT2,)),
    ),
    (
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
        PreTokenizer(splits=(r"\p{N}", _GPT2)),
    ),
    ("llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", _LLAMA3_RULE),
    ("dbrx smaug-bpe glm4 chatglm-bpe", PreTokenizer(splits=(_LLAMA3,))),
    ("qwen2", PreTokenizer(splits=(_QWEN2,), nfc=True)),
    (
        "stablelm2 deepseek-r1-qwen kormo f2llmv2 megrez hunyuan solar-open grok-2",
        PreTokenizer(splits=(_QWEN2,)),
    ),
    ("qwen35", PreTokenizer(splits=(_QWEN35,), nfc=True)),
    ("tekken", PreTokenizer(splits=(_TEKKEN,), ignore_merges=True, add_bos=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", PreTokenizer(splits=(_GPT4O,))),
    ("deepseek-v3 hunyuan-dense joyai-llm", PreTokenizer(splits=_DEEPSEEK3)),
    ("deepseek-coder", PreTokenizer(splits=_DEEPSEEK_CODER)),
    ("falcon", PreTokenizer(splits=_FALCON)),
    ("default", PreTokenizer(splits=_DEFAULT)),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: rule for names, rule in _FAMILIES for name in names.split()
}


def find_pre_tokenizer(name: str | None, where: object) -> PreTokenizer:
    """The rule of that name; ModelError for an unknown or missing one."""
    rule = PRE_TOKENIZERS.get(name or "")
    if rule is None:
        raise ModelError(
            f"{where}: the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not known",
            expected=f"one of {', '.join(sorted(PRE_TOKENIZERS))}",
            found=name,
            mend="give the folder of the model's original tokenizer as `tokenizer`",
        )
    return rule


def build(rule: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """The tokenizers library's object for a rule."""
    from tokenizers import Regex, pre_tokenizers

    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(split), behavior="isolated") for split in rule.splits
    ]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)
