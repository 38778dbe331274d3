"""Checks a plan by running the original and the optimised program on the same arguments and comparing the results.

`Plan.check` calls `check_plan`. Both are compared with the original in float64, see `checking.comparison`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import Exported

from stablehlo_mem.checking.comparison import compare, nudge_sensitivity
from stablehlo_mem.checking.double_precision import NoDouble, in_double
from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.program import Program, ingest, platform_arguments
from stablehlo_mem.ir.bindings import ir, is_callback, signature_attributes, walk_operations
from stablehlo_mem.results.check import Check, CheckedResult, CheckError
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets._fresh_worker import random_array
from stablehlo_mem.targets.devices import local_devices
from stablehlo_mem.targets.execution import CannotRunError, Place

Array = np.ndarray[Any, Any]

_NUDGED_RUNS = 3
"""Runs of the original on nudged arguments if a result is over its limit: one alone can leave an element in place."""
_NUDGE = 2.0**-21
"""Relative size of a nudge: four roundings of float32, or one of a coarser dtype."""
_SHOWN = 8
"""Arguments that an error message lists."""


def check_plan(plan: Plan, args: tuple[Any, ...], kwargs: Mapping[str, Any], seed: int) -> Check:
    """Runs the original of a plan and its result on the same arguments, and compares what comes out.

    Args:
        plan: a plan that holds its program.
        args, kwargs: the program's arguments, or its flat leaves; none to draw them.
        seed: equal seeds draw equal arguments.

    Raises:
        CheckError: a result is over its limit.
        InputError: the plan does not hold its program, the arguments do not suit it, or it cannot be run here.
    """
    original, new = _programs(plan)
    _require_signature(original, new)
    given = _given(original, args, kwargs) if args or kwargs else None
    reasons: list[str] = []
    for place in _places(plan, reasons):
        try:
            results, no_float64 = _Comparison(original, new, place).run(given, seed)
        except CannotRunError as error:
            reasons.append(str(error))
            continue
        check = Check(
            results=results,
            where=place.name,
            why="; ".join(reasons),
            arguments=f"drawn, seed {seed}" if given is None else "given",
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
        InputError: the plan does not hold them, or their results cannot be compared.
    """
    origin = plan.before.origin
    if origin is None or plan.result is None:
        raise InputError("the plan does not know its program: plan the program again to check it")
    original, new = (ingest(program, effects=True) for program in (origin.program, plan.result))
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
    old_inputs, new_inputs = (", ".join(map(str, p.main.type.inputs)) or "nothing" for p in (original, new))
    old_count, new_count = (len(p.main.type.results) for p in (original, new))
    fault = ""
    if old_inputs != new_inputs:
        fault = f"takes {new_inputs} instead of {old_inputs}"
    elif old_count != new_count:
        fault = f"returns {new_count} results instead of {old_count}"
    if fault:
        result = CheckedResult(path="main", dtype="", shape=(), from_original=float("inf"), fault=fault)
        check = Check(results=(result,), where="nothing", why="", arguments="none", no_float64="")
        raise CheckError(f"the optimised program has another signature: it {fault}", check)


