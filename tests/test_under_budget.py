"""`budget`: every `jit` called in the block is planned as under `shm.jit`, nothing outside of it, nothing twice."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import traceback
import weakref
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import stablehlo_mem as shm
from stablehlo_mem.planner import budget_loop

N = 768
MIB = 2**20
BUDGET = MIB
"""Of a program over pairs of N values, which take 2.25 MiB."""


def energy(x):
    """A sum over all pairs, of each row of them one."""
    return jnp.exp(-((x[:, None] - x[None]) ** 2)).sum(1)


X = np.linspace(0, 1, N, dtype=np.float32)
WANT = np.exp(-((X[:, None].astype(np.float64) - X[None]) ** 2)).sum(1)


def close(got, want=WANT):
    np.testing.assert_allclose(got, want, rtol=1e-5)


def fired(plan):
    return bool(plan.steps) and plan.before.peak_bytes > plan.budget_bytes >= plan.after.peak_bytes


@pytest.fixture
def planned(monkeypatch):
    """The plans that are made, in order."""
    made = []
    real = budget_loop.keep_budget

    def keep_budget(*args: Any):
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(budget_loop, "keep_budget", keep_budget)
    return made


def fresh():
    """The function under a `jit` of which JAX has nothing in its caches."""
    return jax.jit(lambda x: energy(x))


def test_a_jit_is_planned_in_the_block(planned):
    with shm.budget(BUDGET) as block:
        close(fresh()(X))
    (plan,) = block.plans
    assert fired(plan)
    assert planned == [plan]


def test_what_was_compiled_outside_is_not_run_inside_nor_the_other_way_round(planned):
    f = fresh()
    outside = f(X)
    for _ in range(2):
        with shm.budget(BUDGET) as block:
            close(f(X))
        assert fired(*block.plans)
        assert (f(X) == outside).all()
    assert len(planned) == 1
    for _ in range(2):
        with shm.budget("5KiB"), pytest.raises(shm.BudgetError, match="below the arguments and outputs alone"):
            f(X)
        f(X)


def test_blocks_trace_nothing_and_plan_nothing_again(planned):
    traced = []

    @jax.jit
    def f(x):
        traced.append(x)
        return energy(x)

    f(X)
    for _ in range(3):
        with shm.budget(BUDGET) as block:
            f(X)
            f(X)
        assert len(block.plans) == 1
    assert len(planned) == len(traced) == 1
    with shm.budget(BUDGET // 2):
        f(X)
    assert len(planned) == 2


def test_only_the_outermost_jit_is_a_program():
    f = fresh()
    with shm.budget(BUDGET) as block:
        jax.jit(lambda x: f(f(x) / N))(X)
    assert len(block.plans) == 1


def test_derivatives_within_a_jit_are_a_part_of_its_program():
    f = fresh()
    step = jax.jit(jax.value_and_grad(lambda x: f(x).sum()))
    want = step(X)
    with shm.budget(BUDGET) as block:
        got = step(X)
    assert fired(*block.plans)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3), got, want)


def test_derivatives_outside_of_a_jit_are_two_programs():
    """The first returns what JAX saves for the second: here what it needs for exp, all pairs."""
    f = fresh()
    want = jax.grad(lambda x: f(x).sum())(X)
    with shm.budget("7MiB") as block:
        got = jax.grad(lambda x: f(x).sum())(X)
    assert len(block.plans) == 2
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_vmap_is_planned_as_the_program_of_the_batch():
    f = fresh()
    with shm.budget(BUDGET) as block:
        close(jax.vmap(f)(X.reshape(1, -1))[0])
    assert fired(*block.plans)


def test_functions_with_derivatives_of_their_own():
    f = fresh()
    g = jax.custom_jvp(lambda x: f(x))
    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0]))
    h = jax.custom_vjp(lambda x: f(x))
    h.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    with shm.budget(BUDGET) as block:
        close(g(X))
        close(jax.jvp(g, (X,), (X,))[0])
        close(h(X))
        close(jax.vmap(h)(X[None])[0])
    assert block.plans
    assert all(map(fired, block.plans))


def test_loops_outside_of_a_jit_are_programs(planned):
    def body(carry, _):
        return energy(carry) / N, None

    want, _ = jax.lax.scan(body, X, length=2)
    for _ in range(2):
        with shm.budget(BUDGET) as block:
            got, _ = jax.lax.scan(body, X, length=2)
            jax.lax.fori_loop(0, 2, lambda _, x: body(x, None)[0], got)
            close(jax.lax.cond(True, energy, lambda x: x, X))
        np.testing.assert_allclose(got, want, rtol=1e-5)
        assert all(map(fired, block.plans))
        assert len(block.plans) == 3


def test_donation_is_kept():
    step = jax.jit(lambda x: energy(x), donate_argnums=0)
    x = jnp.array(X)
    with shm.budget(BUDGET) as block:
        close(step(x))
    assert x.is_deleted()
    (plan,) = block.plans
    assert fired(plan)
    assert plan.after.alias_bytes == X.nbytes


def test_static_and_keyword_arguments_and_trees():
    step = jax.jit(lambda mode, x, *, options: {"out": energy(x["x"]) * options[mode]}, static_argnums=0)
    with shm.budget(BUDGET) as block:
        close(step("twice", {"x": X}, options={"twice": 2.0})["out"], 2 * WANT)
    assert fired(*block.plans)


def test_captured_arrays_are_arguments():
    x = jnp.array(X)
    f = jax.jit(lambda: energy(x))
    with shm.budget(BUDGET) as block:
        close(f())
        close(f())
    assert fired(*block.plans)


def test_keys_callbacks_and_references():
    seen = []

    @jax.jit
    def step(key, x, total):
        io_callback(seen.append, None, x[0])
        out = energy(x) + 0 * jax.random.normal(key, x.shape)
        total[...] += out.sum()
        return out

    total = jax.new_ref(jnp.float32(0))
    with shm.budget(BUDGET) as block:
        for _ in range(2):
            close(step(jax.random.key(0), X, total))
    assert fired(*block.plans)
    np.testing.assert_allclose(total[...], 2 * WANT.sum(), rtol=1e-5)
    jax.effects_barrier()
    assert len(seen) == 2


def test_nans_are_found():
    """As JAX does: the function is called operation by operation, some of which take more than the budget."""
    f = jax.jit(lambda x: jnp.log(energy(x) - 2 * N))
    with jax.debug_nans(True), shm.budget(BUDGET), pytest.raises(FloatingPointError, match="nan"):
        f(X)


def test_without_jit_nothing_is_a_program():
    f = fresh()
    with jax.disable_jit(), shm.budget(BUDGET) as block:
        close(f(X))
    assert block.plans == ()


def test_other_threads_are_not_in_the_block(planned):
    f, done = fresh(), []
    thread = threading.Thread(target=lambda: done.append(f(X)))
    with shm.budget(BUDGET):
        thread.start()
        thread.join()
        close(*done)
        assert planned == []
        f(X)
    assert len(planned) == 1


def test_threads_have_blocks_of_their_own():
    f, blocks = fresh(), {}

    def call(nbytes):
        with shm.budget(nbytes) as blocks[nbytes]:
            close(f(X))

    threads = [threading.Thread(target=call, args=(nbytes,)) for nbytes in (BUDGET, BUDGET // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {nbytes: plan.budget_bytes for nbytes, block in blocks.items() for plan in block.plans} == {
        BUDGET: BUDGET,
        BUDGET // 2: BUDGET // 2,
    }


def test_an_error_ends_the_block(planned):
    f = fresh()
    with pytest.raises(KeyError), shm.budget(BUDGET):
        raise KeyError
    f(X)
    assert planned == []
    with shm.budget("5KiB") as block:
        with pytest.raises(shm.BudgetError):
            f(X)
        close(fresh()(X[:8]), np.exp(-((X[:8, None] - X[None, :8]) ** 2)).sum(1))
    assert [plan.steps for plan in block.plans] == [()]


def test_an_error_names_the_program_and_says_what_to_do():
    """What is not under `jit` returns each array: here all pairs."""
    with shm.budget(BUDGET), pytest.raises(shm.BudgetError) as caught:
        jnp.subtract(X[:, None], X[None])
    assert str(caught.value).splitlines()[-2:] == [
        "The program is jit(subtract).",
        "Outside of jax.jit each function of jax.numpy is a program, which returns its result whole, and jax.grad "
        "makes two, of which the first returns all that is saved for the second: put what calls them (the gradient, "
        "the initialisation of a model) under jax.jit, or outside of the block.",
    ]


def test_blocks_in_blocks(planned):
    f = fresh()
    with shm.budget(BUDGET) as outer:
        with shm.budget(BUDGET // 2) as inner:
            f(X)
        assert outer.plans == ()
        f(X)
    assert [plan.budget_bytes for plan in (*inner.plans, *outer.plans)] == [BUDGET // 2, BUDGET]


def test_a_decorator(planned):
    f = fresh()

    @shm.budget(BUDGET)
    def train(x):
        return f(f(x) / N)

    train(X)
    train(X)
    assert len(planned) == 1


def test_a_function_keeps_its_own_budget():
    f = shm.jit(lambda x: energy(x), budget=BUDGET // 2)
    with shm.budget(BUDGET) as block:
        close(f(X))
    assert [plan.budget_bytes for plan in block.plans] == [BUDGET // 2]


def test_small_programs_are_not_planned(planned):
    with shm.budget("1GiB") as block:
        close(fresh()(X))
        (X + jnp.ones(N)).sum().block_until_ready()
    assert planned == []
    assert block.plans == ()


def test_of_the_device_is_a_budget():
    with shm.budget("90% of device") as block:
        close(fresh()(X))
    assert block.plans == ()


def test_objects_remember_where_they_were_made():
    """As flax.nnx does, which changes no variable that was made in another trace."""
    state = jax.extend.core.get_opaque_trace_state(convention="nnx")
    with shm.budget(BUDGET):
        assert jax.extend.core.get_opaque_trace_state(convention="nnx") == state


@pytest.mark.parametrize("budget", [BUDGET, "1GiB"], ids=["planned", "small"])
def test_it_keeps_no_function_and_no_array_alive(budget):
    def called():
        captured = jnp.array(X)
        f: Any = jax.jit(lambda x: energy(x) + captured)
        f(X)
        return [weakref.ref(x) for x in (f.__wrapped__, captured, f.trace(X).jaxpr)]

    with shm.budget(budget) as block:
        alive = called()
        gc.collect()
        assert [x() for x in alive] == [None] * 3
    assert len(block.plans) == (budget == BUDGET)


@pytest.mark.parametrize("budget", ["25%", "min", None])
def test_budgets_of_one_program_are_refused(budget):
    with (
        pytest.raises(shm.InputError, match="is of one program, and a block runs many: give bytes"),
        shm.budget(budget),
    ):
        pass


def test_a_block_in_a_traced_function_is_refused():
    @jax.jit
    def f(x):
        with shm.budget(BUDGET):
            return energy(x)

    with pytest.raises(shm.InputError, match="put the budget around the call of it"):
        f(X)


def test_a_mesh_is_set_around_the_block():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh), shm.budget(BUDGET) as block:
        close(fresh()(X))
    assert fired(*block.plans)
    with shm.budget(BUDGET), pytest.raises(ValueError, match="set_mesh"), jax.set_mesh(mesh):  # JAX's own refusal
        pass


SHARDED = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec
import stablehlo_mem as shm

mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
rows = NamedSharding(mesh, PartitionSpec("rows"))
x = jax.device_put(jax.random.normal(jax.random.key(0), (4, 512, 64)), rows)

def attend(x):
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x, x)), x)

functions = attend, jax.shard_map(attend, mesh=mesh, in_specs=rows.spec, out_specs=rows.spec)
for function in functions:
    want = jax.jit(function, out_shardings=rows)(x)
    with shm.budget("1MiB") as block:
        got = jax.jit(function, out_shardings=rows)(x)
    (plan,) = block.plans
    assert plan.steps and plan.after.peak_bytes <= 2**20 < plan.before.peak_bytes, plan
    assert got.sharding == rows and jnp.allclose(got, want, rtol=1e-5, atol=1e-5)

for around in (lambda f: jax.jit(jax.shard_map(f, mesh=mesh, in_specs=rows.spec, out_specs=rows.spec)), jax.pmap):
    try:
        around(shm.jit(attend, "1MiB"))(x if around is not jax.pmap else x[:, None])
    except shm.InputError as error:
        assert "inside a shard_map or pmap of 4 devices" in str(error)
    else:
        raise AssertionError("it was planned without the mesh")

def noisy(key, x):
    return attend(x) + jax.random.normal(jnp.ravel(key)[0], x.shape), jax.random.split(jnp.ravel(key)[0], 4)

for key in jax.random.key(1), jax.random.split(jax.random.key(1), 4):
    for on_mesh in PartitionSpec(), PartitionSpec("rows") if key.ndim else PartitionSpec():
        given = jax.device_put(key, NamedSharding(mesh, on_mesh)), x
        for settings in {}, {"in_shardings": (NamedSharding(mesh, on_mesh), rows)}:
            want = jax.jit(noisy, **settings)(*given)
            with shm.budget("1.5MiB") as block:
                got = jax.jit(noisy, **settings)(*given)
            plan = block.plans[-1]  # after those of the same program with keys that lie otherwise
            assert plan.steps and plan.after.peak_bytes <= 1.5 * 2**20 < plan.before.peak_bytes, plan
            assert jnp.allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
            assert (jax.random.key_data(got[1]) == jax.random.key_data(want[1])).all()
"""
"""Attention over 4 x 512 tokens whose scores, one of four on each device, take 1 MiB."""


