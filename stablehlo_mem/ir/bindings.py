"""The only imports of jaxlib's and jax.extend's MLIR bindings and of JAX's private modules, for every other folder.

What the bindings do differently from what one expects (see docs/design.md) is handled here, once.
"""
# pyright: reportUnusedImport=false

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import io
import os
import pathlib
import re
import sysconfig
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Literal

import numpy as np
from jax._src import ad_checkpoint as _ad_checkpoint
from jax._src import ad_util as _ad_util
from jax._src import api_util as _api_util
from jax._src import checkify as _checkify
from jax._src import core as _core
from jax._src import debugging as _debugging
from jax._src import distributed as _distributed
from jax._src import linear_util as _linear_util
from jax._src import pjit as _pjit
from jax._src import source_info_util as _source_info_util
from jax._src.export import _export
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import partial_eval as _pe
from jax._src.state import discharge as _discharge
from jax._src.state import types as _state
from jax.extend.backend import get_backend
from jax.extend.mlir import deserialize_portable_artifact, ir, refine_polymorphic_shapes, serialize_portable_artifact
from jax.extend.mlir.dialects import chlo, func, stablehlo
from jax.extend.mlir.passmanager import PassManager
from jax.interpreters.mlir import make_ir_context
from jax.sharding import Mesh
from jaxlib.mlir._mlir_libs._jax_mlir_ext import inlined_func_call
from jaxlib.mlir.dialects import sdy

from stablehlo_mem.utils.backends import start_backends

# The parts of JAX that a primitive's rules are made of: they have no types.
ad: Any = _ad
ad_checkpoint: Any = _ad_checkpoint
ad_util: Any = _ad_util
batching: Any = _batching
check_callable: Any = _api_util.check_callable
checkify: Any = _checkify
core: Any = _core
debugging: Any = _debugging
discharge: Any = _discharge
export_internals: Any = _export
linear_util: Any = _linear_util
lowering: Any = _mlir
_PJIT: Any = _pjit
pe: Any = _pe
state: Any = _state

MAGIC = b"ML\xefR"
"""What MLIR bytecode begins with."""
RULES_PASS = "func.func(sdy-populate-op-sharding-rules)"
"""Shardy's pass that attaches factor rules."""
RULE = "sdy.sharding_rule"
"""The attribute that it leaves on an op."""


DONATED = frozenset({"tf.aliasing_output", "jax.buffer_donor"})
"""The attributes of an argument one of which says that it is donated."""


@dataclasses.dataclass(frozen=True)
class CudnnAttention:
    """JAX's module that calls cuDNN's fused attention."""

    module: Any

    @contextlib.contextmanager
    def told_capability(self, capability: tuple[int, int]) -> Generator[None]:
        """The module is told a GPU's compute capability, and asks no device, until the block ends."""

        def at_least(asked: str) -> bool:
            return capability >= tuple(int(part) for part in asked.split("."))

        def equals(asked: str) -> bool:
            return capability == tuple(int(part) for part in asked.split("."))

        told = {"check_compute_capability": at_least, "is_cuda_compute_capability_equal": equals}
        asking = {name: getattr(self.module, name) for name in told}
        vars(self.module).update(told)
        try:
            yield
        finally:
            vars(self.module).update(asking)


@functools.cache
def cudnn_attention() -> CudnnAttention:
    """JAX's calls of cuDNN's fused attention; imported when they are first asked for."""
    return CudnnAttention(importlib.import_module("jax._src.cudnn.fused_attention_stablehlo"))


def parse_module(text: str | bytes, context: ir.Context | None = None) -> ir.Module:
    """Parses MLIR text or bytecode into a module of `context`, by default a fresh one with JAX's dialects."""
    with context or make_ir_context():
        return ir.Module.parse(text)


def module_bytes(module: ir.Module) -> bytes:
    """The module as MLIR bytecode: the fast lossless form for copies inside one process."""
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def parse_artifact(data: bytes) -> ir.Module:
    """Reads a StableHLO portable artifact (plain bytecode too) into a fresh context with JAX's dialects.

    Complaints go to stderr as well: parse the bytes with `parse_module` first where they may be damaged.
    """
    with make_ir_context():
        return deserialize_portable_artifact(data)


