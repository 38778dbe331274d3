"""The reason why something cannot be done to an op: factor rules and rewriting passes return it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Blocked:
    """Why a use of an axis does not go through an op. `coarser_n`: an axis of that many elements would, 0 if none."""

    code: str
    message: str
    coarser_n: int = 0