def test_the_budget_is_that_of_each_device():
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", SHARDED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_programs_inside_of_operations_are_planned(planned):
    """Outside of `jit`, where JAX would evaluate what is inside one by one."""
    exported = jax.export.export(jax.jit(energy), platforms=["cpu"])(X)
    for call in (
        jax.checkpoint(jax.jit(energy)),
        exported.call,
        jax.jit(exported.call),
        lambda x: jax.vmap(jax.checkpoint(energy))(x[None])[0],
    ):
        with shm.budget(BUDGET) as block:
            close(call(X))
        assert any(map(fired, block.plans)), call


def test_a_block_may_be_entered_again(planned):
    block = shm.budget(BUDGET)
    for _ in range(2):
        with block as entered:
            close(jax.jit(fresh())(X))
        assert fired(entered.plans[0])


def test_blocks_that_do_not_nest_are_refused_and_leave_no_budget(planned):
    first, second = shm.budget(BUDGET), shm.budget(2 * BUDGET)
    first.__enter__()
    second.__enter__()
    for block in (first, second):
        with pytest.raises(shm.InputError, match="a block ends before one that began in it"):
            block.__exit__(None, None, None)
    close(jax.jit(fresh())(X))
    assert planned == []


def test_what_runs_after_its_call_is_no_function_to_decorate():
    def steps():
        yield jax.jit(energy)(X)

    async def train():
        return jax.jit(energy)(X)

    for function in (steps, train):
        with pytest.raises(shm.InputError, match="runs after its call has returned: put the block inside"):
            shm.budget(BUDGET)(function)


def test_what_is_free_is_looked_up_for_each_block(monkeypatch, planned):
    from stablehlo_mem.planner import shares

    function = jax.jit(fresh())
    free = [16 * 2**30, BUDGET]
    monkeypatch.setattr(shares, "device_memory", lambda _: (16 * 2**30, free[0]))
    for _ in range(2):
        with shm.budget("device") as block:
            close(function(X))
        free.pop(0)
        free.append(BUDGET)
    assert fired(block.plans[0])


def test_an_error_is_printed_once():
    """JAX makes a cause of the whole text of what a lowering raises."""

    def whole(x):
        return jnp.sort((x[:, None] * x).ravel())[::7].sum()

    def in_block(x):
        with shm.budget("100KiB"):
            return jax.jit(whole)(x)

    for call in in_block, shm.jit(whole, "100KiB"):
        with pytest.raises(shm.BudgetError) as caught:
            call(X)
        text = "".join(traceback.format_exception(caught.value))
        assert text.count("stands in the way") == str(caught.value).count("stands in the way") > 0
        assert "JaxStackTraceBeforeTransformation: whole is compiled within a budget" in text
