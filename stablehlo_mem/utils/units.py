"""Reads budgets as users write them, and formats bytes, FLOPs and seconds for reports."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

from stablehlo_mem.errors import InputError

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

_FORMS = (
    'an int of bytes, a string like "512MiB", "1.5 GB" or "32G", "25%" of the temporaries, "device" or '
    '"90% of device", "min" for the smallest, or "none" for no limit'
)
_SHARE = re.compile(
    r"\s*(?:([0-9]+(?:\.[0-9]+)?)\s*%\s*(of\s+(?:the\s+)?(?:device|temporaries))?|(device))\s*", re.IGNORECASE
)
_SIZE = re.compile(r"\s*((?:\d+(?:_\d+)*(?:\.\d+)?|\.\d+)(?:e\+?\d{1,2})?)\s*([kmgtp]?)(i?)(b?)\s*", re.IGNORECASE)
_PREFIXES = "kmgtp"
_MOST_BYTES = 2**63
"""What a signed 64-bit integer holds, as compilers report sizes."""


@dataclasses.dataclass(frozen=True)
class Share:
    """A budget that is a share: of a program's temporaries, beside its arguments and outputs, or of a device's memory.

    `planner.shares` turns it into bytes.
    """

    fraction: Fraction
    of: Literal["temporaries", "device"]


Budget = int | Share | Literal["min"] | None
"""Bytes, a share, the smallest peak, or no limit."""


def parse_budget(budget: Any) -> Budget:
    """A budget as users write it.

    kB, MB, GB and k, M, G are powers of 1000; KiB, MiB, GiB and Ki, Mi, Gi of 1024. Case and spaces do not matter:
    nobody means millibytes or bits. Fractions of a byte are dropped: a budget is never exceeded.

    Raises:
        InputError: not one of the accepted forms, zero or negative, or a share of more than the whole.
    """
    if budget is None or isinstance(budget, Share):
        return budget
    if isinstance(budget, str):
        word = budget.strip().lower()
        if word in ("min", "none"):
            return "min" if word == "min" else None
        share = _SHARE.fullmatch(budget)
        if share is not None:
            return _parse_share(budget, *share.groups())
        nbytes = _parse_size(budget)
    elif isinstance(budget, bool) or not hasattr(budget, "__index__"):
        raise InputError(f"a budget cannot be {_short(budget)} ({type(budget).__name__}): give {_FORMS}")
    else:
        nbytes = budget.__index__()  # numpy's integers too
    if nbytes >= _MOST_BYTES:
        raise InputError(f"a budget of {budget!r} is more than any memory: give {_FORMS}")
    if nbytes <= 0:
        raise InputError(f"a budget of {budget!r} is no memory at all: give {_FORMS}")
    return nbytes


def parse_bytes(size: Any, name: str) -> int:
    """A number of bytes as users write it, for the option of a name.

    Raises:
        InputError: it is something else, a share among others, zero or negative.
    """
    wrong = InputError(f'{name} is an int of bytes or a string like "64GiB", not {size!r}')
    try:
        nbytes = parse_budget(size)
    except InputError:  # what it says is of budgets
        raise wrong from None
    if not isinstance(nbytes, int):
        raise wrong
    return nbytes


def _short(value: Any) -> str:
    """A value as it prints, cut after a line's length."""
    return textwrap.shorten(repr(value), 80, placeholder=" …")


def _parse_share(text: str, percent: str | None, of: str | None, device: str | None) -> Share:
    fraction, is_of_device = Fraction(percent or 100) / 100, device or (of or "").lower().endswith("device")
    if fraction > 1:
        raise InputError(f"a budget of {text!r} is more than there is: give at most 100%, or {_FORMS}")
    if fraction == 0:
        lacks = "is no memory at all" if is_of_device else "leaves no room for any temporary"
        raise InputError(f"a budget of {text!r} {lacks}: give {_FORMS}")
    return Share(fraction, "device" if is_of_device else "temporaries")


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise InputError(f"cannot read the budget {text!r}: give {_FORMS}")
    number, prefix, binary, _ = match.groups()
    exponent = _PREFIXES.index(prefix.lower()) + 1 if prefix else 0
    return int(Fraction(number.replace("_", "")) * (1024 if binary else 1000) ** exponent)


def format_bytes(nbytes: int) -> str:
    """Bytes in binary units to three digits: "1.5 GiB", "512 MiB", "17 B", "-64 KiB"."""
    return _scaled(nbytes, 1024, _BYTES)


def format_flops(flops: float) -> str:
    """Floating-point operations to three digits: "1.1 TFLOP"."""
    return _scaled(flops, 1000, _FLOPS)


def format_seconds(seconds: float) -> str:
    """Seconds to three digits: "1.5 s", "20 ms", "-310 µs", "0 s"."""
    scale, unit = next(((s, u) for s, u in _SECONDS if abs(seconds) >= 0.9995 * s), _SECONDS[-1])
    return f"{_digits(seconds / scale)} {unit}" if round(seconds / scale, 2) else "0 s"


def byte_unit(nbytes: int) -> tuple[int, str]:
    """The binary unit to give a size in, in bytes, and its name."""
    power = _power(nbytes, 1024, _BYTES)
    return 1024**power, _BYTES[power]


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    size, power = abs(number), _power(number, base, units)
    text = _digits(size / base**power) if power else f"{size:.0f}"
    return f"{'-' if number < 0 else ''}{text} {units[power]}"


def _power(number: float, base: int, units: Sequence[str]) -> int:
    # Rounding must not print "1024 MiB" for a byte less than a GiB.
    return next((p for p in range(len(units)) if abs(number) < (base - 0.5) * base**p), len(units) - 1)


def _digits(number: float) -> str:
    """A number to three digits, without zeros at the end."""
    size = abs(number)
    text = f"{number:.{0 if size >= 99.95 else 1 if size >= 9.995 else 2}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
