"""`jit` as a drop-in for `jax.jit`: derivatives within the budget, effects as often and in the order as without us."""

import copy
import functools
import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name, print_saved_residuals
from jax.experimental import checkify, io_callback
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import stablehlo_mem as shm
from stablehlo_mem.planner import budget_loop
from stablehlo_mem.targets.compile import hlo_constant_bytes
from stablehlo_mem.targets.measurement import Measured

N = 768
MIB = 2**20
SCALAR = jax.ShapeDtypeStruct((), jnp.float32)
X = np.linspace(0.1, 1, 4, dtype=np.float32)


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 4, axis=-1) @ v


def energy(x):
    """A sum over all pairs."""
    return jnp.exp(-((x[:, None] - x[None]) ** 2)).sum()


def arrays(count, *shape):
    return [np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed in range(count)]


def close(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5), got, want)


@pytest.fixture
def plans(monkeypatch):
    """The plans that were made, in order."""
    made = []
    real = budget_loop.keep_budget

    def keep_budget(*args):
        made.append(real(*args))
        return made[-1]

    monkeypatch.setattr(budget_loop, "keep_budget", keep_budget)
    return made


def compiled_peak(fun, *args):
    """What the compiler says, fusions as they are."""
    compiled = jax.jit(fun).lower(*args).compile()
    m: Any = compiled.memory_analysis()
    sizes = m.argument_size_in_bytes + m.output_size_in_bytes + m.temp_size_in_bytes - m.alias_size_in_bytes
    return sizes + hlo_constant_bytes(compiled.as_text() or "")


def batch(f):
    return jax.vmap(f, (0, None, None))


DERIVATIVES = {
    "jvp": (lambda f: lambda q, k, v: jax.jvp(f, (q, k, v), (v, q, k)), 1),
    "jvp of some": (lambda f: lambda q, k, v: jax.jvp(lambda k: f(q, k, v), (k,), (v,)), 1),
    "jvp under jit": (lambda f: jax.jit(lambda q, k, v: jax.jvp(f, (q, k, v), (v, q, k))), 1),
    "linearize": (lambda f: lambda q, k, v: jax.linearize(f, q, k, v)[1](v, q, k), 2),
    "vjp": (lambda f: lambda q, k, v: jax.vjp(f, q, k, v)[1](q), 2),
    "jvp of vmap": (lambda f: lambda q, k, v: jax.jvp(lambda k: batch(f)(q.reshape(2, -1, 16), k, v), (k,), (v,)), 1),
}


@pytest.mark.parametrize(("derivative", "programs"), DERIVATIVES.values(), ids=DERIVATIVES)
def test_derivatives_keep_the_budget(derivative, programs, plans):
    q, k, v = arrays(3, N, 16)
    fun = shm.jit(lambda *a: attention(*a), budget=int(1.5 * MIB), target="cpu")  # the scores alone are 2.25 MiB
    close(derivative(fun)(q, k, v), derivative(attention)(q, k, v))
    assert len(plans) == programs
    for plan in plans:
        assert plan.before.peak_bytes > 1.5 * MIB >= plan.after.peak_bytes
        assert plan.steps
    assert compiled_peak(derivative(fun), q, k, v) <= 1.5 * MIB * programs


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev, jax.hessian, lambda f: jax.jacrev(jax.jacfwd(f))])
def test_jacobians_keep_the_budget(mode, plans):
    (x,) = arrays(1, 48)
    fun = shm.jit(energy, budget=64 * 2**10, target="cpu", options=shm.Options(max_slowdown=None))
    close(mode(fun)(x), mode(energy)(x))
    assert all(plan.after.peak_bytes <= 64 * 2**10 for plan in plans)
    assert compiled_peak(mode(fun), x) <= 64 * 2**10
    rewritten = [plan for plan in plans if plan.before.peak_bytes > 64 * 2**10]
    assert all(plan.steps for plan in rewritten)
    assert bool(rewritten) != (mode is jax.jacrev)  # the gradient alone is small


