"""Rows of narrow types that lie together in the memory of a TPU: it copies them to and from its host together.

Elsewhere rows may be copied one by one; that small slices are copied in groups costs nothing worth a case of its own.
"""

from __future__ import annotations

from typing import Any

from stablehlo_mem.ir.graph import dtype_bytes, tensor_type

_PACK_BYTES = 4
"""libtpu 0.0.42: "Sublane slicing size must be multiple of element packing factor", of which 32 bits hold as many."""


_TILE_ROWS = 8
"""libtpu 0.0.42: "Sublane slicing size not multiple of update chunk sublane size" ends the process where rows are
written that are neither some of a tile's eight nor whole tiles; what is read may be any rows."""


def are_read(shape: tuple[int, ...], dtype: str, dimension: int, count: int) -> bool:
    """Whether so many elements at a time along a dimension of an array can be copied from the host."""
    is_row = dimension == len(shape) - 2 and count < shape[dimension]
    return not is_row or count % _packed(dtype) == 0


def are_written(shape: tuple[int, ...], dtype: str, dimension: int, count: int) -> bool:
    """Whether so many elements at a time along a dimension of an array can be copied to the host."""
    is_row = dimension == len(shape) - 2 and count < shape[dimension]
    return are_read(shape, dtype, dimension, count) and not (is_row and count % _TILE_ROWS and _TILE_ROWS % count)


def packed_rows(mlir_type: Any) -> int:
    """How many rows of a matrix, or of each matrix of an array, lie together."""
    shape, dtype, _ = tensor_type(mlir_type)
    return _packed(dtype) if len(shape) > 1 else 1


def _packed(dtype: str) -> int:
    return max(1, int(_PACK_BYTES / dtype_bytes(dtype)))


def cuts_packed_rows(op: Any) -> bool:
    """Whether a slice, or an update, takes rows apart that lie together."""
    is_update = op.name == "stablehlo.dynamic_update_slice"
    whole, part = op.operands[0].type, (op.operands[1] if is_update else op.results[0]).type
    if len(part.shape) < 2 or part.shape[-2] == whole.shape[-2]:
        return False
    return part.shape[-2] % packed_rows(whole) != 0
