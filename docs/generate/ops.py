"""The table of ops: how each is split, asked of the rules with one small example an op.

An op without an entry in `OP_RULES` is never split; the reasons are written here.
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterator

from stablehlo_mem.frontend.canonicalize import attach_rules
from stablehlo_mem.ir.bindings import chlo, ir, parse_module, stablehlo
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import Graph, entry_graph
from stablehlo_mem.sharding_rules import OP_RULES, rule_book, rule_of
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, SplitOp
from stablehlo_mem.sharding_rules.op_rule import Side

_BLOCK = re.compile(r"(<!-- ops table -->\n).*?(<!-- end of ops table -->)", re.DOTALL)
_EXAMPLES = pathlib.Path(__file__).with_name("ops.mlir")
_FUNCTION = re.compile(r"^func\.func @([\w.]+)\((.*?^)}", re.DOTALL | re.MULTILINE)
_POSITION = re.compile(r" -:\d+")  # of an op in the example's text
_TYPES = ("f32", "i32", "i1", "complex<f32>")

_WITHOUT_RULE = {
    "a side effect: the program is refused": "infeed outfeed recv send",
    "it talks to other devices, or asks which one it runs on": "async_done async_start cross-replica-sum partition_id "
    "replica_id",
    "its size is known at run time only: the program is refused where it is": "dynamic_broadcast_in_dim dynamic_conv "
    "dynamic_gather dynamic_iota dynamic_pad dynamic_reshape get_dimension_size real_dynamic_slice set_dimension_size",
    "no tensors": "after_all create_token get_tuple_element tuple",
    "the end of a block": "return",
    "opened before anything is planned; a pass makes them of associative scans, to split along those": "composite",
    "one stream of random bits; JAX's own threefry is elementwise code, and is split": "rng rng_bit_generator",
    "no rule yet": "map uniform_dequantize uniform_quantize chlo.mulhi chlo.scan",
    "JAX does not emit it": "batch_norm_grad batch_norm_inference batch_norm_training broadcast dot einsum "
    "torch_index_select unary_einsum chlo.constant chlo.constant_like",
}
REASONS = {
    name if "." in name else f"stablehlo.{name}": why for why, names in _WITHOUT_RULE.items() for name in names.split()
}
"""Why an op has no rule, or none for programs as they come."""


def fill(text: str) -> str:
    """A page with the table."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{table()}\n{match[2]}", text) if _BLOCK.search(text) else text


def registered() -> list[str]:
    """Every op of StableHLO, and of CHLO but for the forms with implicit broadcasts, which JAX never uses."""
    names = {
        value.OPERATION_NAME
        for dialect in (stablehlo, chlo)
        for value in vars(dialect).values()
        if isinstance(value, type) and hasattr(value, "OPERATION_NAME")
    }
    return sorted((n for n in names if not n.startswith(("chlo.broadcast_", "chlo._"))), key=_order)


def table() -> str:
    """One line an example, one for every op without a rule."""
    explicit = dict(_explicit())
    lines = [
        "| op | dimensions of the example | split along | summed or combined over | needed whole |\n",
        "| --- | --- | --- | --- | --- |\n",
    ]
    for name in sorted({*registered(), *OP_RULES}, key=_order):
        if name not in OP_RULES or name in REASONS:
            lines.append(f"| {name} | | | | all: {REASONS.get(name, 'no rule yet')} |\n")
            continue
        cases = {k: v for k, v in explicit.items() if k == name or k.startswith(f"{name}.")} or {
            name: elementwise(name)
        }
        lines += [f"| {_titled(name, case)} | {_Answers(name, text).cells()} |\n" for case, text in cases.items()]
    return "".join(lines)


def _order(name: str) -> tuple[bool, str]:
    return name.startswith("chlo."), name


def _titled(name: str, case: str) -> str:
    variant = case[len(name) + 1 :].replace("_", " ")
    return f"{name} ({variant})" if variant else name


def _explicit() -> Iterator[tuple[str, str]]:
    for match in _FUNCTION.finditer(_EXAMPLES.read_text()):
        yield match[1], f"func.func public @main({match[2]}}}"


def elementwise(name: str) -> str:
    """An example of an op without attributes, with the first operand and result types that it takes.

    Raises:
        ValueError: it takes none: it wants an example in ops.mlir.
    """
    for count, given, made in itertools.product((1, 2, 3), _TYPES, _TYPES):
        operand, result = f"tensor<2x3x{given}>", f"tensor<2x3x{made}>"
        arguments = ", ".join(f"%a{i}: {operand}" for i in range(count))
        names = ", ".join(f"%a{i}" for i in range(count))
        signature = f"({', '.join([operand] * count)}) -> {result}"
        body = f'%0 = "{name}"({names}) : {signature} return %0 : {result}'
        text = f"func.func public @main({arguments}) -> {result} {{ {body} }}"
        try:
            parse_module(text)
        except ir.MLIRError:
            continue
        return text
    raise ValueError(f"{name}: write an example of it in ops.mlir")


