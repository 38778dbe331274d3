"""Where ops of a distributed program compute their results so that devices exchange little for them.

Shardy propagates shardings both ways. So an elementwise op may get the place of an op that reads its result, such as
the gradient of a weight, where none of its operands lies: devices would exchange what it computes its result from.
`Places.settled` leaves it where its largest operand lies. XLA scatters sums over devices along one dimension only: if
the result is to lie in parts of a sum along two, it sums all of it on every device, and takes slices.
`Places.scattered` is where such a sum is left before it changes one of the dimensions.

`ir.shards` asks both of a copy in which Shardy has propagated shardings.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from stablehlo_mem.ir.bindings import ir, sdy, signature_attributes

SHARDING = "sdy.sharding"
Place = tuple[tuple[str, ...], ...]
"""For each dimension the mesh axes that it is shared out over, major to minor; () if nothing is said of a value."""
_Dims = tuple[tuple[int, ...], ...]

_SUMS = frozenset({"stablehlo.dot_general", "stablehlo.convolution", "stablehlo.reduce"})
_AS_SAID = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("case", "concatenate", "convolution", "custom_call", "dot_general", "gather", "if", "iota", "pad"),
        *("reduce_window", "scatter", "sort", "while"),
    )
)
"""Ops that compute their results where Shardy says: they move something anyway, read nothing, or have blocks."""


@dataclasses.dataclass(frozen=True)
class _Rule:
    """Shardy's rule of an op: the sizes of factors, the factors of dimensions, those that pass, those summed over."""

    sizes: tuple[int, ...]
    operands: tuple[_Dims, ...]
    result: _Dims
    passing: frozenset[int]
    summed: frozenset[int]


