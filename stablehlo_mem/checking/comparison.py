"""Compares the results of a rewritten program with the original's, by the limits that docs/numerics.md states.

`checking.plan_check` calls it on numpy arrays; it runs no program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from stablehlo_mem.results.check import CheckedResult

Array = np.ndarray[Any, Any]

_ERROR_RATIO = 2.0
"""A rewrite may have this many times the original's own error: the limit of docs/numerics.md."""
_ROUNDING = 1e-6
"""A rewrite may also be off by this share of the largest magnitude, which is eight roundings of float32; or by one
rounding of a coarser dtype."""
_NUDGE_RATIO = 4.0
"""The limit grows by this many times what nudged arguments change: three runs see the usual change, not the largest."""
_NUDGE_QUANTILE = 0.9
"""The change counted is that in this share of the elements. In the others a discontinuity may be near: they are judged
one by one."""
_FEW_ELEMENTS = 1000
"""Below this size even the original's largest error is chance: the rounding allowed is `_NUDGE_RATIO` times as much."""
_BLOCK = 2**20
"""Elements compared at once: results may be as large as memory, and a block needs a few float64 copies of 8 MiB."""


def compare(path: str, new: Array, old: Array, wide: Array | None, sensitivity: Array | None = None) -> CheckedResult:
    """Compares one result.

    Args:
        path: its place among the results.
        new, old: of the rewritten program and of the original.
        wide: of the original in float64 (complex128; other dtypes unchanged), None if it was not run.
        sensitivity: how far nudged arguments move each element of the original, see `nudge_sensitivity`; None if it
            was not measured.
    """
    if new.dtype != old.dtype or new.shape != old.shape:
        fault = f"{new.dtype}{list(new.shape)} instead of {old.dtype}{list(old.shape)}"
        return CheckedResult(path=path, dtype=str(old.dtype), shape=old.shape, from_original=float("inf"), fault=fault)
    if not jnp.issubdtype(old.dtype, np.inexact):
        return _compare_exact(path, new, old, wide, sensitivity)
    result = _compare_floats(path, new, old, wide)
    if result.ok or sensitivity is None:
        return result
    return _with_nudge_allowance(result, new, old, old if wide is None else wide, sensitivity)


def nudge_sensitivity(nudged: Array, old: Array) -> Array:
    """How far each element of a result moves when the arguments are nudged, in float32.

    Infinite where it becomes or ceases to be finite; 1 where an integer or boolean changes.
    """
    if not jnp.issubdtype(old.dtype, np.inexact):
        return (nudged != old).astype(np.float32)
    sensitivity = np.zeros(old.size, np.float32)
    for block in _blocks(old.size):
        after, before = (_in_double(array, block) for array in (nudged, old))
        finite = np.isfinite(after) & np.isfinite(before)
        distance = np.where(_same(after, before), 0.0, np.inf)
        distance[finite] = abs(after[finite] - before[finite])
        sensitivity[block] = distance
    return sensitivity.reshape(old.shape)


def tolerance(dtype: Any) -> float:
    """The error allowed without a run in float64, as a share of the original's largest magnitude.

    The root of the dtype's epsilon, half of its digits: 3.5e-4 of float32, 0.09 of bfloat16, 1.5e-8 of float64.
    """
    return float(jnp.finfo(dtype).eps) ** 0.5


@dataclasses.dataclass
class _FloatErrors:
    """The largest errors and magnitudes of the blocks compared so far, and counts of NaNs and infinities."""

    from_original: float = 0.0
    original_from_f64: float = 0.0
    new_from_f64: float = 0.0
    magnitude: float = 0.0
    magnitude_f64: float = 0.0
    not_finite: int = 0
    other_kind: int = 0

    def add(self, new: Array, old: Array, wide: Array | None) -> None:
        """Adds a block, in double precision."""
        self.not_finite += int((~np.isfinite(old)).sum())
        self.other_kind += int(_other_kind(new, old).sum())
        finite = np.isfinite(old) & np.isfinite(new)
        self.from_original = max(self.from_original, _largest(new[finite] - old[finite]))
        self.magnitude = max(self.magnitude, _largest(old[finite]))
        if wide is not None:
            finite &= np.isfinite(wide)
            self.new_from_f64 = max(self.new_from_f64, _largest(new[finite] - wide[finite]))
            self.original_from_f64 = max(self.original_from_f64, _largest(old[finite] - wide[finite]))
            self.magnitude_f64 = max(self.magnitude_f64, _largest(wide[finite]))


