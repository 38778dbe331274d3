"""Budgets as people write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Literal

from stablehlo_mem.errors import InputError

_FORMS = 'an int of bytes, a string like "512MiB", "1.5GB" or "800kB", "min" for the smallest, or None for no limit'
_SIZE = re.compile(r"\s*(\d+(?:_\d+)*(?:\.\d+)?)\s*([kKMGTP]?)(i?)([bB]?)\s*")
_PREFIXES = "kMGTP"


def parse_budget(budget: Any) -> int | Literal["min"] | None:
    """Bytes of a budget, "min" or None.

    kB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024. Fractions of a byte are dropped: a budget is never exceeded.

    Raises:
        InputError: not one of the accepted forms, zero or negative.
    """
    if budget is None or budget == "min":
        return budget
    if isinstance(budget, str):
        nbytes = _parse_size(budget)
    elif isinstance(budget, bool) or not hasattr(budget, "__index__"):
        raise InputError(f"a budget cannot be {budget!r} ({type(budget).__name__}): give {_FORMS}")
    else:
        nbytes = budget.__index__()  # numpy's integers too
    if nbytes <= 0:
        raise InputError(f"a budget of {budget!r} is no memory at all: give {_FORMS}")
    return nbytes


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise InputError(f"cannot read the budget {text!r}: give {_FORMS}")
    number, prefix, binary, _ = match.groups()
    exponent = _PREFIXES.index(prefix.replace("K", "k")) + 1 if prefix else 0
    return int(Fraction(number.replace("_", "")) * (1024 if binary else 1000) ** exponent)
