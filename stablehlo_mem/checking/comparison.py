"""Results of an original and of what it was rewritten to, compared by the yardstick of docs/numerics.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from stablehlo_mem.results.check import CheckedResult

Array = np.ndarray[Any, Any]

_TWICE = 2.0
"""A rewrite may be this much worse than the original's own error."""
_ROUNDING = 1e-6
"""And off by this share of the largest magnitude, or by one rounding of a result's own dtype, where that is more."""
_NUDGED = 4.0
"""Where that is not enough, this many times what nudged arguments do to the original..."""
_MOST = 0.9
"""... to this share of its elements."""
_FEW = 1000
"""Of fewer elements the largest error is chance, of the original's as well: they have `_NUDGED` times the rounding."""
_AT_A_TIME = 2**20
"""Elements compared at once: results may be as large as memory is."""


def compare(path: str, new: Array, old: Array, wide: Array | None, effect: Array | None = None) -> CheckedResult:
    """Compares one result.

    Args:
        path: where it is among the results.
        new, old: the rewritten program's and the original's.
        wide: the original's in float64 (complex128; other dtypes as they are), None where there is none.
        effect: what nudging the arguments does to each element of the original, see `effect_of`; None if nobody knows.
    """
    if new.dtype != old.dtype or new.shape != old.shape:
        fault = f"{new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
        return CheckedResult(
            path=path,
            dtype=str(old.dtype),
            shape=old.shape,
            from_original=float("inf"),
            original_from_f64=None,
            new_from_f64=None,
            limit=0.0,
            fault=fault,
        )
    if jnp.issubdtype(old.dtype, np.inexact):
        found = _compare_floats(path, new, old, wide)
        return found if found.ok or effect is None else _decided(found, new, old, old if wide is None else wide, effect)
    return _compare_exact(path, new, old, wide, effect)


def effect_of(nudged: Array, old: Array) -> Array:
    """How far each element of a result moves when the arguments are nudged, in float32.

    Infinite where it becomes or ceases to be a finite number; 1 where a whole number or boolean is another.
    """
    if not jnp.issubdtype(old.dtype, np.inexact):
        return (nudged != old).astype(np.float32)
    effect = np.zeros(old.size, np.float32)
    for part in _parts(old.size):
        one, other = (_doubled(a.reshape(-1)[part]) for a in (nudged, old))
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        both = np.isfinite(one) & np.isfinite(other)
        moved = np.where(same, 0.0, np.inf)
        moved[both] = abs(one[both] - other[both])
        effect[part] = moved
    return effect.reshape(old.shape)


def tolerance(dtype: Any) -> float:
    """What a result may be off, of the largest magnitude of the original, where no float64 is to be had.

    The root of the dtype's epsilon, half of its digits: 3.5e-4 of float32, 0.09 of bfloat16, 1.5e-8 of float64.
    """
    return float(jnp.finfo(dtype).eps) ** 0.5


@dataclasses.dataclass
class _Worst:
    """What is found of the elements seen so far."""

    from_original: float = 0.0
    original_from_f64: float = 0.0
    new_from_f64: float = 0.0
    scale: float = 0.0
    scale_f64: float = 0.0
    not_finite: int = 0
    moved: int = 0

    def add(self, new: Array, old: Array, wide: Array | None) -> None:
        """Elements more, all in double precision."""
        finite = np.isfinite(old)
        self.not_finite += int((~finite).sum())
        same = (new == old) | (np.isnan(new) & np.isnan(old))
        self.moved += int((~np.where(finite, np.isfinite(new), same)).sum())
        finite &= np.isfinite(new)
        self.from_original = max(self.from_original, _largest(new[finite] - old[finite]))
        self.scale = max(self.scale, _largest(old[finite]))
        if wide is not None:
            finite &= np.isfinite(wide)
            self.new_from_f64 = max(self.new_from_f64, _largest(new[finite] - wide[finite]))
            self.original_from_f64 = max(self.original_from_f64, _largest(old[finite] - wide[finite]))
            self.scale_f64 = max(self.scale_f64, _largest(wide[finite]))