def _compare_floats(path: str, new: Array, old: Array, wide: Array | None) -> CheckedResult:
    errors = _FloatErrors()
    for block in _blocks(old.size):
        wide_block = None if wide is None else _in_double(wide, block)
        errors.add(_in_double(new, block), _in_double(old, block), wide_block)
    if wide is None:
        error, limit = errors.from_original, tolerance(old.dtype) * errors.magnitude
    else:
        error = errors.new_from_f64
        limit = _ERROR_RATIO * errors.original_from_f64 + _rounding(old.dtype) * errors.magnitude_f64
    fault = ""
    if errors.other_kind:
        fault = f"has other infinities or NaNs in {_of(errors.other_kind, old.size)}"
    elif not error <= limit:
        fault = f"off by {error:.3g}, {'from the original' if wide is None else 'from float64'}, more than {limit:.3g}"
    return CheckedResult(
        path=path,
        dtype=str(old.dtype),
        shape=old.shape,
        from_original=errors.from_original,
        original_from_f64=None if wide is None else errors.original_from_f64,
        new_from_f64=None if wide is None else errors.new_from_f64,
        limit=limit,
        not_finite=errors.not_finite / max(old.size, 1),
        fault=fault,
    )


def _with_nudge_allowance(
    result: CheckedResult, new: Array, old: Array, reference: Array, sensitivity: Array
) -> CheckedResult:
    """A result over its limit, judged again with room for what nudged arguments do to the original.

    The limit grows by what they do to most elements. An element over the new limit is undecided if they change that
    element as much, else it is wrong.
    """
    finite_moves = sensitivity[np.isfinite(sensitivity)]
    allowance = 0.0
    if finite_moves.size:
        allowance = _NUDGE_RATIO * float(np.quantile(finite_moves, _NUDGE_QUANTILE, method="lower"))
    if 0 < old.size < _FEW_ELEMENTS:
        values = _in_double(reference, slice(None))
        allowance += (_NUDGE_RATIO - 1) * _rounding(old.dtype) * _largest(values[np.isfinite(values)])
    limit, wrong, undecided = result.limit + allowance, 0, 0
    for block in _blocks(old.size):
        new_values, old_values, right = (_in_double(array, block) for array in (new, old, reference))
        moves = sensitivity.reshape(-1)[block].astype(np.float64)
        other_kind = _other_kind(new_values, old_values)
        finite = np.isfinite(old_values) & np.isfinite(new_values) & np.isfinite(right)
        error = np.zeros(other_kind.shape)
        error[finite] = abs(new_values[finite] - right[finite])
        excused = np.where(other_kind, np.isinf(moves), error <= limit + _NUDGE_RATIO * moves)
        beyond = other_kind | (error > limit)
        undecided += int((beyond & excused).sum())
        wrong += int((beyond & ~excused).sum())
    fault = f"{result.fault} (nudged arguments allow {limit:.3g})" if wrong else ""
    return dataclasses.replace(result, limit=limit, nudged=True, undecided=undecided, fault=fault)


def _compare_exact(path: str, new: Array, old: Array, wide: Array | None, sensitivity: Array | None) -> CheckedResult:
    """Integers and booleans: an element may differ only where float64 or nudged arguments change the original."""
    differs = new != old
    decided_by_rounding = np.zeros(old.shape, np.bool_)
    if wide is not None:
        decided_by_rounding |= wide != old
    if sensitivity is not None:
        decided_by_rounding |= sensitivity > 0
    wrong, undecided = int((differs & ~decided_by_rounding).sum()), int((differs & decided_by_rounding).sum())
    return CheckedResult(
        path=path,
        dtype=str(old.dtype),
        shape=old.shape,
        from_original=float(wrong + undecided),
        limit=float(undecided),
        nudged=sensitivity is not None,
        undecided=undecided,
        fault=f"{_of(wrong, old.size)} differ" if wrong else "",
    )


def _same(new: Array, old: Array) -> Array:
    return (new == old) | (np.isnan(new) & np.isnan(old))


def _other_kind(new: Array, old: Array) -> Array:
    """Where one is finite and the other is not, or both are infinite or NaN but not the same."""
    return ~np.where(np.isfinite(old), np.isfinite(new), _same(new, old))


def _rounding(dtype: Any) -> float:
    return max(_ROUNDING, float(jnp.finfo(dtype).eps))


def _blocks(size: int) -> Iterator[slice]:
    return (slice(begin, begin + _BLOCK) for begin in range(0, size, _BLOCK))


def _in_double(array: Array, block: slice) -> Array:
    """A block of the elements in double precision."""
    return array.reshape(-1)[block].astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _largest(part: Array) -> float:
    return float(np.abs(part).max()) if part.size else 0.0


def _of(count: int, size: int) -> str:
    return f"{count:,} of {size:,} elements"
