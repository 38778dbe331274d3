"""The public calls end to end on the CPU: the budget kept, the result right, and `jit` as `jax.jit` behaves."""

import functools
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import deserialize, export

import stablehlo_mem as shm
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.planner import budget_loop
from stablehlo_mem.targets.measurement import Measured

MIB = 2**20
N = 1024
SPEC = jax.ShapeDtypeStruct((N, 16), jnp.float32)
BUDGET = "2MiB"  # the scores alone are 4 MiB


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 4, axis=-1) @ v


def spectrum(q, k):
    """A transform of all the scores at once: they cannot be split."""
    return jnp.abs(jnp.fft.fft((q @ k.T).reshape(-1)))[:16]


def arrays(*seeds, shape=(N, 16)):
    return [np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed in seeds]


@pytest.fixture
def planned(monkeypatch):
    """The programs that were planned, in order."""
    programs = []
    real = budget_loop.keep_budget

    def keep_budget(program, *args):
        programs.append(program)
        return real(program, *args)

    monkeypatch.setattr(budget_loop, "keep_budget", keep_budget)
    return programs


def exported(fun=attention, count=3, **kwargs):
    return export(jax.jit(fun), **kwargs)(*[SPEC] * count)


def close(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6), got, want)


def test_optimize_keeps_the_budget_and_the_result():
    original = exported()
    before = original.mlir_module_serialized
    result = shm.optimize(original, BUDGET, target="cpu")
    q, k, v = arrays(0, 1, 2)
    plan = shm.plan(original, BUDGET, target="cpu")
    assert plan.before.peak_bytes > 4 * MIB
    assert plan.after.peak_bytes <= 2 * MIB
    assert plan.steps
    assert original.mlir_module_serialized == before
    close(result.call(q, k, v), original.call(q, k, v))


@pytest.mark.parametrize("kind", ["module", "text", "bytes"])
def test_optimize_of_raw_modules(kind):
    module = jax.jit(attention).lower(SPEC, SPEC, SPEC).compiler_ir()
    original = {"module": module, "text": str(module), "bytes": bytes(exported().serialize())}[kind]
    result = shm.optimize(original, BUDGET, target="cpu")
    assert type(result) is type(original)
    measured = shm.profile(result, target="cpu").measured
    assert measured is not None
    assert shm.profile(result, target="cpu").peak_bytes <= 2 * MIB


def test_what_fits_comes_back_as_it_is():
    original = exported()
    assert shm.optimize(original, "1GiB", target="cpu") is original


def test_the_vjp_is_optimised_under_the_same_budget(planned):
    result = shm.optimize(exported(), BUDGET, target="cpu")
    assert len(planned) == 1
    vjp = result.vjp()
    assert len(planned) == 2
    assert shm.profile(vjp, target="cpu").peak_bytes <= 2 * MIB
    q, k, v = arrays(0, 1, 2)
    close(
        jax.grad(lambda q: result.call(q, k, v).sum())(q),
        jax.grad(lambda q: attention(q, k, v).sum())(q),
    )
    assert len(planned) == 2  # made once


def test_export_is_the_hook_applied():
    result = shm.export(jax.jit(attention), budget=BUDGET, target="cpu")(SPEC, SPEC, SPEC)
    again = deserialize(result.serialize(vjp_order=1))
    q, k, v = arrays(0, 1, 2)
    close(again.call(q, k, v), attention(q, k, v))
    assert result.fun_name == "attention"
    assert shm.profile(again, target="cpu").peak_bytes <= 2 * MIB


def test_several_targets_are_several_platforms():
    pytest.importorskip("libtpu")
    result = shm.export(jax.jit(jnp.sin), budget="1GiB", target=("cpu", "tpu:v5e"))(SPEC)
    assert result.platforms == ("cpu", "tpu")


def test_profile_of_a_function_and_of_its_module_agree():
    of_function = shm.profile(attention, SPEC, SPEC, SPEC, target="cpu")
    assert of_function.measured == shm.profile(exported(), target="cpu").measured
    assert of_function.peak_bytes > 4 * MIB
    assert any(live.shape == (N, N) for live in of_function.live)
    assert of_function.argument_bytes == 3 * N * 16 * 4


def test_a_budget_error_says_how_far_it_came():
    with pytest.raises(shm.BudgetError) as caught:
        shm.optimize(exported(spectrum, 2), MIB, target="cpu")
    error = caught.value
    assert error.budget_bytes == MIB < error.reached_bytes <= error.needed_bytes
    assert error.best is not None
    assert not error.best.fits
    assert error.obstacles


def test_jit_plans_once_a_signature(planned):
    fun = shm.jit(attention, budget=BUDGET, target="cpu")
    q, k, v = arrays(0, 1, 2)
    close(fun(q, k, v), attention(q, k, v))
    fun(k, q, v)
    assert len(planned) == 1
    fun(q[:512], k, v)
    assert len(planned) == 2
    fun(q, k, v)
    assert len(planned) == 2
    plan = fun.plan(q, k, v)
    assert plan.fits
    assert plan.steps
    assert plan.after.peak_bytes <= 2 * MIB
    assert len(planned) == 2


