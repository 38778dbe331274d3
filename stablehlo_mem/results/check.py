"""The outcome of running a plan's program beside the original: what `Plan.check` returns and `checking/` makes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import numpy as np

from stablehlo_mem.errors import StableHLOMemError
from stablehlo_mem.results.rendering import HasText
from stablehlo_mem.utils.plain_data import plain_data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check(HasText):
    """The comparison of a plan's program with the original.

    Attributes:
        results: one for each result of the program, in order.
        where: the device that both programs ran on.
        why: why they ran there and not on the device that was planned for, "" if it is that device.
        arguments: "given", or "drawn, seed 0".
        no_float64: why the original could not be run in float64, "" if it was.
    """

    results: tuple[CheckedResult, ...]
    where: str
    why: str
    arguments: str
    no_float64: str

    @property
    def ok(self) -> bool:
        """Whether every result is within its limit."""
        return all(result.ok for result in self.results)

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(self.to_data(), indent=2)

    def to_data(self) -> dict[str, Any]:
        """What `to_json` writes."""
        data = plain_data(self)
        for entry, result in zip(data["results"], self.results, strict=True):
            entry["ok"] = result.ok
        return {"ok": self.ok, **data}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedResult:
    """One result of a plan compared with the original's. Errors count the elements where the original is finite.

    Attributes:
        path: its place among the results: "result['loss']", "result[0]".
        dtype, shape: of the result.
        from_original: worst |new − original|; for integers and booleans, the number of elements that differ.
        original_from_f64, new_from_f64: worst distance from the program in float64, None if it was not run.
        limit: the upper bound of `new_from_f64`, or of `from_original` where that is None.
        not_finite: share of the original's elements that are infinite or NaN.
        nudged: whether the original was also run on slightly changed arguments. The limit is then wider by what that
            changes.
        undecided: elements over the limit, or that differ, where changed arguments change the original as much.
        fault: what is wrong, "" if nothing is.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    from_original: float
    original_from_f64: float | None = None
    new_from_f64: float | None = None
    limit: float = 0.0
    not_finite: float = 0.0
    nudged: bool = False
    undecided: int = 0
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is within the limit."""
        return not self.fault

    @property
    def share(self) -> float:
        """The error as a share of its limit: 0 to 1 where the result is right."""
        error = self.from_original if self.new_from_f64 is None else self.new_from_f64
        return error / self.limit if self.limit else float("inf") if error else 0.0

    @property
    def is_exact(self) -> bool:
        """Whether the elements are integers or booleans, which must be equal."""
        return not jnp.issubdtype(self.dtype, np.inexact)


class CheckError(StableHLOMemError):
    """A plan's program computes something else than the original: a bug in stablehlo-mem. `check` has the figures."""

    def __init__(self, message: str, check: Check):
        self.check = check
        super().__init__(message)