def _compare_floats(path: str, new: Array, old: Array, wide: Array | None) -> CheckedResult:
    worst = _Worst()
    for part in _parts(old.size):
        taken = (None if one is None else _doubled(one.reshape(-1)[part]) for one in (new, old, wide))
        worst.add(*taken)  # pyright: ignore[reportArgumentType]  # only the last may be None
    if wide is None:
        counts, limit = worst.from_original, tolerance(old.dtype) * worst.scale
    else:
        counts = worst.new_from_f64
        limit = _TWICE * worst.original_from_f64 + _rounding(old.dtype) * worst.scale_f64
    fault = ""
    if worst.moved:
        fault = f"has other infinities or NaNs in {_of(worst.moved, old.size)}"
    elif not counts <= limit:
        fault = f"off by {counts:.3g}, {'from the original' if wide is None else 'from float64'}, more than {limit:.3g}"
    return CheckedResult(
        path=path,
        dtype=str(old.dtype),
        shape=old.shape,
        from_original=worst.from_original,
        original_from_f64=None if wide is None else worst.original_from_f64,
        new_from_f64=None if wide is None else worst.new_from_f64,
        limit=limit,
        not_finite=worst.not_finite / max(old.size, 1),
        fault=fault,
    )


def _decided(found: CheckedResult, new: Array, old: Array, true: Array, effect: Array) -> CheckedResult:
    """A result that is beyond its limit, with room for what nudged arguments do to the original.

    The limit grows by what they do to most elements. What is still beyond it is undecided where they do as much to the
    element itself, and wrong elsewhere.
    """
    known = effect[np.isfinite(effect)]
    reach = _NUDGED * float(np.quantile(known, _MOST, method="lower")) if known.size else 0.0
    if 0 < old.size < _FEW:
        right = _doubled(true.reshape(-1))
        reach += (_NUDGED - 1) * _rounding(old.dtype) * _largest(right[np.isfinite(right)])
    limit, wrong, undecided = found.limit + reach, 0, 0
    for part in _parts(old.size):
        one, other, right = (_doubled(a.reshape(-1)[part]) for a in (new, old, true))
        moves = effect.reshape(-1)[part].astype(np.float64)
        finite = np.isfinite(other)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        beyond = ~np.where(finite, np.isfinite(one), same)
        both = finite & np.isfinite(one) & np.isfinite(right)
        off = np.zeros(beyond.shape)
        off[both] = abs(one[both] - right[both])
        excused = np.where(beyond, np.isinf(moves), off <= limit + _NUDGED * moves)
        beyond |= off > limit
        undecided += int((beyond & excused).sum())
        wrong += int((beyond & ~excused).sum())
    fault = f"{found.fault} (nudged arguments allow {limit:.3g})" if wrong else ""
    return dataclasses.replace(found, limit=limit, nudged=True, undecided=undecided, fault=fault)


def _compare_exact(path: str, new: Array, old: Array, wide: Array | None, effect: Array | None) -> CheckedResult:
    differs = new != old
    tied = np.zeros(old.shape, np.bool_)
    if wide is not None:
        tied |= wide != old
    if effect is not None:
        tied |= effect > 0
    wrong, undecided = int((differs & ~tied).sum()), int((differs & tied).sum())
    return CheckedResult(
        path=path,
        dtype=str(old.dtype),
        shape=old.shape,
        from_original=float(wrong + undecided),
        original_from_f64=None,
        new_from_f64=None,
        limit=float(undecided),
        nudged=effect is not None,
        undecided=undecided,
        fault=f"{_of(wrong, old.size)} differ" if wrong else "",
    )


def _rounding(dtype: Any) -> float:
    return max(_ROUNDING, float(jnp.finfo(dtype).eps))


def _parts(size: int) -> Iterator[slice]:
    return (slice(begin, begin + _AT_A_TIME) for begin in range(0, size, _AT_A_TIME))


def _doubled(part: Array) -> Array:
    return part.astype(np.complex128 if part.dtype.kind == "c" else np.float64)


def _largest(part: Array) -> float:
    return float(np.abs(part).max()) if part.size else 0.0


def _of(count: int, size: int) -> str:
    return f"{count:,} of {size:,} elements"
