"""Values computed in part: which ops, upwards, can be run for a window of their results alone, and how.

A window along one dimension is a chunk of it, so the factor rules of the split say how it passes an op (`rules`): the
op runs on its operands' windows.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.sharding_rules import OP_RULES, rule_book, rule_of
from stablehlo_mem.sharding_rules.factor_rule import SplitOp, split_along
from stablehlo_mem.sharding_rules.op_rule import Chunk, EmitContext

GIVEN = -1
"""The start of a window that is given when its ops are emitted."""
_PADDING = ("edge_padding_low", "edge_padding_high", "interior_padding")


@dataclasses.dataclass(frozen=True)
class Window:
    """A slice of a value: `size` of the `n` equal parts of a dimension, from part `start`, or from the `GIVEN` one."""

    dimension: int
    n: int
    start: int
    size: int


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """An op that is computed for a window of its results.

    Attributes:
        windows: for each operand the window it is needed in, None: whole.
        node: how the op runs on them; None: its result is the window of one operand, `part`.
    """

    op: int
    window: Window
    windows: tuple[Window | None, ...]
    split_op: SplitOp | None
    part: int = 0


def narrowed(
    graph: Graph, root: int, wanted: Mapping[int, Window], enters: Callable[[Op], bool] = lambda op: True
) -> tuple[Narrowed, ...]:
    """The ops, in program order, that can be narrowed to windows of the root's operands: all whose users are.

    Args:
        enters: whether an op may be narrowed; else its results are cut.
    """
    demands: dict[int, set[Window | None]] = {}
    done = {root}
    found: list[Narrowed] = []
    later: list[int] = []

    def demand(value: int, needed: Window | None) -> None:
        data = graph.values[value]
        if value not in demands and data.is_computed:
            heapq.heappush(later, -data.producer)
        demands.setdefault(value, set()).add(needed)

    for value, window in wanted.items():
        demand(value, window)
    while later:
        op = graph.ops[-heapq.heappop(later)]
        windows = {w for v in op.results for w in demands.get(v, ())}
        one = _narrow(graph, op, windows, done) if op.index not in done and enters(op) else None
        if one is not None:
            found.append(one)
            done.add(op.index)
            for value, needed in zip(op.inputs, one.windows, strict=True):
                if one.split_op is not None or needed is not None:
                    demand(value, needed)
    return tuple(reversed(found))


def _narrow(graph: Graph, op: Op, wanted: set[Window | None], done: set[int]) -> Narrowed | None:
    """An op narrowed to the one window that all its users want, None if it cannot be or they want others."""
    if len(wanted) != 1 or op.name == "stablehlo.optimization_barrier":
        return None
    (window,) = wanted
    is_free = op.name in OP_RULES and OP_RULES[op.name].free and not any(graph.values[v].shape for v in op.operands)
    used_elsewhere = any(user not in done for v in op.results for user in graph.users[v])
    if window is None or (used_elsewhere and not is_free):
        return None
    if op.name in ("stablehlo.concatenate", "stablehlo.pad"):
        inside = _inside(graph, op, window)
        if inside is not None:
            return inside
    return _by_rule(graph, op, window)


def _by_rule(graph: Graph, op: Op, window: Window) -> Narrowed | None:
    """An op on chunks of its operands, as its factor rule says."""
    rule = rule_of(graph, op.index)
    if rule is None:
        return None
    split_op = split_along(rule, op.index, rule.results[0], window.dimension, window.n)
    if isinstance(split_op, Blocked) and split_op.coarser_n:
        coarser = _coarser(window, split_op.coarser_n)
        split_op = (
            split_along(rule, op.index, rule.results[0], window.dimension, split_op.coarser_n) if coarser else split_op
        )
        window = coarser or window
    if (
        isinstance(split_op, Blocked)
        or split_op.reducing
        or not split_op.is_local
        or set(split_op.result_dims) != {window.dimension}
    ):
        return None
    windows = tuple(None if d is None else dataclasses.replace(window, dimension=d) for d in split_op.operand_dims)
    return Narrowed(op.index, window, windows, split_op)


def _coarser(window: Window, n: int) -> Window | None:
    """A window in `n` parts, None if it does not begin and end with whole ones."""
    ratio, rest = divmod(window.n, n)
    if rest or window.start == GIVEN or window.start % ratio or window.size % ratio:
        return None
    return Window(window.dimension, n, window.start // ratio, window.size // ratio)


def _inside(graph: Graph, op: Op, window: Window) -> Narrowed | None:
    """A window that lies within one part of a concatenation, or beside the padding, as that part's."""
    if window.start == GIVEN:
        return None
    inner = graph.values[op.results[0]].shape[window.dimension] // window.n
    start, size = window.start * inner, window.size * inner
    for i, (at, length) in enumerate(_parts(graph, op, window.dimension)):
        if at <= start and start + size <= at + length:
            part = Window(window.dimension, length, start - at, size)
            windows = tuple(part if i == j else None for j in range(len(op.operands)))
            return Narrowed(op.index, window, windows, None, i)
    return None


