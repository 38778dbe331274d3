"""Results of an original and of what it was rewritten to, compared by the yardstick of docs/numerics.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = np.ndarray[Any, Any]

_TWICE = 2.0
"""A rewrite may be this much worse than the original's own error."""
_ROUNDING = 1e-6
"""And off by this share of the largest magnitude, or by one rounding of a result's own dtype, where that is more."""
_AT_A_TIME = 2**20
"""Elements compared at once: results may be as large as memory is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedResult:
    """One result of a plan, beside the original's. Errors are over the elements where the original is finite.

    Attributes:
        path: where it is among the results: "result['loss']", "result[0]".
        dtype, shape: of the result.
        from_original: worst |new − original|; of whole numbers and booleans the number of elements that differ.
        original_from_f64, new_from_f64: worst distance from the program in float64, None where there is none.
        limit: what the distance that counts may be: of `new_from_f64`, or of `from_original` where that is None.
        not_finite: share of the original's elements that are infinite or not a number.
        undecided: elements of whole numbers or booleans that differ where the original is a near tie: rounding alone
            decides there.
        fault: what is wrong, "" if nothing is.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    from_original: float
    original_from_f64: float | None
    new_from_f64: float | None
    limit: float
    not_finite: float = 0.0
    undecided: int = 0
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is within the limit."""
        return not self.fault

    @property
    def share(self) -> float:
        """The distance that counts, as a share of its limit: 0 to 1 where it is right."""
        counts = self.from_original if self.new_from_f64 is None else self.new_from_f64
        return counts / self.limit if self.limit else float("inf") if counts else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether it is of whole numbers or booleans, which must be equal."""
        return not jnp.issubdtype(self.dtype, np.inexact)


def compare(path: str, new: Array, old: Array, wide: Array | None, others: Sequence[Array] = ()) -> CheckedResult:
    """Compares one result.

    Args:
        path: where it is among the results.
        new, old: the rewritten program's and the original's.
        wide: the original's in float64 (complex128; other dtypes as they are), None where there is none.
        others: the original's for arguments changed by their last bits: where these differ, rounding decides.
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
        return _compare_floats(path, new, old, wide)
    return _compare_exact(path, new, old, [*others, *([] if wide is None else [wide])])


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
        share = max(_ROUNDING, float(jnp.finfo(old.dtype).eps))
        limit = _TWICE * worst.original_from_f64 + share * worst.scale_f64
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


def _compare_exact(path: str, new: Array, old: Array, others: Sequence[Array]) -> CheckedResult:
    differs = new != old
    tied = np.zeros_like(differs)
    for other in others:
        tied |= other != old
    wrong, undecided = int((differs & ~tied).sum()), int((differs & tied).sum())
    return CheckedResult(
        path=path,
        dtype=str(old.dtype),
        shape=old.shape,
        from_original=float(wrong + undecided),
        original_from_f64=None,
        new_from_f64=None,
        limit=float(undecided),
        undecided=undecided,
        fault=f"{_of(wrong, old.size)} differ" if wrong else "",
    )


def _parts(size: int) -> Iterator[slice]:
    return (slice(begin, begin + _AT_A_TIME) for begin in range(0, size, _AT_A_TIME))


def _doubled(part: Array) -> Array:
    return part.astype(np.complex128 if part.dtype.kind == "c" else np.float64)


def _largest(part: Array) -> float:
    return float(np.abs(part).max()) if part.size else 0.0


def _of(count: int, size: int) -> str:
    return f"{count:,} of {size:,} elements"