def portable_artifact(module: ir.Module) -> bytes:
    """Serialises as jax.export does: readable by consumers up to four weeks older, Shardy kept where JAX keeps it.

    The module is left as it was.
    """
    start_backends()
    with module.context:
        version = stablehlo.get_version_from_compatibility_requirement(
            stablehlo.StablehloCompatibilityRequirement.WEEK_4
        )
        return serialize_portable_artifact(module, version, getattr(get_backend(), "serialize_with_sdy", True))


def refine_shapes(module: ir.Module) -> ir.Module:
    """Makes the shapes inside static, given a main whose arguments are; in a fresh context."""
    return parse_artifact(refine_polymorphic_shapes(module_bytes(module), enable_shardy=True))


def axis_types(exported: Any) -> tuple[Any, ...] | None:
    """The types of the axes of an Exported's mesh, None where no sharding in it says: its module does not."""
    shardings = (*exported._in_named_shardings, *exported._out_named_shardings)
    return next((s.mesh.axis_types for s in shardings if s is not None and not s.mesh.empty), None)


def in_shardings_over(exported: Any, mesh: Mesh) -> tuple[Any, ...]:
    """The shardings of an Exported's arguments over the devices of a mesh, None of those of which nothing is said.

    `Exported.in_shardings_jax` refuses arguments that lie on several meshes of the same devices; `jax.jit` takes them.
    """
    # Exporteds of JAX 0.11 and later always have them.
    if not getattr(exported, "_has_named_shardings", True):
        return exported.in_shardings_jax(mesh)
    return tuple(None if s is None else _over(s, mesh.devices) for s in exported._in_named_shardings)


def _over(sharding: Any, devices: Any) -> Any:
    abstract = sharding.mesh
    mesh = Mesh(devices.reshape(abstract.axis_sizes), abstract.axis_names, axis_types=abstract.axis_types)
    return sharding.update(mesh=mesh)


def lowering_cause(what: str) -> Exception:
    """The cause of an error that a lowering rule raises: if it has none, JAX makes one of the error's whole text."""
    return _source_info_util.JaxStackTraceBeforeTransformation(what)


def jit_key_part(name: str, default: Any) -> Any:
    """A thread-local variable that is a part of the key by which `jax.jit` finds a compiled program, not of tracing's.

    `swap_local` sets it and returns what it was, `set_local` sets it. JAX does not make them for others: the public
    `make_user_context` is a part of both keys.
    """
    return type(_core.trace_state)(name, default, include_in_jit_key=True)


def process_store() -> Any:
    """The store of keys and values that the processes of `jax.distributed` share; None in a process of its own."""
    return _distributed.global_state.client


@functools.cache
def dtypes_by_name() -> dict[str, Any]:
    """The dtypes that JAX knows, by the names of their MLIR types."""
    with make_ir_context():
        names = {str(mlir_type()): dtype for dtype, mlir_type in lowering._dtype_to_ir_type.items()}
    return {**names, "i1": np.dtype(np.bool_)}


def dimension_names(size: Any) -> set[str]:
    """The names in a symbolic dimension such as `2*b`: JAX has no public way to ask."""
    return set(size._get_vars())


def dimension_size(size: Any, dims: Mapping[str, int]) -> int:
    """A symbolic dimension at given sizes."""
    return int(size._evaluate(dims))


def clone_module(module: ir.Module) -> ir.Module:
    """A deep copy in the same context: of a module of 1,125 ops in 0.7 ms, where bytecode takes 6 ms."""
    with module.context:
        clone = ir.Module.create(module.operation.location)
        attributes = module.operation.attributes
        for name in attributes:
            clone.operation.attributes[name] = attributes[name]
        end = ir.InsertionPoint(clone.body)
        for op in module.operation.regions[0].blocks[0].operations:
            op.operation.clone(end)
    return clone


def fingerprint(module: ir.Module) -> str:
    """A digest of the module's program, locations left out: equal programs have equal fingerprints."""
    text = str(module.operation.get_asm(enable_debug_info=False))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_passes(module: ir.Module, *pipeline: str, verify: bool = True) -> None:
    """Runs C++ passes in place, e.g. `run_passes(m, "cse", RULES_PASS)`. Handles held across it are stale.

    Args:
        verify: whether the module is verified after each pass.
    """
    with module.context:
        manager = PassManager.parse(f"builtin.module({','.join(pipeline)})")
        manager.enable_verifier(verify)
        manager.run(module.operation)


