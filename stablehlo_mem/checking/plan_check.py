"""A plan proved by running it: the original and what it became, on the same arguments, held to float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import Exported

from stablehlo_mem.checking.comparison import compare, effect_of
from stablehlo_mem.checking.double_precision import NoDouble, in_double
from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.program import Program, ingest
from stablehlo_mem.ir.bindings import ir, is_callback, walk_operations
from stablehlo_mem.results.check import Check, CheckedResult, CheckError
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets._fresh_worker import random_array
from stablehlo_mem.targets.devices import local_devices
from stablehlo_mem.targets.execution import CannotRunError, Place

Array = np.ndarray[Any, Any]

_NUDGES = 3
"""How often the original is run on nudged arguments where a result is beyond its limit."""
_NUDGE = 2.0**-21
"""Share by which numbers are nudged: four roundings of float32; or one of their own dtype."""
_ROLES = ("inputs", "results")
"""Of a function's type."""
_SHOWN = 8
"""Arguments that a message lists."""


def check_plan(plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any], seed: int) -> Check:
    """Runs the original of a plan and its result on the same arguments, and compares what comes out.

    Args:
        plan: one that knows its program.
        args, kwargs: of the program, or its flat leaves; none to draw them.
        seed: equal seeds draw equal arguments.

    Raises:
        CheckError: a result is beyond the yardstick.
        InputError: the plan does not know its program, the arguments do not suit it, or it cannot be run here.
    """
    original, new = _programs(plan)
    _require_signature(original, new)
    given = _given(original, args, kwargs) if args or kwargs else None
    drawn = f"drawn, seed {seed}"
    reasons: list[str] = []
    for place in _places(plan, reasons):
        try:
            results, no_float64 = _Trial(original, new, place).run(given, seed)
        except CannotRunError as error:
            reasons.append(str(error))
            continue
        why = "; ".join(reasons)
        check = Check(
            results=results,
            where=place.name,
            why=why,
            arguments=drawn if given is None else "given",
            no_float64=no_float64,
        )
        if not check.ok:
            raise CheckError(_fault(check), check)
        return check
    raise InputError(f"the plan cannot be checked on this machine: {'; '.join(reasons)}")


def _fault(check: Check) -> str:
    wrong = "; ".join(f"{result.path} {result.fault}" for result in check.results if not result.ok)
    return f"the optimised program does not compute what the original does (on {check.where}): {wrong}"


def _programs(plan: Plan) -> tuple[Program, Program]:
    """The original and the result of a plan.

    Raises:
        InputError: the plan does not know them, or nobody could compare their results.
    """
    origin = plan.before.origin
    if origin is None or plan.result is None:
        raise InputError("the plan does not know its program: plan the program again to check it")
    original, new = (ingest(one, effects=True) for one in (origin.program, plan.result))
    if any(is_callback(op) for op in walk_operations(original.module.operation)):
        raise InputError(
            "the program prints or calls Python, whose functions are not part of a plan: it is not checked"
        )
    devices = original.exported.nr_devices if original.exported is not None else 1
    if devices > 1:
        raise InputError(f"a check runs programs of one device, not of {devices}: check what one device does")
    if any(op.name == "stablehlo.rng" for op in walk_operations(original.module.operation)):
        raise InputError("the program has a stablehlo.rng, which draws other numbers in every run: nothing to compare")
    return original, new


def _require_signature(original: Program, new: Program) -> None:
    """Raises a CheckError unless both programs take the same arguments and return as many results."""
    takes, gives = ([list(map(str, getattr(p.main.type, role))) for p in (original, new)] for role in _ROLES)
    fault = ""
    if takes[0] != takes[1]:
        fault = f"takes {', '.join(takes[1]) or 'nothing'} instead of {', '.join(takes[0]) or 'nothing'}"
    elif len(gives[0]) != len(gives[1]):
        fault = f"returns {len(gives[1])} results instead of {len(gives[0])}"
    if fault:
        result = CheckedResult(
            path="main",
            dtype="",
            shape=(),
            from_original=float("inf"),
            original_from_f64=None,
            new_from_f64=None,
            limit=0.0,
            fault=fault,
        )
        check = Check(results=(result,), where="nothing", why="", arguments="none", no_float64="")
        raise CheckError(f"the optimised program has another signature: it {fault}", check)