class Places:
    """The places of the values of a module in which Shardy has propagated shardings.

    Attributes:
        meshes: the sizes of the axes of each mesh.
        axes: what each axis is by its text; `sizes`: how many devices it has.
    """

    def __init__(self, meshes: dict[str, dict[str, int]]):
        self.meshes = meshes
        self.axes: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}
        self._known: dict[Any, Any] = {}
        self._shardings: dict[Any, list[Any]] = {}
        self._places: dict[Any, Place] = {}
        self._rules: dict[Any, _Rule] = {}
        self._decided: dict[Any, Place | None] = {}

    def settled(self, op: Any, rule: Any) -> Any:
        """The sharding with which an op computes its result if Shardy says another one, None if it does not.

        Args:
            op: ops before it have been asked.
            rule: the attribute with its sharding rule, None if it has none.
        """
        if rule is None or op.name in _AS_SAID or not _is_plain(op) or _repeats(op):
            return None
        sharding = self.sharding(op.results[0])
        said, places = self.place(sharding), tuple([self.of(operand) for operand in op.operands])
        if not any(said) or all(place in (said, ()) for place in places):
            return None
        key = rule, places, said
        if key not in self._decided:
            self._decided[key] = self._settle(op, self._rule(rule), places, said)
        place = self._decided[key]
        if place is None:
            return None
        self._known[op.results[0]] = settled = self._sharding(sharding, place)
        return settled

    def scattered(self, op: Any, rule: Any) -> list[Any]:
        """The shardings that a sum over devices gets one after the other; none if it lies where it is scattered."""
        if rule is None or op.name not in _SUMS or not _is_plain(op):
            return []
        sharding = self.sharding(op.results[0])
        said, places = self.place(sharding), [self.of(operand) for operand in op.operands]
        if sum(map(bool, said)) < 2:
            return []
        summed = self._summed(self._rule(rule), places)
        along = [d for d, axes in enumerate(said) if axes and summed.issuperset(axes)]
        shape = _shape(op.results[0])
        largest = max(along, key=shape.__getitem__, default=0)
        taken = tuple([axis for d in along if d != largest for axis in said[d]])
        merged = (*said[largest], *taken)
        if not taken or shape[largest] % self._parts([merged]):
            return []
        place = tuple([merged if d == largest else () if d in along else axes for d, axes in enumerate(said)])
        return [self._sharding(sharding, place), sharding]

    def of(self, value: Any) -> Place:
        """Where a value lies."""
        return self.place(self.sharding(value))

    def sharding(self, value: Any) -> Any:
        """The sharding of a value, None if nothing is said of it."""
        if value in self._known:
            return self._known[value]
        if isinstance(value.owner, ir.Block):
            op, number = value.owner.owner.operation, value.arg_number
            if op.name == "func.func":
                pairs = zip(value.owner.arguments, signature_attributes(op, "arg_attrs"), strict=True)
                self._known.update((argument, attributes.get(SHARDING)) for argument, attributes in pairs)
                return self._known[value]
            if op.name != "stablehlo.while":
                return None
        else:
            op, number = value.owner.operation, value.result_number
            if op.name in ("sdy.sharding_constraint", "sdy.reshard"):
                return op.attributes["sharding"]
        said = op.attributes.get("out_shardings" if op.name == "sdy.manual_computation" else SHARDING)
        if said is None:
            return None
        if said not in self._shardings:  # those of a loop are asked for by each that reads one of its values
            self._shardings[said] = list(sdy.TensorShardingPerValueAttr(said).shardings)
        return self._shardings[said][number]

    def place(self, sharding: Any) -> Place:
        """What a sharding says."""
        if sharding is None:
            return ()
        if sharding not in self._places:
            mesh, dimensions = self._mesh(sharding), sdy.TensorShardingAttr(sharding).dimension_shardings
            place = []
            for refs in ([sdy.AxisRefAttr(a) for a in sdy.DimensionShardingAttr(d).axes] for d in dimensions):
                for ref in refs:
                    self.axes[str(ref)], self.sizes[str(ref)] = ref, axis_size(ref, mesh)
                place.append(tuple(map(str, refs)))
            self._places[sharding] = tuple(place)
        return self._places[sharding]

    def _mesh(self, sharding: Any) -> dict[str, int]:
        """The sizes of the axes of a sharding's mesh."""
        mesh = sdy.TensorShardingAttr(sharding).mesh_or_ref
        return self.meshes.get(mesh.value, {}) if isinstance(mesh, ir.FlatSymbolRefAttr) else mesh_sizes(mesh)

    def _sharding(self, like: Any, place: Place) -> Any:
        """The sharding that says a place, over the mesh of another one."""
        dimensions = [sdy.DimensionShardingAttr.get([self.axes[a] for a in axes], is_closed=True) for axes in place]
        return sdy.TensorShardingAttr.get(sdy.TensorShardingAttr(like).mesh_or_ref, dimensions)

    def _parts(self, place: Sequence[tuple[str, ...]]) -> int:
        """How many devices have parts of what lies in a place."""
        return math.prod(self.sizes[axis] for axes in place for axis in axes)

    def _settle(self, op: Any, rule: _Rule, places: Sequence[Place], said: Place) -> Place | None:
        """Where an op leaves its result without moving its largest operand, None if that is where Shardy says.

        What is shared out over fewer or more devices afterwards is as Shardy says: it is to be gathered, or shared out.
        """
        found: list[tuple[int, Place | None]] = []
        for operand, place, dims in zip(op.operands, places, rule.operands, strict=True):
            if any(dims) and not _is_generated(operand):
                found.append((_elements(operand) // self._parts(place), self._passed_on(rule, place, dims)))
        if not found or any(place is not None and _is_within(said, place) for _, place in found):
            return None
        _, place = max(found, key=lambda item: item[0])
        return place if place is not None and self._parts(place) == self._parts(said) else None

    def _passed_on(self, rule: _Rule, place: Place, dims: _Dims) -> Place | None:
        """Where a result lies if an operand lies in a place and nothing is moved; None if that cannot be."""
        shared: dict[int, tuple[str, ...]] = {}
        for axes, factors in zip(place, dims, strict=False):
            left = list(axes)
            for factor in factors:
                held = tuple[str, ...]()
                while left and rule.sizes[factor] % self._parts([(*held, left[0])]) == 0:
                    held = (*held, left.pop(0))
                shared[factor] = held
                if self._parts([held]) < rule.sizes[factor]:
                    break
            if left:
                return None
        shared = {factor: held for factor, held in shared.items() if held}
        if not shared.keys() <= rule.passing:
            return None
        parted = [[shared.get(factor, ()) for factor in factors] for factors in rule.result]
        for held, factors in zip(parted, rule.result, strict=True):
            # A minor factor is shared out in place only where each device has one index of the major ones.
            majors = [self._parts([axes]) == rule.sizes[f] for axes, f in zip(held, factors, strict=True)]
            if any(axes and not all(majors[:i]) for i, axes in enumerate(held)):
                return None
        return tuple([tuple([axis for axes in held for axis in axes]) for held in parted])

    def _summed(self, rule: _Rule, places: Sequence[Place]) -> set[str]:
        """The axes over which an op sums up: all operands with a factor that is summed over share it over these."""
        axes: dict[int, list[set[str]]] = {}
        for place, dims in zip(places, rule.operands, strict=True):
            for d, factors in enumerate(dims):
                if len(factors) == 1 and factors[0] in rule.summed:
                    axes.setdefault(factors[0], []).append(set(place[d]) if place else set())
        return {axis for held in axes.values() for axis in set.intersection(*held)}

    def _rule(self, attribute: Any) -> _Rule:
        if attribute not in self._rules:
            rule = sdy.OpShardingRuleAttr(attribute)
            factors = range(len(rule.factor_sizes))
            others = {*rule.reduction_factors, *rule.need_replication_factors, *rule.permutation_factors}
            self._rules[attribute] = _Rule(
                sizes=tuple(rule.factor_sizes),
                operands=tuple(map(_dims, rule.operand_mappings)),
                result=_dims(rule.result_mappings[0]),
                passing=frozenset(factors) - others,
                summed=frozenset(rule.reduction_factors),
            )
        return self._rules[attribute]


def axis_size(ref: Any, mesh: dict[str, int]) -> int:
    """The size of an axis, or of a part of one, of a mesh of such axes."""
    part = ref.sub_axis_info
    return mesh.get(ref.name, 1) if part is None else sdy.SubAxisInfoAttr(part).size


def mesh_sizes(mesh: Any) -> dict[str, int]:
    """The sizes of the axes of a mesh."""
    return {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, sdy.MeshAttr(mesh).axes)}


def _dims(mapping: Any) -> _Dims:
    dims = map(sdy.DimMappingAttr, sdy.TensorMappingAttr(mapping).dim_mappings)
    return tuple([tuple(d.factor_indices) for d in dims])


def _is_within(said: Place, place: Place) -> bool:
    """Whether what lies in a place has at least what is said to lie on each device."""
    return all(axes == there[: len(axes)] for axes, there in zip(place, said, strict=True))


def _is_plain(op: Any) -> bool:
    """Whether an op is one of StableHLO with a single result."""
    return len(op.results) == 1 and op.name.startswith("stablehlo.")


def _is_generated(value: Any) -> bool:
    """Whether a value is made where it is read, from nothing or little."""
    if isinstance(value.owner, ir.Block):
        return False
    return value.owner.name in ("stablehlo.constant", "stablehlo.iota") or _repeats(value.owner)


def _repeats(op: Any) -> bool:
    """Whether an op repeats its operand."""
    return op.name == "stablehlo.broadcast_in_dim" and _elements(op.operands[0]) < _elements(op.results[0])


def _elements(value: Any) -> int:
    return math.prod(_shape(value))


def _shape(value: Any) -> list[int]:
    return ir.RankedTensorType(value.type).shape