def test_a_linear_function_is_transposed(plans):
    a, b, ct = map(jnp.asarray, arrays(3, N, 16))
    fun = shm.jit(lambda v: jnp.tanh(a @ b.T) @ v, budget=int(1.5 * MIB), target="cpu")
    plain = lambda v: jnp.tanh(a @ b.T) @ v  # noqa: E731
    close(jax.linear_transpose(fun, ct)(ct), jax.linear_transpose(plain, ct)(ct))
    assert [bool(plan.steps) for plan in plans] == [True]
    assert plans[0].after.peak_bytes <= 1.5 * MIB


def test_nothing_is_planned_twice(plans):
    q, k, v = arrays(3, 24, 4)
    fun = shm.jit(attention, budget="1GiB")
    for _ in range(2):
        fun(q, k, v)
        jax.jvp(fun, (q, k, v), (v, q, k))
        jax.grad(lambda q: fun(q, k, v).sum())(q)
        assert fun.plan(q, k, v).fits
        shm.jit(attention, budget="1GiB")(q, k, v)
    assert len(plans) == 4  # forward, with tangents, forward again without what is not asked for, backward


LOOPS = {
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, t: (f(c) * t, c), x, jnp.arange(3.0))[0].sum(),
    "cond": lambda f: lambda x: jax.lax.cond(x.sum() > 0, f, jnp.cos, x).sum(),
    "while": lambda f: lambda x: jax.lax.fori_loop(0, 3, lambda _, c: f(c), x).sum(),
    "checkpoint": lambda f: lambda x: jax.checkpoint(f)(x).sum(),
    "custom_jvp": lambda f: lambda x: jax.nn.relu(f(x)).sum(),
    "map": lambda f: lambda x: jax.lax.map(f, x[:, None]).sum(),
}
ORDERS = {
    "forward": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    "reverse": jax.grad,
    "forward over reverse": lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x,)),
    "reverse over reverse": lambda f: jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum()),
    "reverse over forward": lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1]),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("around", LOOPS.values(), ids=LOOPS)
def test_derivatives_through_loops_around(around, order):
    fun = lambda x: jnp.sin(x) * x  # noqa: E731
    close(order(around(shm.jit(fun, budget="1GiB")))(X), order(around(fun))(X))


def test_policies_look_inside(capsys):
    def fun(x):
        return jnp.sin(checkpoint_name(jnp.sin(x), "kept"))

    def residuals(f):
        print_saved_residuals(f, X)
        lines = [line.split(" from ")[0] for line in capsys.readouterr().out.splitlines()]
        # A jax.jit within a trace is a function there; ours is a part of what is traced.
        return [line.replace("jitted function 'fun'", "budgeted") for line in lines]

    policy = jax.checkpoint_policies.save_only_these_names("kept")
    budgeted = shm.jit(fun, budget="1GiB")
    inside, plain = (residuals(jax.checkpoint(f, policy=policy)) for f in (budgeted, jax.jit(fun)))
    assert inside == plain
    assert len(plain) == 2
    assert residuals(budgeted) == ["f32[4]"]  # the argument


class Log(list):
    """What callbacks were given."""

    def of(self, fun, *args):
        self.clear()
        result = jax.block_until_ready(fun(*args))
        jax.effects_barrier()
        return result, list(self)

    def note(self, kind, value):
        self.append((kind, round(float(np.asarray(value).sum()), 3)))

    def answer(self, kind, value):
        self.note(kind, value)
        return np.float32(np.asarray(value).sum())


log = Log()


def printing(x):
    y = jnp.sin(x)
    jax.debug.callback(functools.partial(log.note, "print"), y[1])
    return (y * x).sum()


def printing_in_a_scan(x):
    def body(c, t):
        jax.debug.callback(functools.partial(log.note, "step"), c, ordered=True)
        return jnp.sin(c * t), c

    c, ys = jax.lax.scan(body, x.sum(), x)
    return c + ys.sum()


def printing_in_a_branch(x):
    def noisy(x):
        jax.debug.callback(functools.partial(log.note, "branch"), x)
        return jnp.sin(x)

    return jax.lax.cond(x.sum() > 0, noisy, jnp.cos, x).sum()


def asking(x):
    answer = jax.pure_callback(functools.partial(log.answer, "pure"), SCALAR, jax.lax.stop_gradient(x[0]))
    return (jnp.sin(x) * answer).sum()


