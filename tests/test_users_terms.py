"""Refusals of rewritten programs, in the user's terms: no loop that the planner wrote is named."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stablehlo_mem as shm
from stablehlo_mem.pass_api.candidate import Refusal
from stablehlo_mem.planner.users_terms import in_users_terms
from stablehlo_mem.results.plan import Plan
from tests.support import graph_of, program_of, spec


def filtered(filters, x):
    spectrum = jnp.fft.rfft(filters)
    return (jnp.fft.irfft(jnp.fft.rfft(jnp.tanh(x)) * spectrum) ** 2).sum()


def scanned(filters, x):
    return jax.lax.scan(lambda c, row: (c + jnp.sort(filters * row).sum(), None), 0.0, x)[0]


ARGUMENTS = spec(64, 4096), spec(8, 64, 4096)


def missed(function) -> Plan:
    step = jax.export.export(jax.jit(jax.value_and_grad(function)), platforms=["cpu"])(*ARGUMENTS)
    floor = sum(a.size * 4 for a in ARGUMENTS) + ARGUMENTS[0].size * 4 + 4
    return shm.plan(step, floor + 1000, target="cpu", options=shm.Options(cache=False, max_slowdown=None))


def test_an_error_names_lines_of_the_user_and_no_loop_of_the_planner():
    plan = missed(filtered)
    assert not plan.fits
    assert any(step.pass_name == "split-into-loops" for step in plan.steps)
    assert plan.refusals
    lines, first = inspect.getsourcelines(filtered)
    for refusal in plan.refusals:
        assert "while" not in refusal.message + refusal.value, refusal
        assert __file__.rsplit("/", 1)[1] in refusal.location
        number = int(refusal.location.split(".py:")[1].split()[0].split(":")[0])
        assert first <= number < first + len(lines)


def refusal(message: str, value: str = "exponential f32[8]", location: str = "a.py:1", dimension: int = 0) -> Refusal:
    whole = Refusal.at(
        graph_of(program_of(jnp.sin, np.zeros(2, np.float32))), ((), 0), value, 32, "needs-whole-dimension", message
    )
    return dataclasses.replace(whole, location=location, dimension=dimension)


def places(graph):
    """For each op of a program, blocks included, its name and line."""
    for op in graph.ops:
        yield op.name, graph.source(op.index)
        for block in op.blocks:
            yield from places(block)


@pytest.fixture(scope="module")
def original():
    return graph_of(program_of(scanned, *(np.zeros(a.shape, a.dtype) for a in ARGUMENTS)))


def test_what_stands_in_a_loop_of_the_planners_is_named_itself(original):
    where = dict(places(original))["stablehlo.sort"]
    said = f"stablehlo.while stands in the way: in it stablehlo.sort {where}: elements are ordered along it"
    (told,) = in_users_terms([refusal(said)], original)
    assert told.message == "stablehlo.sort stands in the way: elements are ordered along it"
    assert told.location == where


def test_loops_of_the_user_are_named(original):
    found = dict(places(original))
    inner = f"in it stablehlo.sort {found['stablehlo.sort']}: elements are ordered along it"
    said = f"stablehlo.while stands in the way: {inner}"
    (told,) = in_users_terms([refusal(said, location=found["stablehlo.while"])], original)
    assert told.message == said
    nested = f"stablehlo.while stands in the way: in it stablehlo.while {found['stablehlo.while']}: {inner}"
    (told,) = in_users_terms([refusal(nested)], original)
    assert (told.message, told.location) == (said, found["stablehlo.while"])


def test_what_only_ops_of_the_planner_say_is_left_out(original):
    where = dict(places(original))["stablehlo.sort"]
    own = refusal("stablehlo.while stands in the way: in it stablehlo.dynamic_update_slice b.py:2: a part is updated")
    again = refusal("it cannot be computed again", "while f32[1,64,4096]", dimension=-1)
    whole = refusal("it is needed whole", "while f32[1,64,4096]", "a.py:1 (jit(f)/mul)")
    part = refusal("it is needed whole", "while f32[9]", "a.py:1 (jit(f)/mul)")
    users = refusal("stablehlo.sort stands in the way: elements are ordered along it", "sort f32[64,4096]", where)
    told = in_users_terms([own, again, whole, part, users], original)
    assert [r.value for r in told] == ["mul f32[1,64,4096]", "sort f32[64,4096]"]
    assert [r.value for r in in_users_terms([own, part], original)] == ["mul f32[9]"]
    assert in_users_terms([own], original) == (own,)


def test_a_slice_is_named_where_it_is_larger_than_what_is_said_of_the_users(original):
    """The gradient of a Chamfer distance: what is as large as a row of the scores is in the way, not the result."""
    results, rows = (refusal("it is compared", value) for value in ("sort f32[64,4096]", "mul f32[7,64]"))
    large, small = (dataclasses.replace(rows, nbytes=nbytes) for nbytes in (64, 16))
    assert in_users_terms([large, results], original) == (large, results)
    assert in_users_terms([results, small], original) == (results,)
