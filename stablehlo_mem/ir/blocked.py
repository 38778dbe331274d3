"""The reason why something cannot be done to an op: factor rules and rewriting passes return it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Blocked:
    """Why a use of an axis does not go through an op.

    Attributes:
        coarser_n: an axis of that many elements would, 0 if none.
        parts: an axis that is split within so many parts may, 0 if none: see `rule_book.RuleBook.within`.
    """

    code: str
    message: str
    coarser_n: int = 0
    parts: int = 0
