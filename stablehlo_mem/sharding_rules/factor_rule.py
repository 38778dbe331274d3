"""Factor rules: which dimensions of an op's operands and results are split together, and the op split along one.

The algebra is Shardy's (`sdy.sharding_rule`): each dimension of each operand and result is a product of factors,
major to minor. Here the parts are steps of a loop instead of devices: a passthrough factor (in a result) is sliced
and written back, a reduction factor is accumulated, any other factor needs the whole dimension. Every module of this
folder makes `FactorRule`s; `splitting/` and the passes that slice ask `split_along` for a `SplitOp`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from stablehlo_mem.ir.bindings import RULE, sdy
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.sharding_rules.halo import Use, Window

Dims = tuple[tuple[int, ...], ...]
"""For each dimension of a tensor its factor indices, major to minor."""

UNIT_DIMENSION = Blocked("unit-dimension", "the dimension does not take part in the op")

_CACHED = 16384
"""Entries of each cache below, some times what one large program needs: about 5 MB when full."""
_rules_by_text: dict[str, FactorRule] = {}
"""Rules by Shardy's text of them, which is quick to print: equal layers, and all copies of a module, share one rule.

Not an `lru_cache` over the attribute, which would keep its context alive, nor over the text alone: Shardy's parser
refuses sizes beyond 32 bits that its attributes hold.
"""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FactorRule:
    """The factors of an op. Equal ops share one rule (`shardy_rule`, `elementwise_rule`); it is compared by identity.

    Attributes:
        sizes: size of each factor.
        operands, results: for each tensor, for each dimension, its factors. Captures come after the operands.
        reduction: factors summed (or otherwise reduced) over.
        blocked: factors along which the op needs the whole dimension, each with the reason.
        invariant_results: (factor, result) where an op with blocks has a result that does not depend on the factor.
        init_operands: (factor, operand) that partial sums start from: it is added in the first chunk only.
        windows: (factor, source, window): the results' factor is split, and operands with the source factor are read
            in windows that slide along it. The window is that of one element of the factor.
        directions: (factor, direction) where chunks must run in order: 1 from the first to the last, -1 back. If it
            is no reduction factor, the op is cumulative along it.
    """

    sizes: tuple[int, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    reduction: frozenset[int] = frozenset()
    blocked: tuple[tuple[int, str], ...] = ()
    invariant_results: tuple[tuple[int, int], ...] = ()
    init_operands: tuple[tuple[int, int], ...] = ()
    windows: tuple[tuple[int, int, Window], ...] = ()
    directions: tuple[tuple[int, int], ...] = ()

    def reason(self, factor: int) -> str | None:
        """Why a factor cannot be split, None if it can."""
        return dict(self.blocked).get(factor)

    def block(self, factors: set[int], reason: str) -> FactorRule:
        """This rule with more factors blocked."""
        more = tuple((f, reason) for f in sorted(factors))
        return dataclasses.replace(self, blocked=self.blocked + more) if more else self


@dataclasses.dataclass(frozen=True, slots=True)
class SplitOp:
    """An op split along one of its factors into `n` parts.

    Attributes:
        op: index of the op in its graph.
        factor: the factor split.
        n: elements of the axis; each stands for `size // n` consecutive indices of the factor.
        operand_dims, result_dims: for each tensor the dimension that carries the axis, None if it is whole. Captures
            come after the operands.
        reducing: some results are partial and must be combined over the chunks.
        invariant_results: results that are the same for every chunk.
        init_operands: operands that are added in the first chunk only.
        windows: operands that are read in windows around the chunk, by position.
        direction: 1 if chunks come in order, -1 from the last to the first, 0 if in any.
        window: where the op runs in a window itself; None: on the chunk.
        parts: of the axis, see `op_rule.Chunk`.
    """

    op: int
    factor: int
    n: int
    operand_dims: tuple[int | None, ...]
    result_dims: tuple[int | None, ...]
    reducing: bool
    invariant_results: tuple[int, ...] = ()
    init_operands: tuple[int, ...] = ()
    windows: tuple[tuple[int, Window], ...] = ()
    direction: int = 0
    window: Window | None = None
    parts: int = 1

    def __hash__(self) -> int:
        # Called millions of times: hashing all fields would show in planning time.
        return self.op << 8 ^ self.factor

    @property
    def partial(self) -> tuple[int, ...]:
        """The results that are partial."""
        if not self.reducing:
            return ()
        return tuple(i for i, d in enumerate(self.result_dims) if d is None and i not in self.invariant_results)

    @property
    def cumulative(self) -> bool:
        """Whether the results continue those of the chunk before."""
        return self.direction != 0 and not self.reducing

    @property
    def is_local(self) -> bool:
        """Whether a chunk of the results needs nothing but that chunk of the operands."""
        return not self.windows and not self.cumulative

    def of(self, op: int) -> SplitOp:
        """The same split of another op with the same rule."""
        dims = self.operand_dims, self.result_dims
        rest = self.reducing, self.invariant_results, self.init_operands, self.windows, self.direction, self.window
        rest = *rest, self.parts
        return SplitOp(op, self.factor, self.n, *dims, *rest)

    def at(self, window: Window) -> SplitOp:
        """The same op in a window."""
        return dataclasses.replace(self, window=window)

    def uses(self, inputs: tuple[int, ...]) -> tuple[Use | None, ...]:
        """How each of the op's inputs is read along the axis, None where it is whole."""
        pairs, window = zip(inputs, self.operand_dims, strict=True), self.window
        if not self.windows:
            return tuple([None if d is None else Use(v, d, window) for v, d in pairs])
        windows = dict(self.windows)
        return tuple(None if d is None else Use(v, d, windows.get(p, window)) for p, (v, d) in enumerate(pairs))