def functions(module: ir.Module) -> Iterator[Any]:
    """The module's func.func operations in order."""
    for op in module.body.operations:
        if op.operation.name == "func.func":
            yield op


def is_public(function: Any) -> bool:
    """Whether a function may be called from outside its module."""
    attributes = function.operation.attributes
    return "sym_visibility" not in attributes or ir.StringAttr(attributes["sym_visibility"]).value == "public"


def signature_attributes(function: Any, of: Literal["arg_attrs", "res_attrs"]) -> list[dict[str, Any]]:
    """The attributes of each argument or of each result of a function."""
    attributes = function.operation.attributes
    if of not in attributes:
        kind = function.operation.opview.type
        return [{} for _ in (kind.inputs if of == "arg_attrs" else kind.results)]
    return [{entry.name: entry.attr for entry in ir.DictAttr(entries)} for entries in ir.ArrayAttr(attributes[of])]


def walk_operations(root: Any) -> Iterator[Any]:
    """The operations inside `root` in preorder; unlike the bindings' own `walk`, handles that outlive it."""
    for region in root.operation.regions:
        for block in region.blocks:
            for view in block.operations:
                op = view.operation
                yield op
                if len(op.regions):
                    yield from walk_operations(op)


def is_callback(op: Any) -> bool:
    """Whether an op calls a Python function."""
    if op.name != "stablehlo.custom_call":
        return False
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    return "python" in target and "callback" in target


def dense_value(op: Any) -> ir.DenseElementsAttr | None:
    """The value of a constant op, None where it is no dense array or one the bindings cannot hold (complex numbers)."""
    try:
        value = op.attributes["value"]
    except TypeError:
        return None
    return value if isinstance(value, ir.DenseElementsAttr) else None


def is_splat_constant(op: Any) -> bool:
    """Whether a constant op repeats one value."""
    value = dense_value(op)
    if value is not None:
        return value.is_splat
    return "dense<(" in _unheld_text(op)


def _unheld_text(op: Any) -> str:
    """The text of a constant op whose value the bindings cannot hold; not verified first, which takes 1 ms."""
    return op.get_asm(large_elements_limit=4, use_local_scope=True, assume_verified=True)


def splat_text(op: Any) -> str | None:
    """The number that a constant op repeats, as MLIR writes it; None if it is no such constant."""
    if op.name != "stablehlo.constant" or not is_splat_constant(op):
        return None
    value = dense_value(op)
    text = _unheld_text(op) if value is None else str(value)
    begin = text.index("dense<") + len("dense<")
    return text[begin : text.index(">", begin)]


_OWN_FILES = str(pathlib.Path(__file__).parents[1]) + os.sep
for _calling in ("api", "jaxpr"):  # what they call has the line of their own caller; the demo's lines are its own
    _source_info_util.register_exclusion(_OWN_FILES + _calling + os.sep)
_LIBRARIES = ("/jax/_src/", "/jax/experimental/", "<frozen ", _OWN_FILES)
_INSTALLED = ("/site-packages/", "/dist-packages/", sysconfig.get_path("stdlib") + os.sep)
"""In the paths of what users did not write themselves: installed packages and Python's own."""
_PRIMITIVE = re.compile(r"/([\w-]+)\)$")
"""At the end of a source line as `source_line` gives it."""
_SLASH = re.compile(r"/(?![^(]*\))")
"""Between the parts of JAX's name stack, not within parentheses."""
_FUNCTION = re.compile(r"p?jit\(.*\)")
_TRANSFORMED = re.compile(r"(?:jvp|transpose|vmap|linearize|checkpoint|remat)\((.*)\)")
"""How JAX writes the names of functions and of transformations into its name stack (`jax/_src/source_info_util.py`)."""
_CONTROL_FLOW = re.compile(
    r"while|scan|body|cond|branch_\d+_fun|closed_call|core_call|checkpoint|remat|rematted_computation|shard_map"
    r"|custom_[jv]+p_call|custom_lin|.*->.*|"
)
"""Names in the stack that JAX's primitives add for the functions they call, and einsum with its subscripts."""
_ZEROS = frozenset({"0.000000e+00", "0", "false", "(0.000000e+00,0.000000e+00)"})


