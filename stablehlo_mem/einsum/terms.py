"""Products: sums over index labels of products of factors.

    out[i, j] = sum over k, l of A[i, k] * B[k, l] * C[l, j]

is what a chain of matmuls computes, or a multiplication of broadcasts that is summed. See `collecting.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from stablehlo_mem.einsum.contraction_order import Labels, Network, Piece, label_mask
from stablehlo_mem.ir.graph import dtype_bytes


@dataclasses.dataclass(frozen=True)
class Factor:
    """A value that takes part in a product.

    Attributes:
        labels: a label that occurs twice takes the diagonal.
        ready: what it costs to have it: nothing, but for an addition.
        addition: the op that makes it if that is an addition nobody else needs, over which one may distribute.
        shared: the matmul that makes it, if others need it too.
    """

    value: int
    labels: Labels
    ready: Piece
    addition: int | None = None
    shared: int | None = None


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What a whole subtree is scaled with.

    Attributes:
        kind: "multiply", "divide" or "negate".
        factors: those of the subtree.
        value: holds the number in each of its elements; None for the number `count`.
    """

    kind: str
    factors: tuple[int, ...]
    value: int | None
    count: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """A product and how it is computed as written.

    Attributes:
        element: the element type of the result. Factors may be narrower floats.
        sizes: of each label.
        out: the labels of the result's dimensions.
        ops: those that were collected, views aside.
        written: the FLOPs, and the peak of the intermediates without the result.
        masked: whether zeros off a diagonal were multiplied with and are left out: 0 * inf is not 0.
        negative: whether it is to be subtracted: it stands for a term of a difference.
        has_matmul: whether there is a matmul among the ops or the terms of an addition.
        terms, shared: as `collect` was asked for them.
        like: a dot_general whose precision all others share; None if they differ or there is none.
    """

    root: int
    element: str
    sizes: tuple[int, ...]
    out: Labels
    factors: tuple[Factor, ...]
    scalings: tuple[Scaling, ...]
    ops: tuple[int, ...]
    written: Piece
    masked: bool
    negative: bool
    has_matmul: bool
    terms: Mapping[int, int]
    shared: frozenset[int]
    like: int | None

    @property
    def network(self) -> Network:
        """The product for the choice of an order."""
        kept = label_mask(self.out)
        return Network([f.ready for f in self.factors], kept, self.sizes, int(dtype_bytes(self.element)))