def asking_in_a_scan(x):
    def body(c, t):
        answer = jax.pure_callback(functools.partial(log.answer, "pure"), SCALAR, jax.lax.stop_gradient(t))
        return jnp.sin(c * answer * t), c

    return jax.lax.scan(body, x.sum(), x)[0]


def writing(x):
    first = io_callback(functools.partial(log.answer, "first"), SCALAR, jax.lax.stop_gradient(x[0]), ordered=True)
    second = io_callback(functools.partial(log.answer, "second"), SCALAR, first + 1, ordered=True)
    io_callback(functools.partial(log.note, "third"), None, second, ordered=True)
    return (jnp.sin(x) * second).sum()


def writing_anyhow(x):
    return (jnp.sin(x) * io_callback(functools.partial(log.answer, "io"), SCALAR, jax.lax.stop_gradient(x[0]))).sum()


EFFECTS = [
    printing, printing_in_a_scan, printing_in_a_branch, asking, asking_in_a_scan, writing, writing_anyhow,
]  # fmt: skip
WAYS = {
    "call": lambda f: f,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    "grad": jax.grad,
    "grad under jit": lambda f: jax.jit(jax.grad(f)),
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.float32(1)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](x),
    "hessian": jax.hessian,
    "grad of scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, _: (c * f(x), None), jnp.float32(1), None, length=3)[0]
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(f)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("fun", EFFECTS)
def test_effects_happen_as_often_and_in_the_order_as_without_us(fun, way):
    try:
        want, noted = log.of(way(jax.jit(fun)), X)
    except (ValueError, NotImplementedError) as error:  # JAX cannot: nor can we
        with pytest.raises(type(error)):
            way(shm.jit(fun, budget="1GiB"))(X)
        return
    got, seen = log.of(way(shm.jit(fun, budget="1GiB")), X)
    close(got, want)
    assert seen == noted
    assert seen


def test_runtime_tokens_order_effects_of_several_calls():
    def fun(x):
        io_callback(functools.partial(log.note, "io"), None, x, ordered=True)
        return x + 1

    def twice(f):
        return lambda x: f(f(x))

    budgeted = shm.jit(fun, budget="1GiB")
    assert log.of(twice(budgeted), 1.0)[1] == log.of(jax.jit(twice(budgeted)), 1.0)[1] == [("io", 1.0), ("io", 2.0)]


def noisy_attention(q, k, v):
    jax.debug.callback(functools.partial(log.note, "print"), q.max())
    scale = jax.pure_callback(functools.partial(log.answer, "pure"), SCALAR, jax.lax.stop_gradient(q[0, 0]))
    out = attention(q, k, v) * scale
    told = io_callback(functools.partial(log.answer, "io"), SCALAR, jax.lax.stop_gradient(out.mean()), ordered=True)
    jax.debug.callback(functools.partial(log.note, "ordered"), told, ordered=True)
    io_callback(functools.partial(log.note, "last"), None, jax.lax.stop_gradient(out.max()), ordered=True)
    return out + 0 * told


def noisy_energy(x):
    jax.debug.callback(functools.partial(log.note, "print"), x.max())
    return energy(x) * jax.pure_callback(functools.partial(log.answer, "pure"), SCALAR, x[0])


def by_kind(noted):
    """Unordered effects may happen in any order."""
    free = [n for n in noted if n[0] in ("print", "pure")]
    return sorted(free), [n[0] for n in noted if n not in free]


@pytest.mark.parametrize("gradient", [False, True])
def test_effects_of_programs_that_are_rewritten(gradient, plans):
    q, k, v = arrays(3, N, 16)
    way = (lambda f: jax.grad(lambda *a: f(*a).sum(), (0, 1, 2))) if gradient else (lambda f: f)
    want, noted = log.of(way(jax.jit(noisy_attention)), q, k, v)
    fun = way(shm.jit(noisy_attention, budget=int(1.5 * MIB), target="cpu"))
    for _ in range(2):
        got, seen = log.of(fun, q, k, v)
        close(got, want)
        assert by_kind(seen) == by_kind(noted)
    assert len(plans) == 1 + gradient
    for plan in plans:
        assert plan.before.peak_bytes > 1.5 * MIB >= plan.after.peak_bytes
        assert plan.steps
        assert "callback" not in _loops(plan.module)