def is_zero(value: Any) -> bool:
    """Whether a value is a constant of zeros, broadcast or not."""
    owner = value.owner
    name = getattr(owner, "name", "")
    if name == "stablehlo.broadcast_in_dim":
        return is_zero(owner.operands[0])
    return name == "stablehlo.constant" and splat_text(owner) in _ZEROS


def is_constant(value: Any) -> bool:
    """Whether a value is a constant."""
    return getattr(value.owner, "name", "") == "stablehlo.constant"


def module_of(op: Any) -> Any:
    """The module that an op is in."""
    while op.name != "builtin.module":
        op = op.parent
    return op


def same_attributes(a: Any, b: Any, but: str = "") -> bool:
    """Whether two ops have equal attributes, one aside; False also where the bindings cannot hold one (complex)."""
    try:
        first, second = ({name: op.attributes[name] for name in op.attributes if name != but} for op in (a, b))
        return first == second
    except TypeError:
        return False


def source_line(location: ir.Location) -> str:
    """The innermost user source position of a location as "file:line (name)", or "" where none is known.

    Frames of installed packages are skipped where a frame outside exists: the user's line that calls a layer says more
    than one of the layer's. Of packages' frames those of jax itself and of this one are skipped where there are others.
    """
    names, best, rank = "", "", 3
    for found in _names_and_frames(location):
        if isinstance(found, str):
            names = names or f" ({found})"
        elif (of_frame := _frame_rank(found.filename)) < rank:
            best, rank = f"{found.filename}:{found.start_line}", of_frame
        if names and rank == 0:
            break
    return f"{best}{names}" if best else ""


@functools.lru_cache(maxsize=4096)
def _frame_rank(file: str) -> int:
    """0 for a user's file, 1 for one of an installed package, 2 for one of jax or of this package."""
    if any(library in file for library in _LIBRARIES):
        return 2
    return int(any(installed in file for installed in _INSTALLED))


def primitive_name(source: str) -> str:
    """The name of the JAX primitive in what `source_line` gives: "sort" of "a.py:3 (jit(f)/sort)"; "" if unknown."""
    match = _PRIMITIVE.search(source)
    return match[1] if match is not None else ""


def named_scope(source: str) -> str:
    """The user's scopes in what `source_line` gives: "layer/mlp" of "a.py:3 (jit(f)/jvp(layer)/while/body/mlp/dot)".

    Names of functions, transformations and control flow, which JAX adds, are left out; "" if no scope is left.
    """
    path = source.partition(" (")[2].removesuffix(")")
    parts = _SLASH.split(path)[:-1]
    return "/".join(filter(None, map(_user_scope, parts)))


def _user_scope(part: str) -> str:
    """A part of JAX's name stack without its transformations: "layer" of "transpose(jvp(layer))"; "" of JAX's own."""
    if transformed := _TRANSFORMED.fullmatch(part):
        return _user_scope(transformed[1])
    return "" if _FUNCTION.fullmatch(part) or _CONTROL_FLOW.fullmatch(part) else part


def _names_and_frames(location: Any) -> Iterator[Any]:
    """The names in a location and the positions of its frames, each from the inside out; there may be hundreds."""
    stack = [location]
    while stack:
        top = stack.pop()
        if isinstance(top, ir.NameLoc):
            yield top.name_str
            stack.append(top.child_loc)
        elif isinstance(top, ir.CallSiteLoc):
            stack += top.caller, top.callee
        elif isinstance(top, ir.FusedLoc):
            stack.extend(reversed(top.locations))
        elif isinstance(top, ir.FileLineColLoc):
            yield top


def resolve_in_shardings(traced: Any) -> tuple[Any, ...]:
    """The shardings of the arguments of a `jax.stages.Traced`, as JAX will lower it."""
    return tuple(_PJIT._resolve_in_shardings(traced._meta_tys_flat, traced._params["in_shardings"]))