def _places(plan: Plan, reasons: list[str]) -> Iterator[Place]:
    """Where a plan could be run: this machine's devices of its targets in order, then the host.

    Args:
        reasons: gets why a target has no device here.
    """
    platforms = dict.fromkeys(name.partition(":")[0] for name in plan.target)
    for platform in (*(p for p in platforms if p != "cpu" or len(platforms) == 1), "cpu"):
        devices = local_devices(platform)
        if devices:
            yield Place(platform, devices[0])
            if platform == "cpu":
                return
        else:
            reasons.append(f"this machine has no {platform} device")


@dataclasses.dataclass(frozen=True)
class _Trial:
    """The original and the result of a plan, run at one place."""

    original: Program
    new: Program
    place: Place

    def run(self, given: Sequence[Array] | None, seed: int) -> tuple[tuple[CheckedResult, ...], str]:
        """The results compared, and why there is no float64.

        Args:
            given: the flat arguments that the module takes, None to draw them.

        Raises:
            CannotRunError: there is no room, or a compiler refuses the program.
        """
        old, new = self._wrapped(self.original.module), self._wrapped(self.new.module)
        output = self.original.output_bytes
        peak = max(self.place.needed_bytes(old), self.place.needed_bytes(new))
        # The arguments and the results of the other are there beside what runs.
        self.place.require_room(peak + self.original.argument_bytes + 2 * output)
        arguments = self._arguments(old, given, seed)
        before = self.place.run(old, arguments)
        after = self.place.run(new, arguments)
        wide, no_float64 = self._in_float64(arguments)
        results = self._compare(before, after, wide, {})
        wrong = [i for i, result in enumerate(results) if not result.ok and before[i].shape == after[i].shape]
        if wrong:
            results = self._compare(before, after, wide, self._effects(old, arguments, before, wrong))
        return results, no_float64

    def _effects(
        self, wrapped: Exported, arguments: Sequence[Array], before: Sequence[Array], which: Sequence[int]
    ) -> dict[int, Array]:
        """What nudged arguments do to some results of the original, by their indices: the most of a few runs."""
        effects: dict[int, Array] = {}
        for turn in range(_NUDGES):
            nudged = self.place.run(wrapped, [_nudged(argument, turn) for argument in arguments])
            for i in which:
                effect = effect_of(nudged[i], before[i])
                effects[i] = np.maximum(effects[i], effect) if i in effects else effect
        return effects

    def _wrapped(self, module: ir.Module) -> Exported:
        return self.place.wrapped(module)

    def _arguments(self, wrapped: Exported, given: Sequence[Array] | None, seed: int) -> list[Array]:
        """What main takes: before all else the index of the platform, in programs for several."""
        avals = wrapped.in_avals[_leading(self.original) :]
        if given is None:
            rng = np.random.default_rng(seed)
            given = [random_array(rng, aval) for aval in avals]
        platforms = self.original.platforms
        index = platforms.index(self.place.platform) if self.place.platform in platforms else 0
        leading = [np.asarray(index, a.dtype) for a in wrapped.in_avals[: _leading(self.original)]]
        return [*leading, *given]

    def _in_float64(self, arguments: Sequence[Array]) -> tuple[list[Array] | None, str]:
        """The results in float64, computed on the CPU, or why there are none."""
        module = in_double(self.original.module)
        if isinstance(module, NoDouble):
            return None, module.reason
        devices = local_devices("cpu")
        if not devices:
            return None, "JAX has no CPU backend in this process (JAX_PLATFORMS)"
        host = Place("cpu", devices[0])
        try:
            wrapped = host.wrapped(module)
            host.require_room(host.needed_bytes(wrapped))
            return host.run(wrapped, arguments), ""
        except CannotRunError as error:
            return None, str(error)

    def _compare(
        self,
        before: Sequence[Array],
        after: Sequence[Array],
        wide: Sequence[Array] | None,
        effects: Mapping[int, Array],
    ) -> tuple[CheckedResult, ...]:
        return tuple(
            compare(path, after[i], before[i], None if wide is None else wide[i], effects.get(i))
            for i, path in enumerate(_paths(self.original))
        )