def test_jit_with_statics_keywords_and_pytrees(planned):
    @shm.jit(budget="1GiB", static_argnums=1, static_argnames="flip")
    def fun(tree, power, *, flip=False, scale):
        out = jax.tree.map(lambda x: x**power * scale["by"], tree)
        return out[::-1] if flip else {"kept": out}

    (x,) = arrays(0)
    got = fun([x, (x, None)], 2, scale={"by": 3.0})
    close(got, {"kept": [x**2 * 3, (x**2 * 3, None)]})
    close(fun([x, (x, None)], 2, flip=True, scale={"by": 3.0}), [(x**2 * 3, None), x**2 * 3])
    close(fun([x, (x, None)], 3, scale={"by": 2.0}), {"kept": [x**3 * 2, (x**3 * 2, None)]})
    assert len(planned) == 3
    fun([x, (x, None)], 3, scale={"by": 5.0})
    assert len(planned) == 3
    assert fun.__name__ == "fun"


def test_jit_with_shapes_of_the_same_tree_but_other_outputs():
    fun = shm.jit(lambda x: {"matrix": x.T} if x.ndim == 2 else [x, x], budget="1GiB")
    (x,) = arrays(0)
    assert list(fun(x)) == ["matrix"]
    assert len(fun(x[0])) == 2


@pytest.mark.parametrize(
    ("kwargs", "args", "kw"),
    [
        ({"donate_argnums": 0}, ("state", "batch"), {}),
        ({"donate_argnums": 0}, (), {"state": "state", "batch": "batch"}),
        ({"donate_argnames": "state"}, ("state", "batch"), {}),
    ],
)
def test_jit_donates(kwargs, args, kw):
    fun = shm.jit(lambda state, batch: jax.tree.map(lambda s: s + batch, state), budget="1GiB", **kwargs)
    values: dict[str, Any] = {"state": {"w": jnp.ones((512, 512))}, "batch": 1.0}
    args, kw = [values[a] for a in args], {k: values[a] for k, a in kw.items()}
    measured = fun.plan(*args, **kw).before.measured
    assert isinstance(measured, Measured)
    assert measured.alias_bytes == MIB
    fun(*args, **kw)
    assert values["state"]["w"].is_deleted()


def test_jit_does_not_donate_what_is_not():
    fun = shm.jit(lambda state, batch: state + batch, budget="1GiB", donate_argnums=0)
    state, batch = jnp.ones((512, 512)), jnp.ones((512, 512))
    fun(state, batch)
    assert (state.is_deleted(), batch.is_deleted()) == (True, False)


def test_jit_drops_what_is_not_used():
    """As `jax.jit` does; by its own executable and by those of its derivative."""
    fun = shm.jit(lambda q, unused, k, v: attention(q, k, v), budget="600KiB", donate_argnums=(1, 3))
    q, k, v = (jnp.ones((512, 16)) for _ in range(3))
    big = jnp.ones((1024, 1024))
    compiled: Any
    gradient: Any
    (compiled, gradient) = (f.lower(q, big, k, v).compile() for f in (fun, jax.jit(jax.grad(lambda *a: fun(*a).sum()))))
    assert compiled.memory_analysis().argument_size_in_bytes == 3 * q.nbytes
    assert gradient.memory_analysis().argument_size_in_bytes <= 3 * q.nbytes
    plan = fun.plan(q, big, k, v)
    assert plan.before.peak_bytes > 600 * 1024 >= plan.after.peak_bytes
    fun(q, big, k, v)
    assert v.is_deleted()
    assert not k.is_deleted()


