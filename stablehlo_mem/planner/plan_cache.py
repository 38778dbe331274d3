"""A directory of plans: the steps of an earlier call are replayed instead of searched and compiled.

`budget_loop` reads and writes it. The key of a plan is everything that decides it: the program, the budget, the targets
with their devices and compilers, the options, and all versions. The fingerprint of the module is checked before each
step and after the last, so that the compiler's figures of the earlier call hold.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import pathlib
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import jax

from stablehlo_mem.errors import PassError
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import Program
from stablehlo_mem.ir.bindings import clone_module, fingerprint, ir
from stablehlo_mem.pass_api.candidate import Options
from stablehlo_mem.passes import step_from_plain
from stablehlo_mem.planner.search_state import as_returned, take
from stablehlo_mem.results.plan import Plan
from stablehlo_mem.targets.target import Target
from stablehlo_mem.utils.atomic_write import write_whole
from stablehlo_mem.utils.plain_data import restored
from stablehlo_mem.utils.units import Budget

_log = logging.getLogger(__name__)

_VARIABLE = "STABLEHLO_MEM_CACHE"
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
"""Environment variables with options of the compilers."""
_PLUGINS = ("libtpu", "jax-cuda12-pjrt", "jax-cuda13-pjrt")
PACKAGE = pathlib.Path(__file__).parents[1]
"""The folder of `stablehlo_mem`: a plan that another version of any of its files made is not reused."""


@dataclasses.dataclass(frozen=True)
class CachedPlan:
    """A plan without its programs, and the fingerprint of the optimised module."""

    plan: Plan
    fingerprint: str


def cache_directory() -> pathlib.Path | None:
    """The directory of plans, None for none.

    $STABLEHLO_MEM_CACHE, "" for none; if it is not set, beside JAX's executables, if `jax_compilation_cache_dir` is a
    local directory.
    """
    variable = os.environ.get(_VARIABLE)
    if variable is not None:
        return pathlib.Path(variable).expanduser() if variable else None
    config: Any = jax.config
    directory = config.jax_compilation_cache_dir if config.jax_enable_compilation_cache else None
    return pathlib.Path(directory) / "stablehlo_mem" if directory and "://" not in directory else None


def entry_path(program: Program, budget: Budget, targets: tuple[Target, ...], options: Options) -> pathlib.Path | None:
    """The file of a plan, None without a cache."""
    directory = cache_directory() if options.cache else None
    if directory is None:
        return None
    facts = {
        # Not in canonical form: the compiler's figures are of this module.
        "program": fingerprint(program.module),
        "platforms": program.platforms,
        "donated": program.donated,
        "budget": repr(budget),
        "targets": [_facts(target, program) for target in targets],
        "options": repr(options),
        "versions": [package_digest(), jax.__version__, metadata.version("jaxlib"), *_plugins()],
        "flags": [os.environ.get(name, "") for name in _FLAGS],
    }
    return directory / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()}.plan"


def _facts(target: Target, program: Program) -> list[str]:
    device = target.devices(program.exported.nr_devices if program.exported is not None else 1)[0]
    return [repr(target), device.device_kind, device.client.platform_version]


@functools.cache
def _plugins() -> tuple[str, ...]:
    """The versions of the compilers that are packages of their own."""
    plugins = (d for d in metadata.distributions() if d.metadata["Name"] in _PLUGINS)
    return tuple(sorted(f"{d.metadata['Name']} {d.version}" for d in plugins))


@functools.cache
def package_digest() -> str:
    """A digest of this package's sources: another version may plan otherwise."""
    return sources_digest(PACKAGE)


def sources_digest(root: pathlib.Path) -> str:
    """A digest of all Python files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def read(path: pathlib.Path) -> CachedPlan | None:
    """The plan in a file, None if there is none or the file is damaged."""
    try:
        return parsed(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, *DAMAGED) as error:
        _log.warning("the plan in %s is left aside: %r", path, error)
        return None


def write(path: pathlib.Path, plan: Plan) -> None:
    """Writes a plan, atomically for concurrent readers. A failure is logged."""
    try:
        write_whole(path, serialised(plan))
    except OSError as error:
        _log.warning("the plan is not kept in %s: %r", path, error)


DAMAGED = (ValueError, KeyError, TypeError, AttributeError, StopIteration)
"""The errors of `parsed`."""


def parsed(data: bytes) -> CachedPlan:
    """A plan from its bytes."""
    digest, _, text = data.partition(b"\n")
    if digest != _digest(text):
        raise ValueError("the bytes are damaged")
    entry: dict[str, Any] = json.loads(text)
    steps = tuple(map(step_from_plain, entry["plan"]["steps"]))
    plan = {**entry["plan"], "steps": steps, "result": None, "exported": None, "bytecode": b""}
    return CachedPlan(restored(Plan, plan), entry["fingerprint"])


def serialised(plan: Plan) -> bytes:
    """A plan as bytes, without its programs."""
    text = json.dumps({"fingerprint": fingerprint(plan.module), "plan": json.loads(plan.to_json())}).encode()
    return _digest(text) + b"\n" + text


def _digest(text: bytes) -> bytes:
    """The first line of a file: fingerprints guard the steps but not the figures."""
    return hashlib.sha256(text).hexdigest().encode()


def replay(module: ir.Module, cached: CachedPlan, targets: Iterable[Target]) -> ir.Module | None:
    """A clone of a module after the steps of a plan for targets; None if the result is not that of the earlier call."""
    clone = clone_module(module)
    steps = cached.plan.steps
    if steps:
        canonicalize(clone)
    for i, step in enumerate(steps):
        if fingerprint(clone) != step.input_fingerprint:
            return None
        try:
            take(clone, step, steps[:i])
        except PassError as error:
            _log.warning("a plan of an earlier call cannot be followed: %s", error)
            return None
    clone = as_returned(clone, targets) if steps else clone
    return clone if fingerprint(clone) == cached.fingerprint else None