def _loops(module):
    """What stands in the loops of a module."""
    whiles = [op for op in module.body.operations[0].regions[0].blocks[0].operations if "while" in op.operation.name]
    return "".join(str(op) for op in whiles)


def test_rewritten_programs_with_effects_in_one_program():
    """Each calls its own functions, whose numbers are those of the whole."""
    q, k, v = arrays(3, N, 16)

    def both(f):
        return jax.jit(lambda q, k, v: f(q, k, v) + f(2 * q, k, v))

    want, noted = log.of(both(jax.jit(noisy_attention)), q, k, v)
    got, seen = log.of(both(shm.jit(noisy_attention, budget=int(1.5 * MIB), target="cpu")), q, k, v)
    close(got, want)
    assert by_kind(seen) == by_kind(noted)


def noisy_scan(q, k, v):
    def body(c, t):
        jax.debug.callback(functools.partial(log.note, "ordered"), c.mean(), ordered=True)
        scale = jax.pure_callback(functools.partial(log.answer, "pure"), SCALAR, jax.lax.stop_gradient(t))
        return attention(c, k, v) * scale, t

    return jax.lax.scan(body, q, jnp.arange(1.0, 4.0))[0]


@pytest.mark.parametrize("gradient", [False, True])
def test_effects_in_a_loop_of_a_program_that_is_rewritten(gradient, plans):
    q, k, v = arrays(3, N, 16)
    way = (lambda f: jax.grad(lambda *a: f(*a).sum(), (0, 1))) if gradient else (lambda f: f)
    want, noted = log.of(way(jax.jit(noisy_scan)), q, k, v)
    got, seen = log.of(way(shm.jit(noisy_scan, budget=2 * MIB, target="cpu")), q, k, v)
    close(got, want)
    assert by_kind(seen) == by_kind(noted)
    assert all(plan.steps and plan.after.peak_bytes <= 2 * MIB < plan.before.peak_bytes for plan in plans)
    assert len(plans) == 1 + gradient


def test_programs_that_call_python_are_not_timed_but_have_a_curve():
    q, k, v = arrays(3, N, 16)
    with pytest.raises(shm.InputError, match="would call Python"):
        shm.jit(noisy_attention, budget="1MiB", options=shm.Options(tune=True)).plan(q, k, v)
    assert shm.jit(noisy_energy, budget="1GiB").plan(q[:, 0]).before.curve()


def test_effects_without_an_argument(plans):
    def fun():
        q = io_callback(lambda: arrays(1, N, 16)[0], jax.ShapeDtypeStruct((N, 16), jnp.float32), ordered=True)
        out = attention(q, q, q)
        io_callback(functools.partial(log.note, "sum"), None, out, ordered=True)
        return out

    want, noted = log.of(jax.jit(fun))
    for budget in ("1GiB", int(1.5 * MIB)):
        got, seen = log.of(shm.jit(fun, budget=budget, target="cpu"))
        close(got, want)
        assert [kind for kind, _ in seen] == [kind for kind, _ in noted] == ["sum"]
    assert [bool(plan.steps) for plan in plans] == [False, True]


def test_a_look_at_shardings_happens_once():
    seen = []

    def fun(q, k, v):
        jax.debug.inspect_array_sharding(q, callback=seen.append)
        return attention(q, k, v)

    q, k, v = arrays(3, N, 16)
    shm.jit(fun, budget="1GiB")(q, k, v)
    assert len(seen) == 1
    with pytest.raises(shm.InputError, match="inspect_array_sharding"):
        shm.jit(fun, budget=int(1.5 * MIB), target="cpu")(q, k, v)


def test_a_callback_that_reads_the_scores_keeps_them_whole():
    """It is no part of a loop, so the budget cannot be kept."""

    def fun(q, k, v):
        scores = q @ k.T
        io_callback(functools.partial(log.note, "scores"), None, scores)
        return jax.nn.softmax(scores) @ v

    q, k, v = arrays(3, N, 16)
    with pytest.raises(shm.BudgetError):
        shm.jit(fun, budget=int(1.5 * MIB), target="cpu")(q, k, v)
    assert len(log.of(shm.jit(fun, budget="1GiB"), q, k, v)[1]) == 1


