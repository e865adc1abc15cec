"""Temperature, min_p, top-k and top-p on the rows that are drawn at random.

Probabilities are turned into integers once, `mass` int64 [M, V], and every filter works on
those: what it drops gets 0.  Sums of integers are exact, so they do not depend on their order,
on threads, or on the other rows of a batch, and "reaches top_p" has no rounding in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from framework_torch.sampler.rows import on_device, put, take, which

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

# A float32 probability times 2^50 is exact, and the sum of a row stays below 2^51.  Tokens less
# probable than 2^-50 are never drawn.
SCALE = 2.0**50
# Only this many of the best tokens are sorted, unless a row turns out to need more.
_WINDOW = 1024


def scale(
    logits: torch.Tensor, best: torch.Tensor, temperature: npt.NDArray[np.float32]
) -> torch.Tensor:
    """(logits - best) / temperature, float32 [M, V], in place.  best: [M], finite maxima.

    Subtracting first keeps any temperature from making +inf.
    """
    return logits.sub_(best.unsqueeze(1)).div_(on_device(temperature, logits).unsqueeze(1))


def weigh(z: torch.Tensor) -> torch.Tensor:
    """Probabilities of logits z float32 [M, V], times 2^50: int64 [M, V].

    torch's softmax over the last dimension works row by row, so a row's bits are its own.
    """
    return torch.softmax(z, dim=1).mul_(SCALE).long()


def keep_min_p(mass: torch.Tensor, min_p: F64) -> None:
    """Drop tokens less probable than min_p times the best.  min_p: [M], 0 is off."""
    rows = which(min_p > 0.0)
    if not len(rows):
        return
    part = take(mass, rows)
    floor = part.amax(1).double().mul_(on_device(min_p[rows], mass)).ceil_().long()
    part.masked_fill_(part < floor.unsqueeze(1), 0)
    put(mass, rows, part)


def keep_best(mass: torch.Tensor, top_k: I64, top_p: F64) -> None:
    """Keep the k best, and of those the smallest set of best ones whose share reaches top_p.

    top_k: [M], >= 1, V is off.  top_p: [M], 1 is off.  At least one token stays.  Where tokens
    tie at the border, those with the lowest ids stay.
    """
    vocab = mass.shape[1]
    rows = which((top_k < vocab) | (top_p < 1.0))
    if not len(rows):
        return
    part, k, p = take(mass, rows), top_k[rows], top_p[rows]
    wide = which(~_cut(part, k, p, min(_WINDOW, vocab)))
    if len(wide):
        rest = take(part, wide)
        _cut(rest, k[wide], p[wide], vocab)
        put(part, wide, rest)
    put(mass, rows, part)


def _cut(mass: torch.Tensor, top_k: I64, top_p: F64, width: int) -> npt.NDArray[np.bool_]:
    """`keep_best` by sorting the `width` best of each row: both filters are one cut in it.

        ascending   | outside the k best | outside the nucleus | kept        |
        index       0                  width - k            dropped        width

    Returns which rows [M] could be cut within the window; the others are left as they were.
    """
    vocab = mass.shape[1]
    ordered = _largest(mass, width)
    reached = torch.nn.functional.pad(ordered.cumsum(1), (1, 0))  # mass of the n smallest
    inside = on_device((top_k <= width) | (top_k == vocab), mass)
    beyond = on_device(np.clip(width - top_k, 0, width), mass).unsqueeze(1)
    held = reached[:, -1]
    unlimited = on_device(top_k == vocab, mass)
    share = torch.where(unlimited, mass.sum(1), held - reached.gather(1, beyond).squeeze(1))
    needed = (share.double() * on_device(top_p, mass)).ceil_().long()  # >= 1
    # The most tokens that can go while what stays still holds `needed`.
    surplus = held - torch.minimum(needed, share)
    dropped = torch.searchsorted(reached, surplus.unsqueeze(1), right=True) - 1
    if width < vocab:
        # The best token that goes must be seen too, or a tie with it could be missed.
        inside &= dropped.squeeze(1) >= 1
    dropped.clamp_(min=0)
    cutoff = torch.where(inside.unsqueeze(1), ordered.gather(1, dropped), 0)
    mass.masked_fill_(mass < cutoff, 0)
    best_gone = ordered.gather(1, (dropped - 1).clamp_(min=0))
    tied = inside & ((best_gone == cutoff) & (dropped > 0)).squeeze(1)
    _break_ties(mass, tied, cutoff, (ordered > cutoff).sum(1), width - dropped.squeeze(1))
    return inside.cpu().numpy()


def _largest(mass: torch.Tensor, width: int) -> torch.Tensor:
    """The `width` largest of each row, ascending, int64 [M, width].

    On the CPU numpy's vectorised partition and sort are many times as fast as torch's.
    """
    if mass.device.type != "cpu":
        return mass.topk(width, dim=1).values.flip(1)
    first = mass.shape[1] - width
    best = np.partition(mass.numpy(), first, axis=1)[:, first:] if first else mass.numpy()
    return torch.from_numpy(np.sort(best, axis=1))


def _break_ties(
    mass: torch.Tensor,
    tied: torch.Tensor,
    cutoff: torch.Tensor,
    better: torch.Tensor,
    count: torch.Tensor,
) -> None:
    """In the rows that are `tied` keep `count` tokens: the `better` ones, then the lowest ids."""
    for row in torch.nonzero(tied).squeeze(1).tolist():
        ties = torch.nonzero(mass[row] == cutoff[row]).squeeze(1)
        mass[row, ties[int(count[row] - better[row]) :]] = 0


def hide_dropped(z: torch.Tensor, mass: torch.Tensor, filtered: npt.NDArray[np.bool_]) -> None:
    """Give tokens without mass -inf in z, in the rows that have a filter (bool [M])."""
    rows = which(filtered)
    part = take(z, rows)
    part.masked_fill_(take(mass, rows) == 0, float("-inf"))
    put(z, rows, part)
