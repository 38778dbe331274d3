"""Compiles a module for devices and reads the compiler's memory report.

`Target.measure` calls it for this machine's devices and topologies; `execution` and `device_timing` run what it
compiles.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import Exported
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from stablehlo_mem.errors import TargetError
from stablehlo_mem.frontend.program import Program, as_exported, kept_donated, platform_arguments
from stablehlo_mem.ir.bindings import axis_types, in_shardings_over, ir, parse_artifact
from stablehlo_mem.ir.graph import dtype_bytes, main_function
from stablehlo_mem.ir.host_memory import MEMORY_KIND, Memory, memory_kinds
from stablehlo_mem.ir.shards import mesh_axes
from stablehlo_mem.targets.devices import local_devices
from stablehlo_mem.targets.measurement import Measured, Refused

_log = logging.getLogger(__name__)

_FIGURES_ONLY: dict[str, Any] = {"xla_backend_optimization_level": 0}
"""For XLA:CPU: buffers are assigned before LLVM generates code, so its optimisations change no figure; without them a
compilation takes half as long (measured on 25 programs of `benchmarks/`)."""
_NO_YNN_FUSIONS: dict[str, Any] = {"xla_cpu_experimental_ynn_fusion_type": "", **_FIGURES_ONLY}
"""XLA:CPU's options without YNNPACK fusions. The scratch of these fusions, gigabytes for attention, is in no report.
But other programs need more memory with them (a squared distance over 16 dimensions: 2.3 GiB for 41 MiB), so the
larger of two reports counts."""
_YNN_FUSION = "__ynn_fusion"
"""What the text of a compiled module calls them. In a module without them the option changes nothing."""
_PLAIN_GEMMS: dict[str, Any] = {"xla_gpu_enable_triton_gemm": False}
"""cuBLAS for every dot of XLA:GPU. On the device its autotuner chooses between cuBLAS and Triton's fusions, without one
they are all Triton's, which may need half as much: what follows a dot is written over its result. The larger report
counts: an H200 needed the larger for distances and for attention in float32. And programs of odd sizes have no tiling
of Triton's without a device."""
_TRITON_GEMM = "gemm_fusion"
"""What the names of Triton's fusions have in them. A module without them is compiled as with cuBLAS."""

_WORKSPACE_BYTES = 2**22 + 2**10
"""The most that a report with cuBLAS has more for cuBLAS itself: 4 MiB that its calls may take before the autotuner
chose an algorithm (none that it chose on an H200 took any), and tables of their results."""

_CONSTANT = re.compile(r"= ([a-z]\w*)\[([\d,]+)\]\S* constant\(")
_OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|[Oo]ut of memory")
_NEEDED = (
    (re.compile(r"HLO temporaries \(([\d.]+)([KMGT]?)i?B?\)"), True),
    (re.compile(r"total memory required[^(]*\(([\d.]+)([KMGT]?)i?B?\)"), False),
    (re.compile(r"Used ([\d.]+)([KMGT]?)i?B? of [\d.]+[KMGT]?i?B? hbm"), False),
    (re.compile(r"allocat\w* ([\d.]+)([KMGT]?)i?B"), False),
)
"""The compilers' messages when memory runs out, and whether the figure counts temporaries only."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def measure(program: Program, module: ir.Module, platform: str, devices: Sequence[Any]) -> Measured | Refused:
    """Compiles a module with the program's signature and donation; executes nothing.

    Returns:
        The compiler's figures, per device, with the constants it embeds; or its refusal.

    Raises:
        TargetError: the program is for more devices than given.
    """
    exported = flattened(as_exported(program, module, platform))
    return measure_exported(exported, kept_donated(program), program.floor_bytes, platform, devices)


def measure_exported(
    exported: Exported, donated: tuple[int, ...], floor_bytes: int, platform: str, devices: Sequence[Any]
) -> Measured | Refused:
    """`measure` of an Exported with flat trees, some of whose arguments are donated."""
    shardings = _argument_shardings(exported, devices)
    try:
        with jax.enable_x64(True), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            lowered = _lower(exported, donated, shardings, devices, platform)
            tuned = platform == "cuda" and devices[0] in local_devices("cuda")
            return _compiled_figures(lowered, platform, tuned=tuned)
    except jax.errors.JaxRuntimeError as error:
        return refusal(str(error), floor_bytes)


def flattened(exported: Exported) -> Exported:
    """An Exported that takes and returns flat tuples of arrays, so that another process needs none of its trees."""
    arguments, results = (tuple(range(len(avals))) for avals in (exported.in_avals, exported.out_avals))
    in_tree = jax.tree.structure((arguments, {}))
    return dataclasses.replace(exported, in_tree=in_tree, out_tree=jax.tree.structure(results))


def refusal(message: str, floor_bytes: int) -> Refused:
    """The refusal of a compiler's error message, with the bytes the message names if memory ran out."""
    if _OUT_OF_MEMORY.search(message):
        for pattern, temporaries in _NEEDED:
            match = pattern.search(message)
            if match:
                needed = int(float(match[1]) * _UNITS[match[2]])
                return Refused(message, needed + floor_bytes if temporaries else max(needed, floor_bytes))
    return Refused(message, None)