@functools.lru_cache(maxsize=_CACHED)
def elementwise_rule(sizes: tuple[int, ...], operand_ranks: tuple[int, ...], results: int) -> FactorRule:
    """Every dimension passes through; operands of another rank (scalars) are whole."""
    dims = tuple((d,) for d in range(len(sizes)))
    operands = tuple(dims if rank == len(sizes) else ((),) * rank for rank in operand_ranks)
    return FactorRule(sizes, operands, (dims,) * results)


def same_shape_rule(op: Any) -> FactorRule:
    """The elementwise rule of an op whose results have one shape."""
    shape = tuple(op.results[0].type.shape)
    return elementwise_rule(shape, tuple(len(v.type.shape) for v in op.operands), len(op.results))


def shardy_rule(op: Any) -> FactorRule | None:
    """The rule Shardy attached to an op, None if it attached none."""
    if RULE not in op.attributes:
        return None
    text = str(op.attributes[RULE])
    if text not in _rules_by_text:
        if len(_rules_by_text) >= _CACHED:
            _rules_by_text.clear()
        _rules_by_text[text] = _read_rule(sdy.OpShardingRuleAttr(op.attributes[RULE]))
    return _rules_by_text[text]


def refines_shardy(refine: Callable[[Any, FactorRule], FactorRule]) -> Callable[[Any], FactorRule | None]:
    """Makes a function of an op and Shardy's rule the op's rule: None where Shardy attached none."""

    @functools.wraps(refine)
    def rule_of(op: Any) -> FactorRule | None:
        rule = shardy_rule(op)
        return None if rule is None else refine(op, rule)

    return rule_of


def _read_rule(attr: Any) -> FactorRule:
    blocked = [(f, "it needs the whole dimension") for f in attr.need_replication_factors]
    blocked += [(f, "it moves elements along the dimension") for f in attr.permutation_factors]
    return FactorRule(
        sizes=tuple(attr.factor_sizes),
        operands=tuple(_dims(m) for m in attr.operand_mappings),
        results=tuple(_dims(m) for m in attr.result_mappings),
        reduction=frozenset(attr.reduction_factors),
        blocked=tuple(blocked),
    )


def _dims(mapping: Any) -> Dims:
    dims = sdy.TensorMappingAttr(mapping).dim_mappings
    return tuple(tuple(sdy.DimMappingAttr(d).factor_indices) for d in dims)


def split_along(rule: FactorRule, op: int, dims: Dims, dimension: int, n: int) -> SplitOp | Blocked:
    """Splits an op along the major factor of one dimension of one of its tensors.

    Args:
        dims: the factors of the tensor (an operand's or a result's).
        dimension: the tensor's dimension that is split into `n` equal parts.
    """
    factors = [f for f in dims[dimension] if rule.sizes[f] != 1]
    if not factors:
        return UNIT_DIMENSION
    factor = factors[0]
    for result_factor, source, window in rule.windows:
        if source == factor:
            # The operand is split as the result is; its windows begin and end elsewhere.
            if rule.sizes[source] != window.stride * rule.sizes[result_factor]:
                return Blocked("needs-whole-dimension", "windows of it are read, and the result has not its size")
            factor = result_factor
            break
    reason = rule.reason(factor)
    if reason:
        return Blocked("needs-whole-dimension", reason)
    if rule.sizes[factor] % n:
        return Blocked("finer-than-factor", "the op splits the dimension more coarsely", rule.sizes[factor])
    split_op = _split_factor(rule, factor, n)
    return split_op.of(op) if isinstance(split_op, SplitOp) else split_op


@functools.lru_cache(maxsize=_CACHED)
def _split_factor(rule: FactorRule, factor: int, n: int) -> SplitOp | Blocked:
    """Any op of a rule split along one factor: its `op` is -1."""
    operand_dims = [_carrier(rule, dims, factor) for dims in rule.operands]
    result_dims = tuple(_carrier(rule, dims, factor) for dims in rule.results)
    if -1 in operand_dims or -1 in result_dims:
        return Blocked("minor-factor", "the dimension is not the outermost part of a merged one")
    reducing = factor in rule.reduction
    invariant = tuple(result for f, result in rule.invariant_results if f == factor)
    if not reducing and any(d is None and i not in invariant for i, d in enumerate(result_dims)):
        return Blocked("needs-whole-dimension", "every result depends on the whole dimension")
    init_operands = tuple(operand for f, operand in rule.init_operands if f == factor)
    windows: list[tuple[int, Window]] = []
    for result_factor, source, window in rule.windows:
        if result_factor == factor:
            for position, dims in enumerate(rule.operands):
                dimension = _carrier(rule, dims, source)
                if dimension is not None:
                    operand_dims[position] = dimension
                    windows.append((position, window.of_groups(rule.sizes[factor] // n)))
    direction = dict(rule.directions).get(factor, 0)
    dims = tuple(operand_dims), result_dims
    return SplitOp(-1, factor, n, *dims, reducing, invariant, init_operands, tuple(windows), direction)


def _carrier(rule: FactorRule, dims: Dims, factor: int) -> int | None:
    """The dimension whose major factor is `factor`; None if it does not occur, -1 if only as a minor one."""
    carriers = [d for d, factors in enumerate(dims) if factor in factors]
    if not carriers:
        return None
    major = [f for f in dims[carriers[0]] if rule.sizes[f] != 1]
    return carriers[0] if len(carriers) == 1 and major[:1] == [factor] else -1
