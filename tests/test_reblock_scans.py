"""reblock-scans: associative scans in loops over blocks."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.ir.bindings import clone_module
from stablehlo_mem.ir.graph import entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options
from stablehlo_mem.passes.reblock_scans import ReblockScans
from stablehlo_mem.sharding_rules.associative_scan_matcher import find_scans
from stablehlo_mem.targets.chips import CHIPS
from tests.support import (
    UNOPTIMISED,
    exported,
    graph_of,
    in_f64,
    is_float,
    memory_of,
    normal,
    normals,
    program_of,
    run,
    same_bits,
    spec,
    yardstick,
)

scan = jax.lax.associative_scan
GOAL = Goal(CHIPS["cpu"], Options(), 0)


def linear(left: Any, right: Any) -> Any:
    """h[t] = a[t] h[t-1] + b[t]."""
    return right[0] * left[0], right[0] * left[1] + right[1]


def recurrence(a: Any, b: Any) -> Any:
    """A layer of a state space model: what goes into the scan and what comes out of it is computed around it."""
    return jnp.tanh(scan(linear, (jnp.exp(-(a**2)), b * a))[1]) + b


def turns(angles: Any) -> Any:
    """Products of rotations, each the sum of products of all parts of the two."""

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0] - left[1] * right[1], left[0] * right[1] + left[1] * right[0]

    return jnp.stack(scan(combine, (jnp.cos(angles), jnp.sin(angles))))


def products(matrices: Any, weights: Any) -> Any:
    """Each product has one matrix between: what all combinations share."""
    combine = lambda l, r: jnp.einsum("tij,jk,tkl->til", l, weights / 2, r)  # noqa: E731, E741
    return scan(combine, matrices / 4).sum((1, 2))


def complex_states(a: Any, b: Any) -> Any:
    """A diagonal state space model whose states turn."""
    factors = jax.lax.complex(jnp.cos(a), jnp.sin(a)) * 0.9
    states = scan(linear, (factors, jax.lax.complex(b, 2 * b)))[1]
    return jnp.real(states) + jnp.imag(states)


def both(a: Any, b: Any) -> Any:
    """One scan of what another gives."""
    return scan(jnp.maximum, scan(linear, (a, b))[1])


def smoothed(a: Any, b: Any) -> Any:
    """Back from the end, as what rewards to come are worth: generalised advantages, smoothers."""
    return jnp.tanh(scan(linear, (jnp.exp(-(a**2)), b * a), reverse=True)[1]) + b


def there_and_back(a: Any, b: Any) -> Any:
    """A filter, and a smoother of what it gives."""
    return scan(linear, (a, scan(linear, (a, b))[1]), reverse=True)[1]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "recurrence": (recurrence, lambda n: (normals(n), normals(n, seed=1))),
    "recurrence_of_rows": (lambda a, b: recurrence(a, b).sum(1), lambda n: (normals(n, 3), normals(n, 3, seed=1))),
    "recurrence_along_columns": (
        lambda a, b: jax.vmap(recurrence)(a, b),
        lambda n: (normals(2, n), normals(2, n, seed=1)),
    ),
    "all_results": (lambda a, b: scan(linear, (a, b)), lambda n: (normals(n), normals(n, seed=1))),
    "turns": (turns, lambda n: (normals(n),)),
    "matmuls": (lambda m: scan(jnp.matmul, jnp.sin(m) / 2), lambda n: (normals(n, 2, 2),)),
    "weighted_products": (products, lambda n: (normals(n, 2, 2), normals(2, 2))),
    "complex_states": (complex_states, lambda n: (normals(n), normals(n, seed=1))),
    "both": (both, lambda n: (normals(n), normals(n, seed=1))),
    "smoothed": (smoothed, lambda n: (normals(n), normals(n, seed=1))),
    "smoothed_rows": (
        lambda a, b: scan(linear, (a, b), reverse=True, axis=1)[1],
        lambda n: (normals(2, n), normals(2, n, seed=1)),
    ),
    "all_results_back": (lambda a, b: scan(linear, (a, b), reverse=True), lambda n: (normals(n), normals(n, seed=1))),
    "there_and_back": (there_and_back, lambda n: (normals(n), normals(n, seed=1))),
    "advantages": (
        lambda r: scan(linear, (jnp.full(r.shape, 0.95), jnp.sin(r)), reverse=True)[1],
        lambda n: (normals(n),),
    ),
    "read_both_ways": (
        lambda x: scan(jnp.maximum, jnp.sin(x), reverse=True) + scan(jnp.maximum, jnp.sin(x)),
        lambda n: (normals(n),),
    ),
    "integers": (lambda x: scan(jnp.add, x * x), lambda n: (np.arange(n, dtype=np.int32),)),
    "predicates": (lambda x: scan(jnp.logical_or, x > 1.5), lambda n: (normals(4 * n),)),
    "narrow": (lambda x: scan(jnp.maximum, x.astype(jnp.bfloat16)), lambda n: (normals(4 * n),)),
    "in_layers": (
        lambda a, b: jax.lax.scan(lambda h, w: (recurrence(h * w, h), None), a, b)[0],
        lambda n: (normals(n), normals(2)),
    ),
}


def candidates(module: Any) -> list[Candidate]:
    graph = entry_graph(module)
    found = ReblockScans().propose(graph, find_peak(graph, GOAL.chip), GOAL)
    return [c for c in found if isinstance(c, Candidate)]


def reblocked(module: Any, candidate: Candidate, chunk: int) -> Any:
    new = clone_module(module)
    ReblockScans().apply(new, candidate.resized(candidate_size(candidate, chunk)).step.params)
    assert new.operation.verify()
    return new


def candidate_size(candidate: Candidate, chunk: int) -> Any:
    size = candidate.sizes[0]
    return dataclasses.replace(size, params=dataclasses.replace(size.params, chunk=chunk))


RAGGED = [(name, 261, 100) for name in PROGRAMS]
EVEN = [(name, 256, 64) for name in list(PROGRAMS)[::4]]


@pytest.mark.parametrize(("name", "n", "chunk"), RAGGED + EVEN)
def test_results_are_the_same(name: str, n: int, chunk: int):
    f, arguments = PROGRAMS[name]
    args = arguments(n)
    program = program_of(f, *args)
    module = normal(program)
    found = candidates(module)
    assert found
    after = reblocked(module, found[0], chunk)
    new, old = (run(program, one, *args) for one in (after, module))
    results = zip(new, old, in_f64(f, *args), strict=True)
    for new, old, true in results:
        assert yardstick(new, old, true) is None if is_float(old) else same_bits(new, old)
    assert "stablehlo.composite" not in str(after)
    assert str(after).count("func.func") == 1


def test_blocks_of_one_element():
    args = normals(257), normals(257, seed=1)
    program = program_of(recurrence, *args)
    module = normal(program)
    (new,) = run(program, reblocked(module, candidates(module)[0], 1), *args)
    (old,), (true,) = run(program, module, *args), in_f64(recurrence, *args)
    assert yardstick(new, old, true) is None


@pytest.mark.parametrize("n", [8, 9, 10, 11, 12, 13, 14, 15, 16, 31, 100])
def test_trees_of_any_size_are_found(n: int):
    assert len(find_scans(graph_of(program_of(recurrence, normals(n), normals(n))))) == 1
    assert len(find_scans(graph_of(program_of(both, normals(n), normals(n))))) == 2


def halves(x: Any) -> Any:
    """A tree that combines otherwise on its second level."""
    combine = lambda l, r: l + r if l.shape[0] != 16 else l * r  # noqa: E731, E741
    return scan(combine, x)


def by_place(x: Any) -> Any:
    return scan(lambda l, r: l + r * jnp.arange(l.shape[0]), x)  # noqa: E741


def of_none(x: Any) -> Any:
    """A scan, beside which the others are none."""
    y = x * x
    return scan(lambda l, r: l + r + 2, y)  # noqa: E741


def of_all(x: Any) -> Any:
    """A combination that reads what is made of all elements."""
    y = x * x
    return scan(lambda l, r: l + r + y.sum(), y)  # noqa: E741


def of_one(x: Any) -> Any:
    """And of one of them, which the tree reads as well."""
    y = x * x
    return scan(lambda l, r: l + r - y[0], y)  # noqa: E741


def of_any(x: Any) -> Any:
    y = x * x
    return scan(lambda l, r: l + r + y[y.argmax()], y)  # noqa: E741


@pytest.mark.parametrize(
    ("f", "found", "proposed"),
    [(of_none, 1, 1), (halves, 0, 0), (by_place, 1, 0), (of_all, 1, 0), (of_one, 1, 0), (of_any, 1, 0)],
)
def test_what_is_no_scan_is_left_alone(f: Callable[..., Any], found: int, proposed: int):
    program = program_of(f, normals(256))
    assert len(find_scans(graph_of(program))) == found
    assert len(candidates(normal(program))) == proposed


@pytest.mark.parametrize(
    ("f", "specs"),
    [
        (recurrence, (spec(2**19), spec(2**19))),
        (smoothed, (spec(2**19), spec(2**19))),
        (lambda m: scan(jnp.matmul, jnp.sin(m) / 2).sum((1, 2)), (spec(2**15, 4, 4),)),
        (
            lambda x, w: jax.lax.scan(lambda h, a: (scan(linear, (jnp.tanh(h * a), h))[1], None), x, w)[0].sum(),
            (spec(2**19), spec(4)),
        ),
    ],
)
def test_keeps_the_budget(f: Callable[..., Any], specs: tuple[Any, ...]):
    fixed, temporaries = memory_of(jax.jit(f).lower(*specs).compile(compiler_options=UNOPTIMISED))
    budget = fixed + temporaries * 5 // 8
    plan = shm.plan(exported(f, *specs), budget, target="cpu")
    assert plan.before.peak_bytes > budget
    assert plan.fits
    assert "composite" not in "".join(plan.summaries)
    assert "reblock-scans" in {step.pass_name for step in plan.steps}
    compiled = jax.jit(plan.result.call).lower(*specs).compile(compiler_options=UNOPTIMISED)
    assert sum(memory_of(compiled)) <= budget


def test_exact_numerics_leave_sums_of_floats_as_they_are():
    specs = spec(2**18), spec(2**18)
    options = Options(numerics="exact", passes=("reblock-scans",))
    assert not shm.plan(exported(recurrence, *specs), "min", target="cpu", options=options).steps
    ints = exported(PROGRAMS["integers"][0], spec(2**18, dtype=np.int32))
    assert shm.plan(ints, "min", target="cpu", options=options).steps


def test_scans_in_loops_are_found_in_their_bodies():
    f, arguments = PROGRAMS["in_layers"]
    graph = graph_of(program_of(f, *arguments(64)))
    loop = next(op for op in graph.ops if op.name == "stablehlo.while")
    assert len(find_scans(nested_graph(graph, ((loop.index, 1),)))) == 1