def test_effects_of_a_chip_that_is_not_here():
    pytest.importorskip("libtpu")
    with pytest.raises(shm.InputError, match="send|recv|infeed|outfeed|callback"):
        shm.jit(printing, budget="1GiB", target="tpu:v5e").plan(X)


def test_compiled_ahead_for_more_devices_than_are_here_it_is_planned_for_each(plans, monkeypatch):
    """As MaxText's `train_compile` does: arguments count by their shards."""
    pytest.importorskip("libtpu")
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # another run of the tests may hold libtpu's lock
    from jax.experimental.topologies import get_topology_desc

    devices = get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    mesh = jax.sharding.Mesh(np.array(devices), ("rows",))
    rows = NamedSharding(mesh, PartitionSpec("rows"))
    jitted = shm.jit(lambda x: jnp.tanh(x) @ x.T, "8GiB", target="tpu:v5e", in_shardings=rows)
    jitted.lower(jax.ShapeDtypeStruct((4096, 128), np.float32))
    (plan,) = plans
    assert "each of 4 devices" in str(plan)
    assert isinstance(plan.before.measured, Measured)
    assert plan.before.measured.argument_bytes == 4096 * 128
    before = shm.jit(lambda x: jnp.tanh(x) @ x.T, "8GiB", in_shardings=rows)
    assert before.plan(jax.ShapeDtypeStruct((4096, 128), np.float32)).target == ("tpu:v5e",)


CHECKED = {
    "nan": (lambda x: jnp.log(x - 1), checkify.float_checks),
    "index": (lambda x: x[jnp.int32(7)], checkify.index_checks),
    "own": (lambda x: (checkify.check(x.sum() < 0, "sum is {s}", s=x.sum()), x)[1], checkify.user_checks),
    "none": (lambda x: x + 1, checkify.all_checks),
}


@pytest.mark.parametrize(("fun", "errors"), CHECKED.values(), ids=CHECKED)
def test_checkify_around_and_inside(fun, errors):
    messages = [checkify.checkify(f, errors=errors)(X)[0].get() for f in (jax.jit(fun), shm.jit(fun, budget="1GiB"))]
    assert messages[0] == messages[1]
    inside = shm.jit(lambda x: checkify.checkify(fun, errors=errors)(x), budget="1GiB")
    assert inside(X)[0].get() == messages[0]


def test_checks_that_nobody_takes_are_an_error():
    fun, _ = CHECKED["own"]
    for f in (jax.jit(fun), shm.jit(fun, budget="1GiB")):
        with pytest.raises(ValueError, match="not functionalized"):
            f(X)


def test_batches_with_named_axes():
    rows = np.stack([X, 2 * X])
    for fun in (lambda x: x - jax.lax.pmean(x, "i"), lambda x: x * jax.lax.axis_index("i")):
        batches = [jax.vmap(f, axis_name="i")(rows) for f in (jax.jit(fun), shm.jit(fun, budget="1GiB"))]
        close(*batches)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    with jax.set_mesh(mesh):
        close(jax.vmap(shm.jit(jnp.sin, budget="1GiB"), spmd_axis_name="x")(rows), np.sin(rows))


def counted(x):
    total = jax.new_ref(jnp.zeros(4))
    total[...] += x
    total[0] = 3.0
    return total[...] * x


def test_references_made_inside():
    for way in (lambda f: f, lambda f: lambda x: jax.jvp(f, (x,), (x,))):
        close(way(shm.jit(counted, budget="1GiB"))(X), way(jax.jit(counted))(X))
    slopes = jax.grad(lambda x: shm.jit(counted, budget="1GiB")(x).sum())(X)
    close(slopes, np.array([3, *2 * X[1:]], np.float32))


