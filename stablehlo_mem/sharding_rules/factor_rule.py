"""The factor rule of an op: which dimensions of its operands and results move together.

The algebra is Shardy's (`sdy.sharding_rule`): each dimension of each operand and result is a product of
factors, major to minor. Read for time instead of devices: a factor in a result passes through, a reduction
factor accumulates, any other factor needs the whole dimension.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from stablehlo_mem.ir.bindings import RULE, sdy
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.sharding_rules.halo import Sliding, Use, Window

Dims = tuple[tuple[int, ...], ...]
"""For each dimension of a tensor its factor indices, major to minor."""

_MOST_READ = 4096
_read: dict[str, Rule] = {}
"""Rules by Shardy's text of them: equal layers have equal ones, and every copy of a module has them again."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Factors of one op.

    Attributes:
        sizes: size of each factor.
        operands, results: for each tensor, for each dimension, its factors. Captures come after the operands.
        reduction: factors summed (or otherwise reduced) over.
        apart: (factor, result) where an op with blocks has a result that does not depend on the factor.
        addends: (factor, operand) where partial results each hold a part of an operand: it counts in the first only.
        blocked: factors along which the op needs the whole dimension, each with the reason.
        slidings: factors of the results for which operands are read in windows.
        directions: (factor, direction) where chunks come in order: 1 from the first to the last, -1 back. What such a
            factor does not reduce goes on from the chunk before.
        known: how ops with this rule are split, by factor and `n`.
    """

    sizes: tuple[int, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    reduction: frozenset[int]
    blocked: tuple[tuple[int, str], ...]
    apart: tuple[tuple[int, int], ...] = ()
    addends: tuple[tuple[int, int], ...] = ()
    slidings: tuple[Sliding, ...] = ()
    directions: tuple[tuple[int, int], ...] = ()
    known: dict[tuple[int, int], SplitOp | Blocked] = dataclasses.field(
        init=False, repr=False, compare=False, default_factory=dict[Any, Any]
    )

    def reason(self, factor: int) -> str | None:
        """Why a factor cannot be split, None if it can."""
        return dict(self.blocked).get(factor)

    def block(self, factors: set[int], reason: str) -> Rule:
        """This rule with more factors blocked."""
        more = tuple((f, reason) for f in sorted(factors))
        return dataclasses.replace(self, blocked=self.blocked + more) if more else self

    def with_captures(self, ranks: tuple[int, ...]) -> Rule:
        """This rule with operands of these ranks after its own, needed whole: what the op's reducer captures."""
        return (
            dataclasses.replace(self, operands=self.operands + tuple(((),) * rank for rank in ranks)) if ranks else self
        )


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
        apart: results that are the same for every chunk.
        addends: operands that count in the first chunk only.
        windows: operands that are read in windows around the chunk, by position.
        direction: 1 if chunks come in order, -1 from the last to the first, 0 if in any.
        window: where the op runs in a window itself; None: on the chunk.
    """

    op: int
    factor: int
    n: int
    operand_dims: tuple[int | None, ...]
    result_dims: tuple[int | None, ...]
    reducing: bool
    apart: tuple[int, ...] = ()
    addends: tuple[int, ...] = ()
    windows: tuple[tuple[int, Window], ...] = ()
    direction: int = 0
    window: Window | None = None

    def __hash__(self) -> int:
        # Asked for millions of times: no tuple is made for it.
        return self.op << 8 ^ self.factor

    @property
    def partial(self) -> tuple[int, ...]:
        """The results that are partial."""
        if not self.reducing:
            return ()
        return tuple(i for i, d in enumerate(self.result_dims) if d is None and i not in self.apart)

    @property
    def cumulative(self) -> bool:
        """Whether the results go on from those of the chunk before."""
        return self.direction != 0 and not self.reducing

    @property
    def is_local(self) -> bool:
        """Whether a chunk of the results needs nothing but that chunk of the operands."""
        return not self.windows and not self.cumulative

    def of(self, op: int) -> SplitOp:
        """The same split of another op with the same rule."""
        given = self.operand_dims, self.result_dims, self.reducing, self.apart, self.addends, self.windows
        return SplitOp(op, self.factor, self.n, *given, self.direction, self.window)

    def at(self, window: Window) -> SplitOp:
        """The same op in a window."""
        return dataclasses.replace(self, window=window)

    def uses(self, inputs: tuple[int, ...]) -> tuple[Use | None, ...]:
        """How each of the op's inputs is used along the axis, None where it is whole."""
        pairs, window = zip(inputs, self.operand_dims, strict=True), self.window
        if not self.windows:
            return tuple([None if d is None else Use(v, d, window) for v, d in pairs])
        windows = dict(self.windows)
        return tuple(None if d is None else Use(v, d, windows.get(p, window)) for p, (v, d) in enumerate(pairs))


