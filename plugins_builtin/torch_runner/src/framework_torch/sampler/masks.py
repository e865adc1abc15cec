"""Stages that forbid tokens or shift them: allowed ids, grammar, bad words, stop ids, bias.

All change `logits` float32 [N, V] in place; a forbidden token has -inf.  A bias never brings
one back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from framework.contracts.step import I32
from framework_torch.sampler.history import History
from framework_torch.sampler.parameters import SlotParameters
from framework_torch.sampler.rows import on_device, take, which

I64 = npt.NDArray[np.int64]
FORBIDDEN = float("-inf")


def allow_only(logits: torch.Tensor, params: SlotParameters, slots: I32) -> None:
    """Mask whatever is not in allowed_token_ids."""
    for row in which(params.has_allowed[slots]):
        allowed = on_device(params.rules[int(slots[row])].allowed, logits)
        kept = logits[row, allowed]
        logits[row].fill_(FORBIDDEN)
        logits[row, allowed] = kept


def apply_bitmask(
    logits: torch.Tensor, bitmask: torch.Tensor | npt.NDArray[np.integer], rows: I32 | I64
) -> None:
    """Mask the tokens whose bit is not set.

    bitmask: int32 or uint32 [B, ceil(V / 32)], bit i of word w is token 32 w + i.
    rows: integers [B], the row of `logits` of each.  Raises ValueError if shapes disagree.
    """
    if isinstance(bitmask, np.ndarray):
        words = torch.from_numpy(np.ascontiguousarray(bitmask).view(np.int32))
    else:
        words = bitmask.view(torch.int32)
    vocab = logits.shape[1]
    expected = (len(rows), -(-vocab // 32))
    if tuple(words.shape) != expected:
        raise ValueError(f"a bitmask must have shape {expected}, found {tuple(words.shape)}")
    if logits.device.type == "cpu":
        _forbid_on_host(logits.numpy(), words.numpy(), np.asarray(rows, np.int64))
        return
    clear = _clear_bits(words, logits.device)[:, :vocab]
    part = take(logits, np.asarray(rows, np.int64)) if _ascending(rows) else None
    if part is logits:  # of a step with nothing but masked rows: no copy
        logits.masked_fill_(clear, FORBIDDEN)
        return
    index = on_device(np.asarray(rows, np.int64), logits)
    logits[index] = logits[index].masked_fill_(clear, FORBIDDEN)


def _ascending(rows: I32 | I64) -> bool:
    return bool((np.diff(rows) > 0).all())


def _forbid_on_host(logits: npt.NDArray[np.float32], words: I32, rows: I64) -> None:
    """By numpy, row by row, which takes a third of the time of torch's masked_fill: a grammar
    allows few tokens or nearly all, and either way most of a row is one run of bytes."""
    vocab = logits.shape[1]
    clear = np.unpackbits((~words).view(np.uint8), axis=1, bitorder="little")[:, :vocab].view(bool)
    few = 2 * np.count_nonzero(clear, axis=1) > vocab
    for row, forbidden, few_left in zip(rows.tolist(), clear, few.tolist(), strict=True):
        own = logits[row]
        if few_left:
            allowed = np.flatnonzero(~forbidden)
            kept = own[allowed]
            own.fill(FORBIDDEN)
            own[allowed] = kept
        else:
            np.copyto(own, FORBIDDEN, where=forbidden)


def _clear_bits(words: torch.Tensor, device: torch.device) -> torch.Tensor:
    """bool [B, 32 W]: the bits of int32 [B, W] that are not set."""
    shifts = torch.arange(32, dtype=torch.int32, device=device)
    # The shift keeps the sign, and the & drops it again: uint32 and int32 mean the same bits.
    return ((words.to(device).unsqueeze(-1) >> shifts) & 1).eq_(0).flatten(1).bool()


def ban_words(logits: torch.Tensor, params: SlotParameters, slots: I32, history: History) -> None:
    """Mask the tokens that would complete a bad word.

    Only output counts: a word that began in the prompt is not the model's word.
    """
    pairs = []
    for row in which(params.has_bad_words[slots]):
        rules = params.rules[int(slots[row])]
        pairs.append((row, rules.banned))
        if rules.sequences:
            outputs = history.outputs(int(row))
            ends = [word[-1] for word in rules.sequences if _ends_with(outputs, word[:-1])]
            pairs.append((row, np.array(ends, np.int64)))
    _forbid(logits, pairs)


def _ends_with(tokens: I32, suffix: I64) -> bool:
    return len(tokens) >= len(suffix) and bool((tokens[-len(suffix) :] == suffix).all())


def delay_stop(logits: torch.Tensor, params: SlotParameters, slots: I32, history: History) -> None:
    """Mask the stop ids of rows with fewer than min_tokens outputs."""
    early = which(history.num_outputs < params.min_tokens[slots])
    _forbid(logits, [(row, params.rules[int(slots[row])].stop) for row in early])


def _forbid(logits: torch.Tensor, pairs: list[tuple[np.int64, I64]]) -> None:
    if not pairs:
        return
    rows = np.repeat([row for row, _ in pairs], [len(ids) for _, ids in pairs])
    ids = np.concatenate([ids for _, ids in pairs])
    logits[on_device(rows, logits), on_device(ids, logits)] = FORBIDDEN


def add_bias(logits: torch.Tensor, params: SlotParameters, slots: I32) -> None:
    """Add logit_bias.  Keys of a mapping are unique, so the order cannot matter."""
    for row in which(params.has_bias[slots]):
        rules = params.rules[int(slots[row])]
        logits[row, on_device(rules.bias_ids, logits)] += on_device(rules.bias_values, logits)