def test_references_given():
    def add(total, x):
        total[...] = total[...] + jnp.sin(x)

    def twice(f):
        total = jax.new_ref(jnp.zeros(4))
        f(total, X)
        f(total, X)
        return total[...]

    def through(f, x):
        total = jax.new_ref(jnp.zeros(4))
        f(total, x)
        return total[...].sum()

    ways = (jax.jit(add), shm.jit(add, budget="1GiB"))
    close(*map(twice, ways))
    close(*[jax.grad(functools.partial(through, f))(X) for f in ways])


def test_references_given_to_a_backward_rule_are_named():
    @jax.custom_vjp
    def noted(x, seen):
        return x

    def backward(seen, ct):
        seen[...] = ct
        return ct, None

    noted.defvjp(lambda x, seen: (x, seen), backward)
    seen = jax.new_ref(jnp.float32(0))
    with pytest.raises(shm.InputError, match="reference.*custom_vjp"):
        jax.grad(lambda x: shm.jit(lambda x: jnp.sin(noted(x, seen)), budget="1GiB")(x))(1.0)
    with pytest.raises(shm.InputError, match="reference.*custom_vjp"):
        shm.jit(noted, budget="1GiB")(1.0, seen)
    slope = shm.jit(jax.grad(lambda x, seen: jnp.sin(noted(x, seen))), budget="1GiB")(1.0, seen)
    close((slope, seen[...]), (np.cos(1.0), np.cos(1.0)))


@pytest.mark.parametrize("fun", [jnp.log, jax.grad(lambda x: jnp.sqrt(x).sum())])
def test_nans_are_looked_for_op_by_op(fun):
    found = []
    for jit in (jax.jit, shm.jit(budget="1GiB")):
        with jax.debug_nans(True), pytest.raises(FloatingPointError) as error:
            jit(fun)(X - 2)
        found.append(str(error.value))
    assert found[0] == found[1]
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jax.grad(lambda x: shm.jit(jnp.log, budget="1GiB")(x).sum())(X - 2)


def test_meshes():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Explicit,))
    rows = NamedSharding(mesh, PartitionSpec("i", None))
    for fun in (lambda x: jax.nn.softmax(jnp.sin(x)), lambda x: jax.sharding.reshard(x, PartitionSpec())):
        with jax.set_mesh(mesh):
            x = jax.device_put(jnp.ones((4, 4)), rows)
            got, want = (f(x) for f in (shm.jit(fun, budget="1GiB"), jax.jit(fun)))
        close(got, want)
        assert got.sharding == want.sharding


def test_an_abstract_mesh_of_chips_that_are_not_here():
    pytest.importorskip("libtpu")
    mesh = jax.sharding.AbstractMesh((2,), ("i",), axis_types=(AxisType.Explicit,))
    spec = jax.ShapeDtypeStruct((8, 4), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("i", None)))
    with jax.sharding.use_abstract_mesh(mesh):
        lowered = shm.jit(jnp.sin, budget="1GiB").trace(spec).lower(lowering_platforms=("tpu",))
    assert "mhlo.num_partitions = 2" in lowered.as_text()


