"""narrow: what is only sliced afterwards is computed for the slice alone.

Before:
    %l = stablehlo.dot_general %h, %w : tensor<512x50000>
    %y = stablehlo.slice %l [511:512, 0:50000]
After:
    %a = stablehlo.slice %h [511:512, 0:64]
    %y = stablehlo.dot_general %a, %w : tensor<1x50000>

A slice along one dimension is a chunk of it, so the rules of the split say how it passes an op (`rules`): the op runs
on the operands' chunks. Through a concatenation and a padding it goes into the one part that holds it. It goes up as
long as nobody else needs the values, or they are made from nothing. One dimension at a time.

Refuses dimensions that an op needs whole and values that others need, too. Where there are elementwise ops and moves
alone nothing is to be done: the compilers fuse them with the slice.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from stablehlo_mem.cost import op_flops
from stablehlo_mem.ir import build
from stablehlo_mem.ir.bindings import ir, stablehlo
from stablehlo_mem.ir.graph import Graph, Op
from stablehlo_mem.op_classes import FUSIBLE, Class, classify, integers
from stablehlo_mem.rewriting import Kernel, Match, RewritingPass, needed_only_by
from stablehlo_mem.rules import ROWS, rule_of
from stablehlo_mem.rules.row import Chunk, Site
from stablehlo_mem.rules.rule import Blocked, Node, place

_SHARE = 0.75
"""A slice of more than this is not worth another form."""
_DYNAMIC = -1
_STARTS = frozenset({"i32", "i64"})
_PADDING = ("edge_padding_low", "edge_padding_high", "interior_padding")


@dataclasses.dataclass(frozen=True)
class _Window:
    """A slice of a value: `size` of the `n` equal parts of a dimension, from part `start`, `_DYNAMIC` if not known."""

    dimension: int
    n: int
    start: int
    size: int


@dataclasses.dataclass(frozen=True)
class _Narrowed:
    """An op that is computed for a window of its results.

    Attributes:
        windows: for each operand the window it is needed in, None: whole.
        node: how the op runs on them; None: its result is the window of one operand, `part`.
    """

    op: int
    window: _Window
    windows: tuple[_Window | None, ...]
    node: Node | None
    part: int = 0


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The slice's own window of its operand, and the narrowed ops, in program order."""

    window: _Window
    narrowed: tuple[_Narrowed, ...]


class Narrow(RewritingPass):
    """The pass: moves slices up."""

    name = "narrow"
    roots = frozenset({"stablehlo.slice", "stablehlo.dynamic_slice"})

    def match(self, graph: Graph, root: int, *, bytes_first: bool) -> Match | Blocked | None:
        """The match at a slice of something that a kernel of its own makes."""
        op = graph.ops[root]
        plans = (_plan(graph, op, window) for window in _windows(graph, op))
        plan = next((p for p in plans if any(_is_kernel(graph, n) for n in p.narrowed)), None)
        if plan is None:
            return _refusal(graph, op)
        kernels = [n for n in plan.narrowed if _is_kernel(graph, n)]
        value = graph.values[op.operands[0]]
        return Match(
            root=root,
            removed=needed_only_by(graph, root, _leaves(plan, graph)),
            new_bytes=sum(_part(graph, v, n.window) for n in kernels[:-1] for v in graph.ops[n.op].results),
            kernels=tuple(_kernel(graph, n) for n in plan.narrowed),
            numerics="exact",
            what=f"compute {plan.window.size} of {plan.window.n} along dimension {plan.window.dimension} "
            f"of {value}",
            detail=plan,
        )

    def emit(self, graph: Graph, match: Match) -> Sequence[Any]:
        """The narrowed ops, and what the slice still takes along its other dimensions."""
        return [_Emission(graph, graph.ops[match.root], match.detail).run()]


def _windows(graph: Graph, op: Op) -> Iterator[_Window]:
    """The windows of a slice, the ones that take the least first."""
    shape, result = graph.values[op.operands[0]].shape, graph.values[op.results[0]].shape
    found: list[_Window] = []
    for d, n in enumerate(shape):
        if op.name == "stablehlo.dynamic_slice":
            if graph.values[op.operands[1 + d]].dtype in _STARTS:
                found.append(_Window(d, n, _DYNAMIC, result[d]))
        elif result[d]:
            start, stride = (integers(graph, op, name)[d] for name in ("start_indices", "strides"))
            found.append(_Window(d, n, start, (result[d] - 1) * stride + 1))
    found = [w for w in found if 0 < w.size <= _SHARE * w.n]
    yield from sorted(found, key=lambda w: w.size / w.n)