def hlo_constant_bytes(hlo: str) -> int:
    """Bytes of the array constants in the text of a compiled module: they are on the device, and in no other figure."""
    total = 0.0
    for dtype, shape in _CONSTANT.findall(hlo):
        total += np.prod([int(n) for n in shape.split(",")], dtype=np.float64) * _hlo_dtype_bytes(dtype)
    return int(total)


def executable(
    exported: Exported, donated: tuple[int, ...], platform: str, devices: Sequence[Any]
) -> tuple[Any, list[int]]:
    """An Exported with flat trees, compiled, and which of its arguments the executable takes."""
    lowered = _lower(exported, donated, _argument_shardings(exported, devices), devices, platform)
    return _compile(lowered, platform), _used_arguments(exported)


def _used_arguments(flat: Exported) -> list[int]:
    return [i for i, aval in enumerate(flat.in_avals) if i in flat.module_kept_var_idx or not _is_plain(aval)]


def _lower(
    flat: Exported, donated: tuple[int, ...], shardings: Sequence[Any], devices: Sequence[Any], platform: str
) -> Any:
    used = _used_arguments(flat)
    of_arguments, of_results = _memory_kinds(flat, platform)

    def call(*arguments: jax.Array) -> Any:
        by_index = dict(zip(used, arguments, strict=True))
        # The module does not use the others: as zeros they are dead code, and no arguments of the executable.
        indexed = enumerate(flat.in_avals)
        return flat.call(*(by_index[i] if i in by_index else jnp.zeros(a.shape, a.dtype) for i, a in indexed))

    sharded = ((flat.in_avals[i], _in_memory(shardings[i], of_arguments.get(i, "device"))) for i in used)
    specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding) for aval, sharding in sharded]
    # Without arguments, only the results can say for which device it is.
    placement: dict[str, Any] = {} if used else {"out_shardings": _replicated(flat, devices)}
    if "pinned_host" in (*of_arguments.values(), *of_results):
        whole = _replicated(flat, devices)
        placement = {"out_shardings": tuple(_in_memory(whole, kind) for kind in of_results)}
    return jax.jit(call, donate_argnums=tuple(used.index(i) for i in donated), **placement).lower(*specs)


def _memory_kinds(flat: Exported, platform: str) -> tuple[dict[int, Memory], list[Memory]]:
    """In which memory the arguments and the results are, nothing where all are on the device; a CPU has one memory."""
    if platform == "cpu" or MEMORY_KIND.encode() not in flat.mlir_module_serialized:
        return {}, []
    module = parse_artifact(flat.mlir_module_serialized)  # it owns what main refers to
    main = main_function(module)
    kinds = memory_kinds(main, "arg_attrs")[platform_arguments(flat, main) :]
    return dict(zip(flat.module_kept_var_idx, kinds, strict=True)), memory_kinds(main, "res_attrs")