def test_a_mesh_axis_of_a_shard_map_around_is_named():
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Auto,))

    def around(f):
        return jax.shard_map(f, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"))

    close(around(shm.jit(jnp.sin, budget="1GiB"))(X), np.sin(X))
    close(jax.vjp(around(shm.jit(jnp.sin, budget="1GiB")), X)[1](X), (np.cos(X) * X,))
    close(jax.jvp(around(shm.jit(jnp.sin, budget="1GiB")), (X,), (X,)), (np.sin(X), np.cos(X) * X))
    with pytest.raises(shm.InputError, match="the axis i of a shard_map"):
        around(shm.jit(lambda x: x * jax.lax.psum(x, "i"), budget="1GiB"))(X)
    inside = around(lambda x: x * jax.lax.psum(x, "i"))
    close(shm.jit(inside, budget="1GiB")(X), jax.jit(inside)(X))
    text = jax.jit(jax.grad(lambda x: shm.jit(inside, budget="1GiB")(x).sum())).lower(X).as_text(debug_info=True)
    assert __file__ in text  # the line of the call, where JAX has no other
    assert "api/jit.py" not in text


def test_it_is_planned_for_the_platform_that_is_lowered_for():
    pytest.importorskip("jax_plugins.xla_cuda12")
    q, k, v = arrays(3, N, 16)
    traced = shm.jit(attention, budget=int(1.5 * MIB)).trace(q, k, v)
    for platforms in (("cpu",), ("cuda",), ("cpu", "cuda")):
        assert "stablehlo.while" in traced.lower(lowering_platforms=platforms).as_text()
    with pytest.raises(shm.TargetError, match="does not run here, on cuda"):
        shm.jit(attention, budget="1GiB", target="cpu").trace(q, k, v).lower(lowering_platforms=("cuda",))


class WithoutSignature:
    """As some built-in functions are."""

    __signature__ = "none"

    def __call__(self, x, y):
        return x + y


def test_what_jax_jit_takes_and_refuses():
    fun = shm.jit(WithoutSignature(), budget="1GiB", donate_argnums=0)
    x = jnp.ones((512, 512))
    assert fun.plan(x, x).before.measured.alias_bytes == MIB
    fun(x, jnp.ones((512, 512)))
    assert x.is_deleted()
    wrong: Any
    for wrong in (3, iter([]), a_generator):
        errors = []
        for jit in (jax.jit, shm.jit(budget="1GiB")):
            with pytest.raises(TypeError) as error:
                jit(wrong)
            errors.append(str(error.value))
        assert errors[0] == errors[1]


def a_generator():
    yield 1


def test_what_it_returns_is_jaxs_own():
    def fun(x, *, power=2):
        """Its words."""
        return x**power

    plain: Any = jax.jit(fun)
    budgeted: Any = shm.jit(fun, budget="1GiB")
    assert type(budgeted) is type(plain)
    assert (budgeted.__name__, budgeted.__doc__, budgeted.__wrapped__) == ("fun", "Its words.", fun)
    budgeted(X)
    assert budgeted._cache_size() == 1
    budgeted.clear_cache()
    assert budgeted._cache_size() == 0
    assert budgeted.eval_shape(X) == plain.eval_shape(X)
    assert isinstance(shm.jit(fun, budget="1GiB"), jax.stages.Wrapped)
    with pytest.raises(TypeError) as want:
        plain(X, power="two")
    with pytest.raises(TypeError) as got:
        budgeted(X, power="two")
    assert str(got.value) == str(want.value)


def test_traced_once_however_often_jit_is_called():
    traces = []

    def fun(x):
        traces.append(x)
        return x + 1

    for _ in range(3):
        close(shm.jit(fun, budget="1GiB")(X), X + 1)
    assert len(traces) == 1
    shm.jit(fun, budget="2GiB")(X)
    assert len(traces) == 2
    plan = shm.jit(fun, budget="2GiB").plan(jax.ShapeDtypeStruct(X.shape, X.dtype))
    assert plan.fits
    assert shm.jit(lambda x: x, budget="1GiB").plan(X).fits


def test_functions_and_what_they_hold_are_let_go():
    class Held:
        pass

    jax.devices()  # what this logs has the frames of the test

    held = Held()
    fun = shm.jit(lambda x, held=held: x + 1, budget="1GiB")
    fun(X)
    gone = weakref.ref(held)
    del fun, held
    jax.clear_caches()
    gc.collect()
    assert gone() is None


def test_a_donation_of_no_use_is_said_once():
    """JAX says so of the function; the program that is planned is lowered for it too, and says nothing."""
    with pytest.warns(UserWarning, match="Some donated buffers were not usable") as warned:
        shm.jit(lambda x: energy(x), budget="64KiB", donate_argnums=0)(np.ones(N, np.float32))
    assert len(warned) == 1


def test_copies_hold_the_function():
    copied = copy.deepcopy(shm.jit(lambda x: x + 1, budget="1GiB"))
    gc.collect()
    close(copied(X), X + 1)


def test_the_program_of_a_plan_runs_and_has_a_vjp():
    q, k, v = arrays(3, N, 16)
    plan = shm.jit(attention, budget=int(1.5 * MIB), target="cpu").plan(q, k, v)
    assert plan.exported is not None
    close(plan.exported.call(q, k, v), [attention(q, k, v)])
    close(plan.exported.vjp().call(q, k, v, q), jax.vjp(attention, q, k, v)[1](q))