@dataclasses.dataclass(frozen=True)
class _Dimension:
    """A dimension of a tensor of the example."""

    side: Side
    position: int
    dimension: int


class _Answers:
    """The rule book's answer for every dimension of an example's operands and results."""

    def __init__(self, name: str, text: str):
        self.module = parse_module(text)  # referenced as long as its ops are in use
        attach_rules(self.module)
        self.graph: Graph = entry_graph(self.module)
        self.op = next(op for op in self.graph.ops if op.name == name)
        self.book = rule_book(self.graph)
        self.rule = rule_of(self.graph, self.op.index)
        self.letters = self._letters()

    def cells(self) -> str:
        """The last four cells of a row."""
        through: dict[str, None] = {}
        summed: dict[str, None] = {}
        whole: dict[str, list[str]] = {}
        for dimension, letters in self.letters.items():
            answer = self._ask(dimension)
            if isinstance(answer, Blocked):
                whole.setdefault(self._why(answer), []).append(letters)
            else:
                (summed if answer.reducing or answer.cumulative else through)[letters[:1]] = None
        for letters in whole.values():
            letters[:] = [n for n in dict.fromkeys(letters) if n not in through and n not in summed]
        reasons = [f"{', '.join(names)}: {why}" for why, names in whole.items() if names]
        return (
            f"`{self._signature()}` | {', '.join(through)} | {', '.join(self._exactly(summed))} | {'; '.join(reasons)}"
        )

    def _ask(self, at: _Dimension) -> SplitOp | Blocked:
        size = self._shape(at.side, at.position)[at.dimension]
        if self.rule is not None:  # a merged dimension is split as its major part
            factors = [f for f in self._dims(self.rule, at) if self.rule.sizes[f] != 1]
            size = self.rule.sizes[factors[0]] if factors else size
        return self.book.split(self.op.index, at.side, at.position, at.dimension, size)

    def _why(self, blocked: Blocked) -> str:
        return "no rule" if blocked.code == "no-rule" else _POSITION.sub("", blocked.message)

    def _exactly(self, summed: dict[str, None]) -> Iterator[str]:
        op_rule = OP_RULES[self.op.name]
        combining = op_rule.reduction or op_rule.cumulative
        regroups = combining is not None and combining.regroups(self.graph.handles[self.op.index])
        yield from (f'{name} (not with numerics="exact")' if regroups else name for name in summed)

    def _shape(self, side: Side, position: int) -> tuple[int, ...]:
        values = self.op.inputs if side == "operands" else self.op.results
        return self.graph.values[values[position]].shape

    def _dimensions(self) -> Iterator[_Dimension]:
        """All dimensions of more than one element: results last."""
        for side, values in (("operands", self.op.inputs), ("results", self.op.results)):
            for position, value in enumerate(values):
                for d, size in enumerate(self.graph.values[value].shape):
                    if size > 1:
                        yield _Dimension(side, position, d)

    def _dims(self, rule: FactorRule, at: _Dimension) -> tuple[int, ...]:
        return (rule.operands if at.side == "operands" else rule.results)[at.position][at.dimension]

    def _letters(self) -> dict[_Dimension, str]:
        """A letter a factor, major to minor; without factors, one for all dimensions that move together."""
        names: dict[object, str] = {}

        def named(key: object) -> str:
            return names.setdefault(key, chr(ord("a") + len(names)))

        letters: dict[_Dimension, str] = {}
        for at in self._dimensions():
            factors = [f for f in self._dims(self.rule, at) if self.rule.sizes[f] != 1] if self.rule else []
            letters[at] = "".join(named(f) for f in factors) if factors else named(self._together(at))
        return letters

    def _together(self, at: _Dimension) -> object:
        split_op = self._ask(at)
        return (split_op.operand_dims, split_op.result_dims) if isinstance(split_op, SplitOp) else at

    def _signature(self) -> str:
        def listed(side: Side, values: tuple[int, ...]) -> str:
            return ", ".join(self._tensor(side, position) for position, _ in enumerate(values))

        return f"{listed('operands', self.op.inputs)} → {listed('results', self.op.results)}".strip()

    def _tensor(self, side: Side, position: int) -> str:
        shape = self._shape(side, position)
        named = [self.letters.get(_Dimension(side, position, d), "1") for d in range(len(shape))]
        return f"[{', '.join(named)}]"