def _parts(graph: Graph, op: Op, dimension: int) -> Iterator[tuple[int, int]]:
    """Where the operands of a concatenation or padding lie along the one dimension of its result it works on."""
    lengths = [graph.values[v].shape[dimension] for v in op.operands if graph.values[v].shape]
    if op.name == "stablehlo.concatenate":
        if ir.IntegerAttr(graph.handles[op.index].attributes["dimension"]).value == dimension:
            yield from zip(itertools.accumulate(lengths, initial=0), lengths, strict=False)
        return
    low, high, interior = (integers(graph, op, n) for n in _PADDING)
    others = (p[d] for p in (low, high, interior) for d in range(len(p)) if d != dimension)
    if not any(others) and not interior[dimension]:
        yield low[dimension], lengths[0]


def leaves(graph: Graph, ops: Sequence[Narrowed]) -> set[int]:
    """The values that narrowed ops read and that are not narrowed."""
    made = {n.op for n in ops}
    return {v for n in ops for v in _read(graph, n) if graph.values[v].producer not in made}


def _read(graph: Graph, one: Narrowed) -> tuple[int, ...]:
    op = graph.ops[one.op]
    return op.inputs if one.split_op is not None else (op.operands[one.part],)


def window_bytes(graph: Graph, value: int, window: Window | None) -> int:
    """Bytes of a window of a value."""
    nbytes = graph.values[value].nbytes
    return nbytes if window is None else nbytes * window.size // window.n


class Emission:
    """Builds narrowed ops at the insertion point.

    Args:
        start: where windows with a `GIVEN` start begin: a number, or an i32 scalar within bounds.
    """

    def __init__(self, graph: Graph, ops: Sequence[Narrowed], start: Any = None):
        self.graph, self.start = graph, start
        self.made: dict[int, Any] = {}
        self.slices: dict[tuple[int, Window], Any] = {}
        for one in ops:
            with graph.handles[one.op].location:
                self.emit(one)

    def emit(self, one: Narrowed) -> None:
        """Builds one op, after those that make its operands."""
        op = self.graph.ops[one.op]
        if one.split_op is None:
            self.made[op.results[0]] = self.chunk(op.operands[one.part], one.windows[one.part])
            return
        inputs = [self.chunk(v, w) for v, w in zip(op.inputs, one.windows, strict=True)]
        operands, captures = inputs[: len(op.operands)], inputs[len(op.operands) :]
        shapes = [list(self.graph.values[v].shape) for v in op.results]
        for shape, dimension in zip(shapes, one.split_op.result_dims, strict=True):
            assert dimension is not None
            shape[dimension] = shape[dimension] // one.window.n * one.window.size
        start = self.start_of(one.window)
        start = builders.i32(start) if isinstance(start, int) else start
        context = EmitContext(
            rule_book(self.graph), one.split_op, operands, captures, shapes, Chunk(start, one.window.size)
        )
        self.made.update(zip(op.results, OP_RULES[op.name].emit(context), strict=True))

    def start_of(self, window: Window) -> Any:
        """Where a window begins: a number or an i32."""
        return self.start if window.start == GIVEN else window.start

    def chunk(self, value: int, window: Window | None) -> Any:
        """A value in a window: narrowed, or a slice of the whole."""
        if value in self.made:
            return self.made[value]
        if window is None or window.size == window.n:
            return self.graph.mlir_values[value]
        if (value, window) not in self.slices:
            self.slices[value, window] = self.cut(value, window)
        return self.slices[value, window]

    def cut(self, value: int, window: Window) -> Any:
        """A window of a value that is there whole."""
        return cut(self.graph.mlir_values[value], window, self.start_of(window))


def cut(whole: Any, window: Window, start: Any) -> Any:
    """A window of a tensor, from part `start`: a number or an i32 scalar."""
    shape = list(whole.type.shape)
    inner = shape[window.dimension] // window.n
    if not isinstance(start, int):
        start = start if inner == 1 else stablehlo.multiply(start, builders.i32(inner))
        return builders.slice_along(whole, window.dimension, start, window.size * inner)
    starts = [0] * len(shape)
    starts[window.dimension] = start * inner
    shape[window.dimension] = (start + window.size) * inner
    return builders.sliced(whole, starts, shape, [1] * len(shape))
