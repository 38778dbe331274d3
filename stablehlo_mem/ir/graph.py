"""The integer-indexed graph of one block: every analysis walks it instead of MLIR objects.

`build_graph` reads it once from a block; an edit of the module makes it stale.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from stablehlo_mem.errors import InputError
from stablehlo_mem.ir.analysis_cache import AnalysisCache, cached_analysis
from stablehlo_mem.ir.bindings import functions, ir, is_callback, is_public, source_line
from stablehlo_mem.ir.host_memory import is_placement, names_host_memory, values_in_host_memory
from stablehlo_mem.ir.shards import Parts, is_distributed, marked_parts, part_bytes

NARROW_FLOATS = frozenset({"bf16", "f16"})
"""Element types whose sums are made in f32."""
FLOATS = NARROW_FLOATS | {"f32", "f64"}
_NO_OP = -1
"""The producer of arguments and captures."""
_DTYPE_BITS = {"i1": 8, "index": 64}
"""Element types whose storage is not the number in their name: predicates take a byte."""


@dataclasses.dataclass(frozen=True, slots=True)
class OpId:
    """Names an op in the module of one fingerprint: its function and its place in a preorder walk of it."""

    function: str
    index: int


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """An SSA value of ranked static tensor type (anything else has `nbytes` 0 and shape ()).

    Attributes:
        producer: index of the op of its block that computes it; negative where there is none, see `is_computed`.
        result: its position among the producer's results, the block's arguments or `Graph.captured`.
        nbytes: dense size in bytes on one device, before any target's padding; 0 of a value in the host's memory.
        parts: in how many parts each dimension lies on the devices; () where every device has it whole.
        host_bytes: dense size in bytes in the host's memory; 0 of a value on the device.
    """

    index: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    producer: int
    result: int
    parts: Parts = ()
    host_bytes: int = 0

    @property
    def is_computed(self) -> bool:
        """Whether an op of its block computes it: it is no argument of the block and not captured from outside."""
        return self.producer >= 0

    def __str__(self) -> str:
        """Its type, for people: "f32[8,64]"."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An operation: `captures` are the values of this block that its regions use, `blocks` their graphs."""

    index: int
    name: str
    operands: tuple[int, ...]
    captures: tuple[int, ...]
    results: tuple[int, ...]
    blocks: tuple[Graph, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """All the values it uses: operands, then captures, which are operands by another name."""
        return (*self.operands, *self.captures) if self.captures else self.operands


class InternTable:
    """What all graphs of a program share, those of its rewritten copies included: most of their ops are equal.

    It lives as long as the last of those graphs.

    Attributes:
        types: shape, element type and bytes of each MLIR type.
        marks: the parts that each mark of `ir.shards` says.
        places_values: whether an op of one of them says in which memory a value is.
        equal_ops: the analyses that hold for all equal ops, by their structure; see `structural_equality`.
    """

    def __init__(self) -> None:
        self.types: dict[Any, tuple[tuple[int, ...], str, int]] = {}
        self.marks: dict[Any, tuple[Parts, ...]] = {}
        self.places_values = False
        self.equal_ops: defaultdict[Any, AnalysisCache] = defaultdict(AnalysisCache)


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """One block: ops in program order (the last is the terminator), values, and who uses what.

    Attributes:
        arguments: values of the block's arguments.
        captured: values defined in enclosing blocks and used here, in order of first use.
        captured_from: for each of `captured`, the parent graph's value index (() in a function body).
        users: for each value, the indices of the ops that use it as operand or capture, ascending.
        handles: the MLIR operations, parallel to `ops`. Valid until the next C++ pass or edit.
        mlir_values: the MLIR values, parallel to `values`; likewise.
        interned: what it shares with the program's other graphs.
        cache: the results of its analyses.
    """

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    arguments: tuple[int, ...]
    captured: tuple[int, ...]
    captured_from: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    handles: tuple[Any, ...] = dataclasses.field(repr=False)
    mlir_values: tuple[Any, ...] = dataclasses.field(repr=False)
    interned: InternTable = dataclasses.field(repr=False)
    cache: AnalysisCache = dataclasses.field(init=False, repr=False, default_factory=AnalysisCache)

    @property
    def returned(self) -> tuple[int, ...]:
        """The values the terminator returns."""
        return self.ops[-1].operands

    def source(self, op: int) -> str:
        """The user's source line of an op, "" where unknown."""
        return self.cache.get("source", op, lambda: source_line(self.handles[op].location))

    def producer(self, value: int) -> Op | None:
        """The op that defines a value, None for arguments and captures."""
        index = self.values[value].producer
        return self.ops[index] if index >= 0 else None

    def title(self, op: int) -> str:
        """The name of an op in reports; a composite has its own."""
        handle = self.handles[op]
        is_composite = handle.name == "stablehlo.composite"
        return (ir.StringAttr(handle.attributes["name"]).value if is_composite else handle.name).split(".")[-1]

    def under(self, value: int, is_above: Callable[[Op], bool]) -> int:
        """The value that a chain of ops was applied to, as first operand; the value itself if there are none."""
        producer = self.producer(value)
        while producer is not None and is_above(producer):
            value = producer.operands[0]
            producer = self.producer(value)
        return value


_T = TypeVar("_T", bound=Hashable)


def reachable(start: Iterable[_T], next_of: Callable[[_T], Iterable[_T]]) -> dict[_T, None]:
    """What can be reached from some nodes of any graph, themselves included, in the order of a depth-first search."""
    reached: dict[_T, None] = {}
    pending = list(start)
    seen = set(pending)
    while pending:
        node = pending.pop()
        reached[node] = None
        new = [following for following in next_of(node) if following not in seen]
        seen.update(new)
        pending += new
    return reached


def readers_through(graph: Graph, values: Iterable[int], passes: Callable[[Op], bool]) -> set[int]:
    """The ops that read some values, or what other readers for which `passes` holds make of them."""

    def made(value: int) -> list[int]:
        users = (graph.ops[user] for user in graph.users[value])
        return [result for op in users if passes(op) for result in op.results]

    return {user for value in reachable(values, made) for user in graph.users[value]}


@cached_analysis
def producers_of(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """For each op of a block the ops of the block that compute its inputs."""
    producers = [value.producer for value in graph.values]
    return tuple(tuple([producers[v] for v in op.inputs if producers[v] >= 0]) for op in graph.ops)


@cached_analysis
def effects(graph: Graph) -> frozenset[int]:
    """The ops with effects, or with such an op in their blocks.

    They are calls of Python, custom calls that declare an effect, `rng` and ops without results.
    """
    return frozenset(op.index for op in graph.ops if _has_effect(op, graph.handles[op.index]))


def _has_effect(op: Op, handle: Any) -> bool:
    if op.name == "stablehlo.custom_call":
        attributes = handle.attributes
        if is_callback(handle):
            return True  # a pure one too runs as often as it is written
        if is_placement(handle):
            return False  # it says that it has an effect so that compilers keep it
        return "has_side_effect" in attributes and ir.BoolAttr(attributes["has_side_effect"]).value
    if not op.results or op.name == "stablehlo.rng":
        return True
    return any(effects(block) - {len(block.ops) - 1} for block in op.blocks)


Path = tuple[tuple[int, int], ...]
"""From a function's block to a nested one: (op index, block index) at each level; () is the function's block."""
OpPath = tuple[Path, int]
"""An op of a module: the path of its block from the entry function's, and the op in it."""


def main_function(module: ir.Module) -> Any:
    """The public func.func `main`.

    Raises:
        InputError: there is none.
    """
    names: list[str] = []
    for function in functions(module):
        name = ir.StringAttr(function.operation.attributes["sym_name"]).value
        if name == "main" and is_public(function):
            return function
        names.append(name if is_public(function) else f"{name} (private)")
    others = f"it has {', '.join(names)}" if names else "it has no functions"
    raise InputError(f"the module has no public function main ({others}): rename its entry function to main")


def entry_graph(module: ir.Module, interned: InternTable | None = None) -> Graph:
    """The graph of the function `main`; `interned` is that of the program's earlier graphs."""
    main, interned = main_function(module), interned or InternTable()
    parts = marked_parts(main.operation) if is_distributed(module) else None
    block = main.regions[0].blocks[0]
    # A program in normal form that gets an argument on the host copies what it reads of it.
    has_placements = interned.places_values or names_host_memory(main)
    in_host_memory = values_in_host_memory(main, has_placements=has_placements)
    graph = build_graph(block, parts, interned, in_host_memory)
    if interned.places_values and not has_placements:
        in_host_memory = values_in_host_memory(main, has_placements=True)
        graph = build_graph(block, parts, interned, in_host_memory)
    return graph


def nested_graph(graph: Graph, path: Path) -> Graph:
    """The graph of the block a path leads to."""
    for op, block in path:
        graph = graph.ops[op].blocks[block]
    return graph


def blocks_of(graph: Graph) -> Iterator[Graph]:
    """A block and those of its ops, each followed by those in it."""
    yield graph
    for op in graph.ops:
        for block in op.blocks:
            yield from blocks_of(block)


def op_id(main: Graph, path: Path, op: int) -> OpId:
    """The name of an op of the block that a path from `main` leads to."""
    index = 0
    graph = main
    for owner, block in path:
        index += _starts(graph)[owner] + 1 + sum(len_ops(b) for b in graph.ops[owner].blocks[:block])
        graph = graph.ops[owner].blocks[block]
    return OpId("main", index + _starts(graph)[op])


@cached_analysis
def _starts(graph: Graph) -> tuple[int, ...]:
    """For each op of a block its place in a preorder walk; one more for the end."""
    sizes = (1 + sum(len_ops(block) for block in op.blocks) for op in graph.ops)
    return tuple(itertools.accumulate(sizes, initial=0))


def len_ops(graph: Graph) -> int:
    """Number of ops of a block, nested ones included."""
    return _starts(graph)[-1]


def build_graph(
    block: ir.Block,
    parts: Sequence[Parts] | None = None,
    interned: InternTable | None = None,
    in_host_memory: AbstractSet[Any] = frozenset(),
) -> Graph:
    """The graph of a block and, recursively, of the blocks in its ops' regions. Linear in their size.

    Args:
        block: a function's.
        parts: those of its arguments in a distributed program, () where none is; None in any other program.
        interned: that of the program's earlier graphs.
        in_host_memory: the values in the host's memory.
    """
    graph, _ = _build(block, interned or InternTable(), parts, in_host_memory)
    return graph


@functools.lru_cache(maxsize=65536)
def dtype_bytes(dtype: str) -> float:
    """Bytes of one element: "f32" → 4, "i1" → 1, "complex<f64>" → 16, "i4" → 0.5, "f8E4M3FN" → 1."""
    if dtype.startswith("complex<"):
        return 2 * dtype_bytes(dtype[8:-1])
    if dtype in _DTYPE_BITS:
        return _DTYPE_BITS[dtype] / 8
    bits = re.match(r"[a-z]*(\d+)", dtype)
    return int(bits[1]) / 8 if bits else 8


def tensor_type(mlir_type: Any) -> tuple[tuple[int, ...], str, int]:
    """(shape, element type, bytes) of a type; ((), "", 0) if it is no ranked static tensor."""
    if not isinstance(mlir_type, ir.RankedTensorType) or not mlir_type.has_static_shape:
        return (), "", 0
    shape, dtype = tuple(mlir_type.shape), str(mlir_type.element_type)
    return shape, dtype, math.ceil(math.prod(shape) * dtype_bytes(dtype))


class _Builder:
    """The graph of one block in the making; `outer` is that of the block around it."""

    def __init__(self, interned: InternTable, outer: _Builder | None, in_host_memory: AbstractSet[Any]) -> None:
        self.outer, self.types, self.in_host_memory = outer, interned.types, in_host_memory
        self.values: list[Value] = []
        self.mlir_values: list[Any] = []
        self.ids: dict[Any, int] = {}
        self.captured: list[int] = []
        self.captured_mlir: list[Any] = []
        self.users: list[list[int]] = []

    def define(self, mlir_value: Any, producer: int, result: int, parts: Parts = ()) -> int:
        index = len(self.values)
        mlir_type = mlir_value.type
        known = self.types.get(mlir_type)
        if known is None:
            known = self.types[mlir_type] = tensor_type(mlir_type)
        shape, dtype, nbytes = known
        if parts:
            nbytes = part_bytes(shape, nbytes, parts)
        is_on_host = self.in_host_memory and mlir_value in self.in_host_memory
        on_device, on_host = (0, nbytes) if is_on_host else (nbytes, 0)
        self.values.append(Value(index, shape, dtype, on_device, producer, result, parts, on_host))
        self.mlir_values.append(mlir_value)
        self.users.append([])
        self.ids[mlir_value] = index
        return index

    def use(self, mlir_value: Any, op: int) -> int:
        index = self.ids.get(mlir_value)
        if index is None:
            index = self.define(mlir_value, _NO_OP, len(self.captured), self.parts_of(mlir_value))
            self.captured.append(index)
            self.captured_mlir.append(mlir_value)
        users = self.users[index]
        if not users or users[-1] != op:
            users.append(op)
        return index

    def parts_of(self, mlir_value: Any) -> Parts:
        """The parts of a value of this block or one around it."""
        index = self.ids.get(mlir_value)
        if index is not None:
            return self.values[index].parts
        return self.outer.parts_of(mlir_value) if self.outer is not None else ()


def _build(
    block: ir.Block,
    interned: InternTable,
    argument_parts: Sequence[Parts] | None,
    in_host_memory: AbstractSet[Any],
    outer: _Builder | None = None,
) -> tuple[Graph, list[Any]]:
    builder = _Builder(interned, outer, in_host_memory)
    arguments = tuple(
        builder.define(argument, _NO_OP, i, argument_parts[i] if argument_parts else ())
        for i, argument in enumerate(block.arguments)
    )
    ops: list[Op] = []
    handles: list[Any] = []
    for handle in block.operations:
        op = handle.operation
        name, index = op.name, len(ops)
        operands = tuple([builder.use(v, index) for v in op.operands])
        parts = None if argument_parts is None else marked_parts(op, interned.marks)
        blocks: list[Graph] = []
        captures: dict[int, None] = {}
        for region in op.regions:
            for inner in region.blocks:
                of_arguments = () if parts and name != "stablehlo.while" else parts
                nested, outer_values = _build(inner, interned, of_arguments, in_host_memory, builder)
                indices = tuple(builder.use(v, index) for v in outer_values)
                captures.update(dict.fromkeys(indices))
                blocks.append(dataclasses.replace(nested, captured_from=indices))
        results = tuple([builder.define(r, index, i, parts[i] if parts else ()) for i, r in enumerate(op.results)])
        interned.places_values |= name == "stablehlo.custom_call" and is_placement(op)
        ops.append(Op(index, name, operands, tuple(captures), results, tuple(blocks)))
        handles.append(op)
    graph = Graph(
        ops=tuple(ops),
        values=tuple(builder.values),
        arguments=arguments,
        captured=tuple(builder.captured),
        captured_from=(),
        users=tuple(map(tuple, builder.users)),
        handles=tuple(handles),
        mlir_values=tuple(builder.mlir_values),
        interned=interned,
    )
    return graph, builder.captured_mlir