def _places(plan: Plan, reasons: list[str]) -> Iterator[Place]:
    """The devices on which a plan could run: this machine's devices of its targets in order, then the CPU.

    Args:
        reasons: collects which targets have no device here.
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
class _Comparison:
    """The original and the result of a plan on one device."""

    original: Program
    new: Program
    place: Place

    def run(self, given: Sequence[Array] | None, seed: int) -> tuple[tuple[CheckedResult, ...], str]:
        """The comparison of each result, and why there is no run in float64 ("" if there is).

        Args:
            given: the flat arguments of main, None to draw them.

        Raises:
            CannotRunError: there is no room, or a compiler refuses the program.
        """
        old, new = self.place.wrapped(self.original.module), self.place.wrapped(self.new.module)
        peak = max(self.place.needed_bytes(old), self.place.needed_bytes(new))
        # Copies of the arguments and of both programs' results live beside the program that runs.
        self.place.require_room(peak + self.original.argument_bytes + 2 * self.original.output_bytes)
        arguments = self._arguments(old, given, seed)
        run_old = self.place.compiled(old)
        before = run_old(arguments)
        after = self.place.run(new, arguments)
        wide, no_float64 = self._in_float64(arguments)
        results = self._compare(before, after, wide, {})
        wrong = [i for i, result in enumerate(results) if not result.ok and before[i].shape == after[i].shape]
        if wrong:
            results = self._compare(before, after, wide, self._sensitivities(run_old, arguments, before, wrong))
        return results, no_float64

    @staticmethod
    def _sensitivities(
        run_old: Callable[[Sequence[Array]], list[Array]],
        arguments: Sequence[Array],
        before: Sequence[Array],
        indices: Sequence[int],
    ) -> dict[int, Array]:
        """How far nudged arguments move some results of the original, by index: the maximum of a few runs."""
        sensitivities: dict[int, Array] = {}
        for run in range(_NUDGED_RUNS):
            nudged = run_old([_nudged(argument, run) for argument in arguments])
            for i in indices:
                moves = nudge_sensitivity(nudged[i], before[i])
                sensitivities[i] = np.maximum(sensitivities.get(i, moves), moves)
        return sensitivities

    def _arguments(self, wrapped: Exported, given: Sequence[Array] | None, seed: int) -> list[Array]:
        """The arguments of main; in a program for several platforms the first one is the platform's index."""
        count = platform_arguments(self.original.exported, self.original.main)
        avals = wrapped.in_avals[count:]
        if given is None:
            rng = np.random.default_rng(seed)
            given = [random_array(rng, aval) for aval in avals]
        platforms = self.original.platforms
        index = platforms.index(self.place.platform) if self.place.platform in platforms else 0
        leading = [np.asarray(index, a.dtype) for a in wrapped.in_avals[:count]]
        return [*leading, *given]

    def _in_float64(self, arguments: Sequence[Array]) -> tuple[list[Array] | None, str]:
        """The original's results in float64 on the CPU, or None and why there are none."""
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
        sensitivities: Mapping[int, Array],
    ) -> tuple[CheckedResult, ...]:
        return tuple(
            compare(path, after[i], before[i], None if wide is None else wide[i], sensitivities.get(i))
            for i, path in enumerate(_paths(self.original))
        )


def _paths(program: Program) -> list[str]:
    """The path of each result in the program's output tree, as JAX recorded it: "result['loss']"."""
    infos = [attributes.get("jax.result_info") for attributes in signature_attributes(program.main, "res_attrs")]
    return [f"result[{i}]" if info is None else ir.StringAttr(info).value or "result" for i, info in enumerate(infos)]


def _given(program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Array]:
    """The arguments of main, from those of the user.

    Raises:
        InputError: they are not the program's.
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
    """An argument as main takes it: key arrays as their data, Python numbers in the program's dtype."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        if getattr(leaf, "dtype", None) != aval.dtype:
            raise InputError(f"argument {index} is {_type_text(aval)}: give a key of jax.random.key")
        return np.asarray(jax.random.key_data(leaf))
    try:
        array = np.asarray(leaf)
    except (jax.errors.TracerArrayConversionError, RuntimeError) as error:  # traced, donated or deleted
        raise InputError(f"argument {index} cannot be read: {str(error).partition(chr(10))[0]}") from error
    if array.shape != tuple(aval.shape) or not _converts(array.dtype, aval.dtype):
        raise InputError(f"argument {index} is {_type_text(array)}, the program takes {_type_text(aval)}")
    return array.astype(aval.dtype)


def _listed(avals: Sequence[Any]) -> str:
    shown = [_type_text(aval) for aval in avals[:_SHOWN]]
    return ", ".join([*shown, "..."] if len(avals) > _SHOWN else shown)


def _type_text(aval: Any) -> str:
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _converts(source: Any, target: Any) -> bool:
    """Whether JAX converts a dtype to another of its kind, as float64 to float32 unless x64 is enabled."""
    return source == target or any(
        jnp.issubdtype(source, kind) and jnp.issubdtype(target, kind)
        for kind in (np.floating, np.signedinteger, np.unsignedinteger, np.complexfloating)
    )


def _nudged(argument: Array, run: int) -> Array:
    """Floats with their last bits changed as a function of the value, so that ties stay ties; integral ones stay."""
    if not jnp.issubdtype(argument.dtype, np.floating):
        return argument
    values = argument.astype(np.float64)
    size = max(_NUDGE, float(jnp.finfo(argument.dtype).eps))
    direction = np.where(values == np.rint(values), 0.0, np.sin(values * 1e4 + 2.0 * run))
    return (values * (1.0 + size * direction)).astype(argument.dtype)
