"""What compilers take out of loops: what no iteration changes, computed or copied once before the first."""

from __future__ import annotations

from stablehlo_mem.analysis.fusion_classes import CLASSES, FUSIBLE, Class, classify, data_source, is_nested
from stablehlo_mem.analysis.kernel_scratch import transposed_operands
from stablehlo_mem.ir.graph import Graph, Op, cached_analysis, effects
from stablehlo_mem.ir.loop_carries import invariant_carries
from stablehlo_mem.targets.chips import Chip

_STAYING = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "constant", "iota", "reverse", "slice", "transpose")
)
"""XLA hoists these, and views, only together with others that need them (while_loop_invariant_code_motion.cc)."""


@cached_analysis
def invariant_ops(body: Graph) -> frozenset[int]:
    """The ops of a loop's body that compute the same in every iteration; none of any other block."""
    same = constants(body) if len(body.arguments) == len(body.returned) else set[int]()
    if not same:
        return frozenset()
    found: set[int] = set()
    for op in body.ops[:-1]:
        if op.index not in effects(body) and same.issuperset((*op.operands, *op.captures)):
            found.add(op.index)
            same.update(op.results)
    return frozenset(found)


@cached_analysis
def hoisted(body: Graph, chip: Chip) -> frozenset[int]:
    """The values of a loop's body that XLA:CPU computes before the loop and keeps as long as it runs.

    Scalars are left out. The other compilers keep fewer, which their reports do not tell from what else they keep.
    """
    if chip.kind != "cpu":
        return frozenset()
    taken = {op for op in invariant_ops(body) if not _stays(body, body.ops[op])}
    values = (v for op in sorted(taken) for v in body.ops[op].results)
    return frozenset(v for v in values if body.values[v].shape and not taken.issuperset(body.users[v]))


def _stays(body: Graph, op: Op) -> bool:
    return op.name in _STAYING or CLASSES.get(op.name) is Class.VIEW


def copied_bytes(graph: Graph, chip: Chip, op: Op) -> list[int]:
    """Bytes of each copy made, before a loop, of the loop's constants that its dots read.

    A TPU copies float32 to bfloat16. XLA:GPU brings batch dimensions to the front; what is not an argument is computed
    that way. What an outer loop does not change either is copied before that one.
    """
    values = [graph.values[v] for v in copied_before(graph, chip, op)]
    return [v.nbytes // 2 if chip.kind == "tpu" else v.nbytes for v in values]


def copied_before(graph: Graph, chip: Chip, op: Op) -> list[int]:
    """The values of which a target makes a copy before a loop: see `copied_bytes`."""
    if chip.kind == "cpu" or op.name != "stablehlo.while":
        return []
    read = sorted(_before(graph, op, _read_by_dots(op.blocks[1], chip)) - constants(graph))
    if chip.kind == "cuda":
        return [v for v in read if graph.values[v].producer < 0]
    return [v for v in read if graph.values[v].dtype == "f32"]


def _read_by_dots(block: Graph, chip: Chip) -> set[int]:
    """What the dots of a block and of the blocks in it read and a target copies, traced back to where it comes from."""
    found: set[int] = set()
    for op in block.ops:
        if classify(block, op) is Class.DOT and chip.kind == "tpu":
            found.update(data_source(block, v) for v in op.operands)
        elif classify(block, op) is Class.DOT:
            found.update(*(_sources(block, v) for v in transposed_operands(block, op)))
        elif op.name == "stablehlo.while":
            found |= _before(block, op, _read_by_dots(op.blocks[1], chip))
    return found


def _sources(graph: Graph, value: int) -> set[int]:
    """The values that a chain of fusible ops starts from."""
    found, stack = {value}, [value]
    while stack:
        producer = graph.producer(stack.pop())
        if producer is not None and classify(graph, producer) in FUSIBLE | {Class.VIEW}:
            stack.extend(v for v in producer.operands if v not in found)
            found.update(producer.operands)
    return found


def _before(graph: Graph, op: Op, values: set[int]) -> set[int]:
    """The values outside a loop that these values of its body are, as far as the body does not change them."""
    outer = unchanged(op)
    return {data_source(graph, outer[v]) for v in values & outer.keys()}


def unchanged(loop: Op) -> dict[int, int]:
    """The values of a loop's body that it does not change, each with the value outside that it is."""
    body = loop.blocks[1]
    outer = dict(zip(body.captured, body.captured_from, strict=True))
    same = zip(body.arguments, loop.operands, invariant_carries(loop), strict=True)
    return outer | {argument: operand for argument, operand, kept in same if kept}


def constants(graph: Graph) -> set[int]:
    """What a loop's body does not change; nothing in a function's block."""
    if not is_nested(graph):
        return set()
    return set(graph.captured) | {a for a, r in zip(graph.arguments, graph.returned, strict=False) if a == r}