def _leading(program: Program) -> int:
    """How many arguments main has before those of the program."""
    if program.exported is None:
        return 0
    return len(program.main.type.inputs) - len(program.exported.module_kept_var_idx)


def _paths(program: Program) -> list[str]:
    """The results' places in what the program returns, as JAX wrote them down: "result['loss']"."""
    count = len(program.main.type.results)
    attributes = program.main.operation.attributes
    known: list[Any] = list(ir.ArrayAttr(attributes["res_attrs"])) if "res_attrs" in attributes else [None] * count
    return [_path(ir.DictAttr(one) if one is not None else {}, i) for i, one in enumerate(known)]


def _path(attributes: Any, index: int) -> str:
    if "jax.result_info" in attributes:
        return ir.StringAttr(attributes["jax.result_info"]).value or "result"
    return f"result[{index}]"


def _given(program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Array]:
    """The arguments that the module takes, from those of the user.

    Raises:
        InputError: they are others than the program's.
    """
    leaves, tree = jax.tree.flatten((args, dict(kwargs)))
    exported = program.exported
    if exported is None:
        with jax.enable_x64(True):
            avals: Sequence[Any] = Place("cpu", None).wrapped(program.module).in_avals
        kept: Sequence[int] = range(len(avals))
    else:
        avals, kept = exported.in_avals, exported.module_kept_var_idx
    if len(leaves) != len(avals):
        raise InputError(
            f"{len(leaves)} arrays are given, the program takes {len(avals)}: {_listed(avals)}. In a plan of "
            "stablehlo_mem.jit arrays that the function captures come first; static and unused arguments are left out"
        )
    flat = jax.tree.structure((tuple(range(len(avals))), {}))
    if exported is not None and exported.in_tree not in (tree, flat) and tree != flat:
        raise InputError(f"the arguments are {tree}, those of the program {exported.in_tree}")
    if kwargs and exported is not None and exported.in_tree != tree:
        raise InputError(f"arguments by name are not those of the program, {exported.in_tree}: give them by position")
    return [_as_array(leaves[i], avals[i], i) for i in kept]


def _as_array(leaf: Any, aval: Any, index: int) -> Array:
    """An argument as main takes it: keys as their data, Python's numbers in the dtype that is wanted."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        if getattr(leaf, "dtype", None) != aval.dtype:
            raise InputError(f"argument {index} is {_type_text(aval)}: give a key of jax.random.key")
        return np.asarray(jax.random.key_data(leaf))
    try:
        array = np.asarray(leaf)
    except (jax.errors.TracerArrayConversionError, RuntimeError) as error:  # traced, donated or deleted
        raise InputError(f"argument {index} cannot be read: {str(error).partition(chr(10))[0]}") from error
    if array.shape != tuple(aval.shape) or not _becomes(array.dtype, aval.dtype):
        raise InputError(f"argument {index} is {_type_text(array)}, the program takes {_type_text(aval)}")
    return array.astype(aval.dtype)


def _listed(avals: Sequence[Any]) -> str:
    shown = [_type_text(aval) for aval in avals[:_SHOWN]]
    return ", ".join([*shown, "..."] if len(avals) > _SHOWN else shown)


def _type_text(aval: Any) -> str:
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _becomes(given: Any, wanted: Any) -> bool:
    """Whether JAX takes one dtype for another of its kind: float64 for float32, where it has no float64."""
    return given == wanted or any(
        jnp.issubdtype(given, kind) and jnp.issubdtype(wanted, kind)
        for kind in (np.floating, np.signedinteger, np.unsignedinteger, np.complexfloating)
    )


def _nudged(argument: Array, turn: int) -> Array:
    """Floats changed by their last bits, equal ones equally, so that exact ties stay; whole numbers stay too."""
    if not jnp.issubdtype(argument.dtype, np.floating):
        return argument
    wide = argument.astype(np.float64)
    share = max(_NUDGE, float(jnp.finfo(argument.dtype).eps))
    waves = np.where(wide == np.rint(wide), 0.0, np.sin(wide * 1e4 + 2.0 * turn))
    return (wide * (1.0 + share * waves)).astype(argument.dtype)