def _in_memory(sharding: Any, memory: Memory) -> Any:
    return sharding if memory == "device" else sharding.with_memory_kind(memory)


def _is_plain(aval: Any) -> bool:
    return not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _compiled_figures(lowered: Any, platform: str, *, tuned: bool) -> Measured:
    """The figures of the program that runs, or of one that might run instead if these are larger."""
    compiled = lowered.compile(compiler_options=_FIGURES_ONLY) if platform == "cpu" else _compile(lowered, platform)
    text = compiled.as_text()
    figures = _figures(compiled, text)
    if platform == "cpu" and _YNN_FUSION in text:
        return max(figures, _figures_with(lowered, _NO_YNN_FUSIONS) or figures, key=lambda m: m.peak_bytes)
    if platform == "cuda" and not tuned and _TRITON_GEMM in text:
        other = _figures_with(lowered, _PLAIN_GEMMS) or figures
        return other if other.peak_bytes > figures.peak_bytes + _WORKSPACE_BYTES else figures
    return figures


def _compile(lowered: Any, platform: str) -> Any:
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if platform != "cuda" or _OUT_OF_MEMORY.search(str(error)):
            raise
        return lowered.compile(compiler_options=_PLAIN_GEMMS)


def _figures_with(lowered: Any, options: dict[str, Any]) -> Measured | None:
    """Compiles for the report alone. None if the compiler fails, unless memory ran out: that is a report."""
    try:
        compiled = lowered.compile(compiler_options=options)
    except jax.errors.JaxRuntimeError as error:
        if _OUT_OF_MEMORY.search(str(error)):
            raise
        _log.info("no report with %s: %s", options, error)
        return None
    return _figures(compiled, compiled.as_text())


def _figures(compiled: Any, text: str) -> Measured:
    analysis = compiled.memory_analysis()
    return Measured(
        argument_bytes=analysis.argument_size_in_bytes,
        output_bytes=analysis.output_size_in_bytes,
        temp_bytes=analysis.temp_size_in_bytes,
        alias_bytes=analysis.alias_size_in_bytes,
        constant_bytes=hlo_constant_bytes(text),
        host_fixed_bytes=analysis.host_argument_size_in_bytes
        + analysis.host_output_size_in_bytes
        - analysis.host_alias_size_in_bytes,
        host_temp_bytes=analysis.host_temp_size_in_bytes,
    )


def _hlo_dtype_bytes(dtype: str) -> float:
    if dtype == "pred":
        return 1
    if dtype in ("c64", "c128"):
        return int(dtype[1:]) / 8
    return dtype_bytes(dtype)


def _argument_shardings(exported: Exported, devices: Sequence[Any]) -> list[Any]:
    replicated = _replicated(exported, devices)
    if exported.nr_devices == 1:
        return [replicated] * len(exported.in_avals)
    return [sharding or replicated for sharding in in_shardings_over(exported, replicated.mesh)]


def _replicated(exported: Exported, devices: Sequence[Any]) -> Any:
    """The sharding of an array that every device of an Exported has as a whole."""
    count = exported.nr_devices
    if count == 1:
        return SingleDeviceSharding(devices[0])
    if count > len(devices):
        raise TargetError(
            f"{exported.fun_name} is partitioned over {count} devices and this target has {len(devices)}: name a chip "
            "without a number, e.g. cuda:h200 or tpu:v5e, to compile for as many as it takes; on CPU set XLA_FLAGS="
            f"--xla_force_host_platform_device_count={count} before JAX starts"
        )
    mesh = _mesh(parse_artifact(exported.mlir_module_serialized), devices[:count], axis_types(exported))
    return NamedSharding(mesh, PartitionSpec())


def _mesh(module: ir.Module, devices: Sequence[Any], types: tuple[Any, ...] | None) -> Mesh:
    for axes in mesh_axes(module).values():
        if math.prod(axes.values()) == len(devices):
            return Mesh(np.array(devices).reshape(list(axes.values())), tuple(axes), axis_types=types)
    raise TargetError(f"the module is partitioned over {len(devices)} devices but has no mesh (sdy.mesh) of that size")