@functools.lru_cache(maxsize=_MOST_READ)
def elementwise_rule(rank: int, sizes: tuple[int, ...], operand_ranks: tuple[int, ...], results: int) -> Rule:
    """Every dimension passes through; operands of another rank (scalars) take part whole."""
    dims = tuple((d,) for d in range(rank))
    operands = tuple(dims if r == rank else ((),) * r for r in operand_ranks)
    return Rule(sizes, operands, (dims,) * results, frozenset(), ())


def shardy_rule(op: Any) -> Rule | None:
    """The rule Shardy attached to an op, None if it attached none."""
    if RULE not in op.attributes:
        return None
    text = str(op.attributes[RULE])
    if text not in _read:
        if len(_read) >= _MOST_READ:
            _read.clear()
        _read[text] = _read_rule(sdy.OpShardingRuleAttr(op.attributes[RULE]))
    return _read[text]


def _read_rule(attr: Any) -> Rule:
    blocked = [(f, "it needs the whole dimension") for f in attr.need_replication_factors]
    blocked += [(f, "it moves elements along the dimension") for f in attr.permutation_factors]
    return Rule(
        sizes=tuple(attr.factor_sizes),
        operands=tuple(_dims(m) for m in attr.operand_mappings),
        results=tuple(_dims(m) for m in attr.result_mappings),
        reduction=frozenset(attr.reduction_factors),
        blocked=tuple(blocked),
    )


def _dims(mapping: Any) -> Dims:
    dims = sdy.TensorMappingAttr(mapping).dim_mappings
    return tuple(tuple(sdy.DimMappingAttr(d).factor_indices) for d in dims)


def place(rule: Rule, op: int, dims: Dims, dimension: int, n: int) -> SplitOp | Blocked:
    """Splits an op along the factor that is major-most in one dimension of one of its tensors.

    Args:
        dims: the factors of the tensor (an operand's or a result's).
        dimension: the tensor's dimension that is split into `n` equal parts.
    """
    factors = [f for f in dims[dimension] if rule.sizes[f] != 1]
    if not factors:
        return Blocked("unit-dimension", "the dimension does not take part in the op")
    factor = factors[0]
    sliding = next((s for s in rule.slidings if s.source == factor), None)
    if sliding is not None:
        # Chunks of the operand are those of the result: their windows begin and end elsewhere.
        if rule.sizes[factor] != sliding.stride * rule.sizes[sliding.factor]:
            return Blocked("needs-whole-dimension", "a window slides along it, and the result has not its size")
        factor = sliding.factor
    reason = rule.reason(factor)
    if reason:
        return Blocked("needs-whole-dimension", reason)
    if rule.sizes[factor] % n:
        return Blocked("finer-than-factor", "the op splits the dimension more coarsely", rule.sizes[factor])
    if (factor, n) not in rule.known:
        rule.known[factor, n] = _spread(rule, op, factor, n)
    split_op = rule.known[factor, n]
    return split_op.of(op) if isinstance(split_op, SplitOp) else split_op


def _spread(rule: Rule, op: int, factor: int, n: int) -> SplitOp | Blocked:
    operand_dims = tuple(_carrier(rule, dims, factor) for dims in rule.operands)
    result_dims = tuple(_carrier(rule, dims, factor) for dims in rule.results)
    if -1 in operand_dims or -1 in result_dims:
        return Blocked("minor-factor", "the dimension is not the outermost part of a merged one")
    reducing = factor in rule.reduction
    apart = tuple(result for f, result in rule.apart if f == factor)
    if not reducing and any(d is None and i not in apart for i, d in enumerate(result_dims)):
        return Blocked("needs-whole-dimension", "every result depends on the whole dimension")
    addends = tuple(operand for f, operand in rule.addends if f == factor)
    slidings = {s.operand: s for s in rule.slidings if s.factor == factor}
    operand_dims = tuple(slidings[p].dimension if p in slidings else d for p, d in enumerate(operand_dims))
    windows = tuple((p, s.window(rule.sizes, n)) for p, s in slidings.items())
    direction = dict(rule.directions).get(factor, 0)
    return SplitOp(op, factor, n, operand_dims, result_dims, reducing, apart, addends, windows, direction)


def _carrier(rule: Rule, dims: Dims, factor: int) -> int | None:
    """The dimension whose major-most factor is `factor`; None if it does not occur, -1 if only as a minor one."""
    found = [d for d, factors in enumerate(dims) if factor in factors]
    if not found:
        return None
    major = [f for f in dims[found[0]] if rule.sizes[f] != 1]
    return found[0] if len(found) == 1 and major[:1] == [factor] else -1