def _plan(graph: Graph, root: Op, window: _Window) -> _Plan:
    """The ops that can be narrowed to a window of the root's operand: all whose users are."""
    demands: dict[int, set[_Window | None]] = {}
    done = {root.index}
    narrowed: list[_Narrowed] = []
    later: list[int] = []

    def demand(value: int, needed: _Window | None) -> None:
        producer = graph.values[value].producer
        if value not in demands and producer >= 0:
            heapq.heappush(later, -producer)
        demands.setdefault(value, set()).add(needed)

    demand(root.operands[0], window)
    while later:
        op = graph.ops[-heapq.heappop(later)]
        one = _narrow(graph, op, {w for v in op.results for w in demands.get(v, ())}, done)
        if one is not None and op.index not in done:
            narrowed.append(one)
            done.add(op.index)
            for value, needed in zip(op.inputs, one.windows, strict=True):
                if one.node is not None or needed is not None:
                    demand(value, needed)
    return _Plan(window, tuple(reversed(narrowed)))


def _narrow(graph: Graph, op: Op, wanted: set[_Window | None], done: set[int]) -> _Narrowed | None:
    """An op narrowed to the one window that all its users want, None if it cannot be or they want others."""
    if len(wanted) != 1 or op.name == "stablehlo.optimization_barrier":
        return None
    (window,) = wanted
    is_free = op.name in ROWS and ROWS[op.name].free and not any(graph.values[v].shape for v in op.operands)
    used_elsewhere = any(user not in done for v in op.results for user in graph.users[v])
    if window is None or (used_elsewhere and not is_free):
        return None
    if op.name in ("stablehlo.concatenate", "stablehlo.pad"):
        inside = _inside(graph, op, window)
        if inside is not None:
            return inside
    return _by_rule(graph, op, window)


def _by_rule(graph: Graph, op: Op, window: _Window) -> _Narrowed | None:
    """An op on chunks of its operands, as its factor rule says."""
    rule = rule_of(graph, op.index)
    if rule is None:
        return None
    node = place(rule, op.index, rule.results[0], window.dimension, window.n)
    if isinstance(node, Blocked) and node.coarser_n:
        coarser = _coarser(window, node.coarser_n)
        node = place(rule, op.index, rule.results[0], window.dimension, node.coarser_n) if coarser else node
        window = coarser or window
    if isinstance(node, Blocked) or node.reducing or set(node.result_dims) != {window.dimension}:
        return None
    windows = tuple(None if d is None else dataclasses.replace(window, dimension=d) for d in node.operand_dims)
    return _Narrowed(op.index, window, windows, node)


def _refusal(graph: Graph, root: Op) -> Blocked | None:
    """Why what a slice takes from is made whole, None if no kernel makes it or nearly all is taken."""
    op = graph.producer(root.operands[0])
    window = next(_windows(graph, root), None)
    if op is None or window is None or not _makes_whole(graph, op):
        return None
    if any(user != root.index for v in op.results for user in graph.users[v]):
        return Blocked("used-whole", "what is sliced is used by others too")
    rule = rule_of(graph, op.index)
    if rule is None:
        return Blocked("no-rule", f"{op.name} is not known to work on parts")
    node = place(rule, op.index, rule.results[0], window.dimension, window.n)
    return node if isinstance(node, Blocked) else None


