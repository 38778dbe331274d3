"""Windows: the elements of a dimension that a chunk reads where an op slides over it, more than it makes (a halo).

The factor rules say which operands are read in windows; `ChunkEmitter` and `splitting/` cut and count them.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """What `size` consecutive results from `start` read of a dimension of `n` elements.

    They read `(size - 1) * stride + length` elements from `start * stride - before`.

    Attributes:
        before: elements read before the first result's, the padding counted.
        length: elements read for one result.
    """

    n: int
    stride: int
    before: int
    length: int

    def reach(self, size: int) -> int:
        """The number of elements that `size` results read, the padding counted."""
        return (size - 1) * self.stride + self.length

    def size(self, size: int) -> int:
        """The number of elements that `size` results read, the padding not counted: as many for every chunk."""
        return min(self.reach(size), self.n)

    def of_groups(self, size: int) -> Window:
        """The window of groups of `size` results."""
        return Window(self.n, size * self.stride, self.before, self.reach(size))


class Use(NamedTuple):
    """A value that is read by chunk along a dimension: the chunk itself, or a window around it."""

    value: int
    dimension: int
    window: Window | None = None
