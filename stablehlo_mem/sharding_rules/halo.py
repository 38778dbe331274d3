"""Windows: what a chunk of a result reads where an op slides over a dimension, more elements than it makes.

Chunks of `size` elements from `start` read `(size - 1) * stride + length` elements from `start * stride - before`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The part of a dimension of `n` elements that a chunk of the axis reads, in elements of the axis.

    Attributes:
        before: elements read before the first of the chunk, those of the padding counted.
        length: elements read for one of the chunk.
    """

    n: int
    stride: int
    before: int
    length: int

    def reach(self, size: int) -> int:
        """Elements that a chunk reads, in the padding or not."""
        return (size - 1) * self.stride + self.length

    def size(self, size: int) -> int:
        """Elements of the dimension that are there for a chunk: as many of them for every chunk."""
        return min(self.reach(size), self.n)


class Use(NamedTuple):
    """A value and the dimension along which it is used chunk by chunk, in the chunk itself or in a window around it."""

    value: int
    dimension: int
    window: Window | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Sliding:
    """That an op reads a dimension of an operand, the `source` factor, in windows that slide along another factor.

    Attributes:
        factor: of the results.
        operand, dimension: where the source is.
        stride, before, length: the window of one element of the factor.
    """

    factor: int
    source: int
    operand: int
    dimension: int
    stride: int
    before: int
    length: int

    def window(self, sizes: tuple[int, ...], n: int) -> Window:
        """The window of one of `n` elements of an axis along the factor."""
        inner = sizes[self.factor] // n
        length = (inner - 1) * self.stride + self.length
        return Window(sizes[self.source], inner * self.stride, self.before, length)