def _coarser(window: _Window, n: int) -> _Window | None:
    """A window in `n` parts, None if it does not begin and end with whole ones."""
    ratio, rest = divmod(window.n, n)
    if rest or window.start == _DYNAMIC or window.start % ratio or window.size % ratio:
        return None
    return _Window(window.dimension, n, window.start // ratio, window.size // ratio)


def _inside(graph: Graph, op: Op, window: _Window) -> _Narrowed | None:
    """A window that lies within one part of a concatenation, or beside the padding, as that part's."""
    if window.start == _DYNAMIC:
        return None
    inner = graph.values[op.results[0]].shape[window.dimension] // window.n
    start, size = window.start * inner, window.size * inner
    for i, (at, length) in enumerate(_parts(graph, op, window.dimension)):
        if at <= start and start + size <= at + length:
            part = _Window(window.dimension, length, start - at, size)
            windows = tuple(part if i == j else None for j in range(len(op.operands)))
            return _Narrowed(op.index, window, windows, None, i)
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


def _leaves(plan: _Plan, graph: Graph) -> set[int]:
    """The values that narrowed ops read and that are not narrowed."""
    narrowed = {n.op for n in plan.narrowed}
    reads = {v for n in plan.narrowed for v in _read(graph, n)}
    return {v for v in reads if graph.values[v].producer not in narrowed}


def _read(graph: Graph, one: _Narrowed) -> tuple[int, ...]:
    op = graph.ops[one.op]
    return op.inputs if one.node is not None else (op.operands[one.part],)


def _is_kernel(graph: Graph, one: _Narrowed) -> bool:
    """Whether an op is not simply fused into its slice."""
    return _makes_whole(graph, graph.ops[one.op])


def _makes_whole(graph: Graph, op: Op) -> bool:
    fused = FUSIBLE | {Class.VIEW, Class.GENERATE}
    return op.name == "stablehlo.reduce_window" or classify(graph, op) not in fused


def _part(graph: Graph, value: int, window: _Window | None) -> int:
    """Bytes of a window of a value."""
    nbytes = graph.values[value].nbytes
    return nbytes if window is None else nbytes * window.size // window.n


def _kernel(graph: Graph, one: _Narrowed) -> Kernel:
    """What a narrowed op costs; memory counts where it is a kernel of its own."""
    op = graph.ops[one.op]
    nbytes = 0
    if _is_kernel(graph, one):
        nbytes = sum(_part(graph, v, one.window) for v in op.results)
        nbytes += sum(_part(graph, v, w) for v, w in zip(op.inputs, one.windows, strict=True))
    flops = op_flops(graph, op) * one.window.size / one.window.n if one.node is not None else 0
    return Kernel(flops, nbytes, matmul=classify(graph, op) is Class.DOT)


class _Emission:
    """The new form of one slice."""

    def __init__(self, graph: Graph, root: Op, plan: _Plan):
        self.graph, self.root, self.plan = graph, root, plan
        self.narrowed: dict[int, Any] = {}
        self.slices: dict[tuple[int, _Window], Any] = {}
        self.start = self.first() if plan.window.start == _DYNAMIC else None

    def run(self) -> Any:
        for one in self.plan.narrowed:
            with self.graph.handles[one.op].location:
                self.narrow(one)
        return self.rest(self.chunk(self.root.operands[0], self.plan.window))

    def first(self) -> Any:
        """The start of a dynamic slice, clamped, as an i32."""
        window = self.plan.window
        given = self.graph.mlir_values[self.root.operands[1 + window.dimension]]
        largest = build.splat(given.type, window.n - window.size)
        clamped = stablehlo.clamp(build.zeros(given.type), given, largest)
        return build.convert(clamped, ir.IntegerType.get_signless(32))

    def narrow(self, one: _Narrowed) -> None:
        op = self.graph.ops[one.op]
        if one.node is None:
            self.narrowed[op.results[0]] = self.chunk(op.operands[one.part], one.windows[one.part])
            return
        inputs = [self.chunk(v, w) for v, w in zip(op.inputs, one.windows, strict=True)]
        operands, captures = inputs[: len(op.operands)], inputs[len(op.operands) :]
        shapes = [list(self.graph.values[v].shape) for v in op.results]
        for shape, dimension in zip(shapes, one.node.result_dims, strict=True):
            assert dimension is not None
            shape[dimension] = shape[dimension] // one.window.n * one.window.size
        start = build.i32(one.window.start) if self.start is None else self.start
        site = Site(self.graph, one.node, operands, captures, shapes, Chunk(start, one.window.size))
        self.narrowed.update(zip(op.results, ROWS[op.name].emit(site), strict=True))

    def chunk(self, value: int, window: _Window | None) -> Any:
        """A value in a window: narrowed, or a slice of the whole."""
        if value in self.narrowed:
            return self.narrowed[value]
        if window is None or window.size == window.n:
            return self.graph.mlir_values[value]
        if (value, window) not in self.slices:
            self.slices[value, window] = self.sliced(self.graph.mlir_values[value], window)
        return self.slices[value, window]

    def sliced(self, whole: Any, window: _Window) -> Any:
        shape = list(whole.type.shape)
        inner = shape[window.dimension] // window.n
        if self.start is not None:
            start = self.start if inner == 1 else stablehlo.multiply(self.start, build.i32(inner))
            return build.slice_along(whole, window.dimension, start, window.size * inner)
        starts = [0] * len(shape)
        starts[window.dimension] = window.start * inner
        shape[window.dimension] = (window.start + window.size) * inner
        return build.sliced(whole, starts, shape, [1] * len(shape))

    def rest(self, value: Any) -> Any:
        """What the slice takes of the narrowed value: all of it, but for its other dimensions and strides."""
        root, dimension = self.root, self.plan.window.dimension
        result = self.graph.mlir_values[root.results[0]].type
        if value.type.shape == result.shape:
            return value
        if self.start is not None:
            starts = [self.graph.mlir_values[v] for v in root.operands[1:]]
            starts[dimension] = build.zeros(starts[dimension].type)
            return stablehlo.dynamic_slice(value, starts, ir.DenseI64ArrayAttr.get(list(result.shape)))
        starts, limits, strides = (
            list(integers(self.graph, root, name)) for name in ("start_indices", "limit_indices", "strides")
        )
        starts[dimension], limits[dimension] = 0, value.type.shape[dimension]
        return build.sliced(value, starts, limits, strides)
