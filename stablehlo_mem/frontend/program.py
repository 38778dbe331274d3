"""Reads every accepted form of a program into one private module, and gives back an optimised one in the same form.

The api, jit and the command line call it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from jax.export import Exported, deserialize, is_symbolic_dim

from stablehlo_mem.errors import InputError
from stablehlo_mem.frontend.wrap_module import wrap_module
from stablehlo_mem.ir.bindings import (
    DONATED,
    MAGIC,
    dimension_names,
    ir,
    is_callback,
    module_bytes,
    parse_artifact,
    parse_module,
    portable_artifact,
    refine_shapes,
    signature_attributes,
    walk_operations,
)
from stablehlo_mem.ir.graph import main_function, tensor_type
from stablehlo_mem.ir.host_memory import attributes_say_host, memory_kinds
from stablehlo_mem.ir.shards import argument_shardings, mesh_axes, part_bytes, result_shardings, sharding_parts

Kind = Literal["exported", "serialized", "module", "text", "bytecode", "artifact"]

_PORTABLE_PRODUCER = b"StableHLO_v"
_EFFECTFUL_OPS = frozenset({"infeed", "outfeed", "send", "recv"})
_GLOBAL_CONSTANT = "jax.global_constant"
_SUFFIXES = frozenset({".bin", ".mlir", ".mlirbc", ".txt"})
_HOW_TO_EXPORT = (
    'export the function first, open("f.bin", "wb").write(jax.export.export(jax.jit(f))(*arguments).serialize())'
)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """A program as it came in, and a private copy of its module.

    Attributes:
        module: in a context of its own; clone it, never change it.
        kind: what `original` is; `emit` gives the same back.
        exported: the input as an Exported, None for the kinds without one.
        original: the input itself.
        platforms: the platforms an Exported is for, () for a raw module, which any target may compile.
        donated: indices of the donated arguments of `main`, ascending.
    """

    module: ir.Module
    kind: Kind
    exported: Exported | None
    original: Any
    platforms: tuple[str, ...]
    donated: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the function that was exported, else that of the module."""
        if self.exported is not None:
            return self.exported.fun_name
        attributes = self.module.operation.attributes
        return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else "the module"

    @property
    def main(self) -> Any:
        """The public function `main` of the module."""
        return main_function(self.module)

    @property
    def lasting(self) -> Any:
        """The input, or its bytecode where the caller could still change it."""
        return module_bytes(self.module) if self.kind == "module" else self.original

    @property
    def argument_bytes(self) -> int:
        """Bytes of the arguments of `main` on one device, dense: a target may pad them.

        The platform index is a constant, and arguments in the host's memory are not on the device.
        """
        sizes = self._bytes(self.main.type.inputs, argument_shardings(self.main))
        pairs = zip(sizes, signature_attributes(self.main, "arg_attrs"), strict=True)
        return sum(
            n for n, attributes in pairs if _GLOBAL_CONSTANT not in attributes and not attributes_say_host(attributes)
        )

    @property
    def output_bytes(self) -> int:
        """Bytes of the results of `main` on one device, dense: the fewest there can be, where the compiler chooses."""
        return sum(self._result_bytes)

    @property
    def _result_bytes(self) -> list[int]:
        shardings = result_shardings(self.main)
        devices = self.exported.nr_devices if self.exported is not None else 1
        sizes = self._bytes(self.main.type.results, shardings)
        kinds = memory_kinds(self.main, "res_attrs")
        sizes = [n * (kind == "device") for n, kind in zip(sizes, kinds, strict=True)]
        return [n // devices if s is None else n for n, s in zip(sizes, shardings, strict=True)]

    def _bytes(self, types: Sequence[Any], shardings: Sequence[Any]) -> list[int]:
        meshes = mesh_axes(self.module)
        parts = (sharding_parts(sharding, meshes) for sharding in shardings)
        sizes = ((tensor_type(t), p) for t, p in zip(types, parts, strict=True))
        return [part_bytes(shape, nbytes, p) for (shape, _, nbytes), p in sizes]

    @functools.cached_property
    def alias_bytes(self) -> int:
        """Bytes of the results that can take over the buffer of a donated argument of the same type and memory."""
        inputs, kinds = self.main.type.inputs, memory_kinds(self.main, "arg_attrs")
        free = [(str(inputs[i]), kinds[i]) for i in self.donated]
        aliased = 0
        results = zip(self.main.type.results, memory_kinds(self.main, "res_attrs"), self._result_bytes, strict=True)
        for result, kind, nbytes in results:
            if (str(result), kind) in free:
                free.remove((str(result), kind))
                aliased += nbytes
        return aliased

    @property
    def floor_bytes(self) -> int:
        """Arguments + outputs − aliased: no rewriting gets below it."""
        return self.argument_bytes + self.output_bytes - self.alias_bytes


def ingest(module: Any, *, effects: bool = False) -> Program:
    """Reads a program; the input is never changed.

    Args:
        module: a `jax.export.Exported`, an `ir.Module`, MLIR text, or bytes: MLIR bytecode, a StableHLO portable
            artifact, or what `Exported.serialize` gives.
        effects: whether an Exported may call Python functions and pass tokens.

    Raises:
        InputError: the input is damaged, of another type, has no public `main`, dynamic shapes or side effects.
    """
    if isinstance(module, Exported):
        return _from_exported(module, "exported", module, effects)
    if isinstance(module, str):
        return _checked(_parse(module), "text", module)
    if isinstance(module, (bytes, bytearray)):
        return _from_bytes(bytes(module), module)
    if isinstance(module, ir.Module):
        return _checked(_parse(module_bytes(module)), "module", module)
    raise InputError(
        f"cannot read a program from {type(module).__name__}: give a jax.export.Exported, an ir.Module of "
        "jax.extend.mlir, MLIR text, or bytes (bytecode, portable artifact, serialised Exported); "
        "of a function make jax.export.export(jax.jit(f))(*specs) first"
    )


def emit(program: Program, module: ir.Module, vjp_transform: Callable[[Exported], Exported] | None = None) -> Any:
    """An optimised module as the kind of thing that was ingested; `module` may be used on.

    Args:
        program: what was ingested.
        module: the optimised module: the same signature.
        vjp_transform: optimises the original's vjp. Called when the vjp is first asked for; for a serialised
            Exported, whose vjps are in the bytes, at once. None leaves the result without a vjp.

    Returns:
        For an Exported: the same calling convention, names, shardings, donation, versions and platforms. For an
        `ir.Module`: one in the input's context.
    """
    if program.exported is not None:
        exported = _replace_module(program.exported, module, vjp_transform)
        return exported if program.kind == "exported" else bytes(exported.serialize(vjp_order=vjp_order(exported)))
    if program.kind == "module":
        return parse_module(module_bytes(module), program.original.context)
    if program.kind == "text":
        return str(module.operation.get_asm(enable_debug_info=True))
    return portable_artifact(module) if program.kind == "artifact" else module_bytes(module)


def as_exported(program: Program, module: ir.Module, platform: str) -> Exported:
    """A module with the program's signature as an Exported for one platform, to be compiled or called.

    A raw module gets the flat tuples of main's arguments and results as trees.

    Raises:
        InputError: main has an argument or result that is no array.
    """
    if program.exported is not None:
        return _replace_module(program.exported, module, None)
    return wrap_module(module, main_function(module), platform)


def _from_exported(exported: Exported, kind: Kind, original: Any, may_call: bool = False) -> Program:
    effects = (*exported.ordered_effects, *exported.unordered_effects)
    if effects and not may_call:
        raise InputError(
            f"{exported.fun_name} has side effects ({', '.join(str(e) for e in effects)}), which must not be "
            "repeated or reordered: take debug prints and callbacks out of the function"
        )
    symbolic = [a for a in (*exported.in_avals, *exported.out_avals) if any(is_symbolic_dim(n) for n in a.shape)]
    if symbolic:
        dims = ", ".join(f"{name!r}: ..." for name in symbolic_names(exported))
        raise InputError(
            f"{exported.fun_name} has a dynamic shape, {symbolic[0]}: memory is planned for known sizes; "
            f"plan(..., dims={{{dims}}}) says which, or export it again with concrete shapes"
        )
    module = parse_artifact(exported.mlir_module_serialized)
    if exported.uses_global_constants and _first_dynamic(module) is not None:
        module = refine_shapes(module)
    return _checked(module, kind, original, exported, may_call)


def symbolic_names(exported: Exported) -> tuple[str, ...]:
    """The symbolic dimensions of an Exported's arguments, in order; () if its shapes are concrete."""
    sizes = [size for aval in exported.in_avals for size in aval.shape if is_symbolic_dim(size)]
    return tuple(dict.fromkeys(name for size in sizes for name in sorted(dimension_names(size))))


def _from_bytes(data: bytes, original: Any) -> Program:
    if data.startswith(MAGIC):
        portable = _PORTABLE_PRODUCER in data[:64]
        module = _parse(data)  # also for artifacts: the other reader prints what is wrong to stderr
        return _checked(parse_artifact(data) if portable else module, "artifact" if portable else "bytecode", original)
    if not data:
        raise InputError("the module is empty: 0 bytes")
    return _from_exported(deserialize_exported(data), "serialized", original)


def deserialize_exported(data: bytes) -> Exported:
    """What `Exported.serialize` wrote, with damage reported as what it is.

    Raises:
        InputError: the bytes are no serialised Exported, or not the whole of one.
    """
    try:
        return deserialize(bytearray(data))
    except Exception as error:  # flatbuffers has no error of its own: struct, index, type, value and unicode errors
        raise InputError(
            f"{len(data):,} bytes, {data[:8].hex(' ')} ..., are no program: neither MLIR bytecode nor a StableHLO "
            f"portable artifact (which begin with {MAGIC.hex(' ')}), nor a whole jax.export.Exported as `serialize` "
            "writes it"
        ) from error


def _parse(text: str | bytes) -> ir.Module:
    if not text.strip():
        raise InputError("the module is empty")
    try:
        return parse_module(text)
    except (ir.MLIRError, UnicodeError) as error:
        if isinstance(text, str) and (kind := _other_text(text)):
            raise InputError(f"this is {kind}, not a program that was exported: {_HOW_TO_EXPORT}") from error
        form = "text" if isinstance(text, str) else "bytecode"
        raise InputError(f"malformed MLIR {form}: {error}") from error


def _other_text(text: str) -> str:
    """What a text is that is no MLIR, "" if unknown."""
    if text.startswith("HloModule"):
        return "HLO, which XLA makes of StableHLO"
    if "\n" not in text and pathlib.Path(text).suffix in _SUFFIXES:
        return "the name of a file (give what it contains)"
    if _is_json(text):
        return "JSON"
    return "Python" if _is_python(text) else ""


def _is_json(text: str) -> bool:
    """Whether a text is an object or a list in JSON, such as a plan's report: each would be Python as well."""
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _is_python(text: str) -> bool:
    """Whether a text is a Python program: an MLIR name alone is a Python expression too."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return False
    return any(not isinstance(statement, ast.Expr) for statement in statements)


def _checked(
    module: ir.Module, kind: Kind, original: Any, exported: Exported | None = None, may_call: bool = False
) -> Program:
    main = main_function(module)
    dynamic = _first_dynamic(module)
    if dynamic is not None:
        raise InputError(f"dynamic shape {dynamic}: memory is planned for known sizes; refine the shapes first")
    effect = _first_effect(module, may_call) or (None if may_call else _token(main))
    if effect is not None:
        raise InputError(
            f"{effect}: side effects, callbacks into Python or transfers to the host, must not be repeated or "
            "reordered; take callbacks and debug prints out of the function"
        )
    platforms = exported.platforms if exported is not None else ()
    return Program(module, kind, exported, original, platforms, _donated(main))


def _first_dynamic(module: ir.Module) -> str | None:
    for op in walk_operations(module.operation):
        types = [(result.type, op.name) for result in op.results]
        arguments = (v for region in op.regions for block in region.blocks for v in block.arguments)
        types += [(argument.type, f"an argument of {op.name}") for argument in arguments]
        for mlir_type, what in types:
            if _is_dynamic(mlir_type):
                return f"{mlir_type} of {what}"
    return None


def _is_dynamic(mlir_type: Any) -> bool:
    if isinstance(mlir_type, ir.UnrankedTensorType):
        return True
    return isinstance(mlir_type, ir.RankedTensorType) and not mlir_type.has_static_shape


def _token(main: Any) -> str | None:
    types = [str(t) for t in (*main.type.inputs, *main.type.results)]
    return next((f"main passes a {t}" for t in types if t.endswith(".token")), None)


def _first_effect(module: ir.Module, may_call: bool) -> str | None:
    for op in walk_operations(module.operation):
        dialect, _, name = op.name.partition(".")
        if dialect == "stablehlo" and name in _EFFECTFUL_OPS:
            return op.name
        if is_callback(op) and not may_call:
            return f"custom_call {ir.StringAttr(op.attributes['call_target_name']).value}"
    return None


def _donated(main: Any) -> tuple[int, ...]:
    attributes = signature_attributes(main, "arg_attrs")
    return tuple(i for i, of_argument in enumerate(attributes) if not DONATED.isdisjoint(of_argument))


def _replace_module(
    exported: Exported, module: ir.Module, vjp_transform: Callable[[Exported], Exported] | None
) -> Exported:
    get_vjp = _lazy_vjp(exported, vjp_transform) if vjp_transform is not None and exported.has_vjp() else None
    return dataclasses.replace(exported, mlir_module_serialized=portable_artifact(module), _get_vjp=get_vjp)


def _lazy_vjp(original: Exported, transform: Callable[[Exported], Exported]) -> Callable[[Exported], Exported]:
    @functools.cache
    def optimised() -> Exported:
        return transform(original.vjp())

    return lambda _: optimised()


def vjp_order(exported: Exported) -> int:
    """How often an Exported can be differentiated."""
    order = 0
    while exported.has_vjp():
        exported, order = exported.vjp(), order + 1
    return order


def kept_donated(program: Program) -> tuple[int, ...]:
    """The donated arguments as indices into the wrap's or the Exported's `in_avals`."""
    exported = program.exported
    return program.donated if exported is None else _kept(exported, program.main, program.donated)


def donated_arguments(exported: Exported) -> tuple[int, ...]:
    """The donated arguments of an Exported, whatever its shapes, as indices into its `in_avals`."""
    module = parse_artifact(exported.mlir_module_serialized)  # it owns what main refers to
    main = main_function(module)
    return _kept(exported, main, _donated(main))


def _kept(exported: Exported, main: Any, indices: tuple[int, ...]) -> tuple[int, ...]:
    leading = platform_arguments(exported, main)
    return tuple(exported.module_kept_var_idx[i - leading] for i in indices)


def platform_arguments(exported: Exported | None, main: Any) -> int:
    """How many arguments main has before those of its Exported: 1 if it takes the platform's index."""
    return 0 if exported is None else len(main.type.inputs) - len(exported.module_kept_var_idx)