TRANSFORMS = {
    "jit": lambda f: jax.jit(f),
    "grad": lambda f: jax.grad(lambda q, k, v: (f(q, k, v) ** 2).sum()),
    "grad of all under jit": lambda f: jax.jit(jax.grad(lambda q, k, v: (f(q, k, v) ** 2).sum(), (0, 1, 2))),
    "value_and_grad": lambda f: jax.value_and_grad(lambda q, k, v: f(q, k, v).mean()),
    "vmap": lambda f: lambda q, k, v: jax.vmap(f, (0, None, 0), out_axes=1)(np.stack([q, 2 * q]), k, np.stack([v, v])),
    "vmap of vmap": lambda f: (
        lambda q, k, v: jax.vmap(jax.vmap(f, (0, None, None)), (None, 2, None))(
            np.stack([q, 2 * q]), np.stack([k, k], -1), v
        )
    ),
    "vmap of grad": lambda f: (
        lambda q, k, v: jax.vmap(jax.grad(lambda q, k: f(q, k, v).sum(), (0, 1)), (None, 0))(q, np.stack([k, 2 * k]))
    ),
    "grad of vmap": lambda f: (
        lambda q, k, v: jax.grad(lambda k: jax.vmap(f, (0, None, None))(np.stack([q, 2 * q]), k, v).sum())(k)
    ),
    "grad of grad": lambda f: (
        lambda q, k, v: jax.grad(lambda k: (jax.grad(lambda q: (f(q, k, v) ** 2).sum())(q) ** 2).sum())(k)
    ),
    "checkpoint": lambda f: jax.grad(lambda q, k, v: jax.checkpoint(f)(q, k, v).sum()),
    "scan": lambda f: lambda q, k, v: jax.lax.scan(lambda c, x: (f(c, k, v), x), q, np.arange(3))[0],
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_jit_under_transformations(transform):
    q, k, v = arrays(0, 1, 2, shape=(24, 4))
    budgeted = shm.jit(attention, budget="1GiB", target="cpu")
    close(transform(budgeted)(q, k, v), transform(attention)(q, k, v))


def test_backward_and_batched_programs_keep_the_budget(planned):
    fun = shm.jit(attention, budget=BUDGET, target="cpu")
    q, k, v = arrays(0, 1, 2)
    close(jax.grad(lambda q: fun(q, k, v).sum())(q), jax.grad(lambda q: attention(q, k, v).sum())(q))
    assert {len(p.main.type.inputs) for p in planned} == {3, 4}  # forward; primals and the cotangent
    planned.clear()
    stacked = np.stack([q[:256], k[:256]])
    close(jax.vmap(fun, (0, None, None))(stacked, k, v), jax.vmap(attention, (0, None, None))(stacked, k, v))
    assert [str(p.main.type.inputs[0]) for p in planned] == ["tensor<2x256x16xf32>"]  # and not the unbatched


def test_gradients_reach_what_the_function_closes_over():
    (w, x) = arrays(0, 1, shape=(4, 4))

    def loss(fun_of, w):
        return fun_of(lambda x: jnp.tanh(x @ w))(x).sum()

    close(
        jax.grad(functools.partial(loss, shm.jit(budget="1GiB")))(w),
        jax.grad(functools.partial(loss, lambda f: f))(w),
    )


def test_integers_keys_and_weak_types_pass_through():
    fun = shm.jit(lambda key, n, x: (jax.random.normal(key, (3,)) * x, n + 1), budget="1GiB")
    key = jax.random.key(0)
    close(fun(key, 3, 2.0), (jax.random.normal(key, (3,)) * 2, 4))
    assert fun(key, 3, 2.0)[1].weak_type
    close(jax.grad(lambda x: fun(key, 3, x)[0].sum())(2.0), jax.random.normal(key, (3,)).sum())
    assert jax.vmap(fun, (0, None, None))(jax.random.split(key, 5), 3, 2.0)[0].shape == (5, 3)


def test_jit_of_a_method_and_without_jit():
    class Scale:
        by = 2.0

        @shm.jit(budget="1GiB", static_argnums=0)
        def __call__(self, x):
            return x * self.by

    (x,) = arrays(0)
    close(Scale()(x), x * 2)
    with jax.disable_jit():
        close(shm.jit(jnp.sin, budget="1GiB")(x), np.sin(x))


def test_jit_over_budget_raises_when_called_and_tells_in_the_plan():
    q, k = arrays(0, 1)
    fun = shm.jit(spectrum, budget=MIB, target="cpu")
    assert not fun.plan(q, k).fits
    with pytest.raises(shm.BudgetError):
        fun(q, k)


def test_the_result_of_optimize_runs_where_there_is_only_jax(tmp_path):
    path = tmp_path / "attention"
    path.write_bytes(shm.optimize(exported(), BUDGET, target="cpu").serialize())
    script = f"""
import sys
for name in ("stablehlo_mem", "rich"):
    sys.modules[name] = None
import numpy, jax.export
program = jax.export.deserialize(bytearray(open({str(path)!r}, "rb").read()))
print(program.call(*[numpy.ones((1024, 16), "float32")] * 3).sum())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(N * 16, rel=1e-5)


def test_the_plan_gives_a_module_to_change():
    plan = shm.plan(exported(), BUDGET, target="cpu")
    assert plan.module is not plan.module
    new, old = ingest(plan.result), ingest(exported())
    assert str(new.main.type) == str(old.main.type)
    assert plan.exported is plan.result


def test_planning_for_a_chip_that_is_not_here_is_fine_and_running_is_not():
    pytest.importorskip("libtpu")
    q, k, v = arrays(0, 1, 2)
    fun = shm.jit(attention, budget="1GiB", target="tpu:v5e")
    assert fun.plan(q, k, v).target == ("tpu:v5e",)
    with pytest.raises(shm.TargetError, match="tpu:v5e.*does not run here"):
        fun(q, k, v)


def test_constants_of_derivatives_and_batches_come_along():
    table = np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)

    @jax.custom_vjp
    def scaled(x):
        return x @ jnp.asarray(table)

    scaled.defvjp(lambda x: (scaled(x), x), lambda x, ct: (ct @ jnp.asarray(table[::-1].copy()) * x,))
    fun = shm.jit(scaled, budget="1GiB")
    (x,) = arrays(0, shape=(24, 24))
    close(fun(x), scaled(x))
    close(jax.vmap(fun)(np.stack([x, 2 * x])), jax.vmap(scaled)(np.stack([x, 2 * x])))
    close(jax.grad(lambda x: fun(x).sum())(x), jax.grad(lambda x: scaled(x).sum())(x))
