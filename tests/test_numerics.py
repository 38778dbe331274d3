"""Results: every axis the analyses allow, with small, ragged and nearly whole chunks, at small odd sizes.

Splits that only pass through give the very same bits, where XLA:CPU does; where sums are regrouped the yardstick is
double precision.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import (
    OPTIMISED,
    PLAIN,
    apply_split,
    in_f64,
    normal,
    possible_splits,
    program_of,
    run,
    same_bits,
    yardstick,
)


def attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def kernel_times_vector(x, y, v):
    return jnp.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1)) @ v


def nearest(x, q):
    distances = (q**2).sum(-1)[:, None] + (x**2).sum(-1)[None] - 2 * q @ x.T
    return jax.lax.top_k(-distances, 3)


def cross_entropy(h, w, y):
    logits = jax.nn.log_softmax(h @ w, -1)
    return -jnp.take_along_axis(logits, y[:, None], 1).mean()


def mlp(x, w1, w2):
    return jax.nn.gelu(x @ w1) @ w2


def assignment(x, c):
    return jnp.argmin(((x[:, None] - c[None]) ** 2).sum(-1), 1)


RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order():
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


def real(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def whole(*shape):
    """Small whole numbers: their sums are exact in any order."""
    return RNG.integers(-9, 10, shape).astype(np.float32)


def labels(n, classes):
    return RNG.integers(0, classes, n).astype(np.int32)


SAME_BITS = jax.__version_info__ < (0, 11)
"""From jax 0.11 on XLA:CPU vectorises by the shape: an exponential has other bits in a whole vector than alone."""

OTHER_BITS = {"kernel", "kernel_grad", "update", "slices", "solved", "solved_from_the_right"}
"""XLA:CPU multiplies a matrix with a vector eight rows at a time, what is left over in another order of summation; and
it may contract a multiplication and an addition where it fuses them. See `test_matrix_times_vector`. LAPACK solves for
the columns in blocks, by kernels of the machine's vector width: with AVX-512 not all columns are summed alike."""

PROGRAMS = {
    "attention": (attention, real(2, 11, 4), real(2, 13, 4), real(2, 13, 4)),
    "kernel": (kernel_times_vector, real(11, 3), real(13, 3), real(13)),
    "nearest": (nearest, real(13, 4), real(11, 4)),
    "cross_entropy": (cross_entropy, real(11, 5), real(5, 13), labels(11, 13)),
    "mlp": (mlp, real(11, 5), real(5, 13), real(13, 7)),
    "assignment": (assignment, real(11, 4), real(13, 4)),
    "attention_grad": (
        jax.grad(lambda *a: jnp.tanh(attention(*a)).sum(), (0, 1, 2)),
        *(real(2, 7, 3), real(2, 9, 3), real(2, 9, 3)),
    ),
    "kernel_grad": (
        jax.grad(lambda *a: jnp.sin(kernel_times_vector(*a)).sum(), (0, 1, 2)),
        *(real(7, 3), real(9, 3), real(9)),
    ),
    "cross_entropy_grad": (jax.grad(cross_entropy, (0, 1)), real(7, 5), real(5, 9), labels(7, 9)),
    "mlp_grad": (jax.grad(lambda *a: (mlp(*a) ** 2).sum(), (0, 1, 2)), real(7, 5), real(5, 9), real(9, 4)),
}


def check(fun, *args, chunks=None, exact=None, bitwise=True, splits=None, options=PLAIN):
    """Every axis (`splits` of them at most), and one of the chunks for each, in turn; all of `chunks` if given."""
    program = program_of(fun, *args)
    module = normal(program)
    original = run(program, module, *args, options=options)
    exact = in_f64(fun, *args) if exact is None else exact
    wrong, possibles = [], possible_splits(module, all_forms=True)[:splits]
    # A chunk of one column is a matrix times a vector, which some CPUs sum up in another order.
    multiplies = "stablehlo.dot_general" in str(module)
    for number, possible in enumerate(possibles):
        for chunk in chunks or (possible.chunks[number % len(possible.chunks)],):
            changed = apply_split(module, possible, min(chunk, possible.axis.n))
            results = run(program, changed, *args, options=options)
            for new, old, true in zip(results, original, exact, strict=True):
                fault = yardstick(new, old, true)
                exactly = bitwise and not possible.regroups and not (multiplies and chunk == 1)
                # What later loops would run is compiled apart from what it was fused with: docs/numerics.md.
                exactly = exactly and possible.first is None
                if SAME_BITS and exactly and not same_bits(new, old):
                    fault = f"other bits; {fault}"
                if fault:
                    wrong.append(f"{possible}, chunk {chunk}: {fault}")
    assert not wrong, "\n".join(wrong)
    return possibles


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_axis(name):
    assert len(check(*PROGRAMS[name], bitwise=name not in OTHER_BITS, options=OPTIMISED)) >= 2


@pytest.mark.skipif(not SAME_BITS, reason="this XLA:CPU vectorises by the shape")
def test_matrix_times_vector():
    """Where rows come in eights a sum over columns has the same bits."""
    module_args = real(40, 3), real(48, 3), real(48)
    program = program_of(kernel_times_vector, *module_args)
    module = normal(program)
    rows = [s for s in possible_splits(module) if s.axis.n == 40 and not s.regroups]
    (old,) = run(program, module, *module_args)
    for chunk in (8, 16):
        (new,) = run(program, apply_split(module, rows[0], chunk), *module_args)
        assert same_bits(new, old)


@pytest.mark.parametrize("chunks", [(1, 2), (3, 4), (10, 12)])
def test_every_chunk_of_attention(chunks):
    check(*PROGRAMS["attention"], chunks=chunks)


def dense(x, w):
    return jnp.maximum(x @ w, 0) @ w.T


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16, np.int32, np.int8, np.uint8, np.complex64])
def test_dtypes(dtype):
    x, w = (np.asarray(real(*shape) * 3, dtype=dtype) for shape in ((11, 5), (5, 13)))
    fun = dense if np.dtype(dtype).kind != "c" else lambda x, w: jnp.abs(x @ w * (x @ w).conj()).sum(0)
    check(fun, x, w)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint64, np.complex128])
def test_wide_dtypes(dtype):
    with jax.enable_x64(True):
        x, w = (np.asarray(abs(real(*shape)) * 3, dtype=dtype) for shape in ((11, 5), (5, 13)))
        check(lambda x, w: ((x @ w).sum(0), (x @ w).prod(1)), x, w)
        if np.dtype(dtype).kind != "c":
            check(lambda x, w: ((x @ w).max(0), (x @ w).min(0), (x @ w).min(1)), x, w)


def test_predicates():
    x = RNG.integers(0, 2, (11, 13)).astype(bool)
    check(lambda x: ((~x).any(0), (~x).all(0), jax.lax.reduce(~x, False, jax.lax.bitwise_xor, (0,)), (~x).sum(0)), x)


def test_a_float_without_infinity():
    x = np.asarray(real(11, 13), dtype=jnp.float8_e4m3fn)
    exact = [np.asarray(x.astype(np.float32) ** 2).max(0).astype(np.float64)]
    check(lambda x: jnp.max(x * x, 0), x, exact=exact)


@pytest.mark.parametrize(("dtype", "n"), [(jnp.bfloat16, 600), (np.float16, 5000), (np.int8, 200), (np.complex64, 31)])
def test_iota_of_any_type(dtype, n):
    x = np.asarray(real(n, 2), dtype=dtype)
    shape = (n, 2)
    check(lambda x: jnp.abs(x * jax.lax.broadcasted_iota(dtype, shape, 0)).max(1), x, exact=None)


def with_some(values, *shape):
    x = real(*shape)
    for value in values:
        x[RNG.random(shape) < 0.06] = value
    return x


@pytest.mark.parametrize("values", [(np.inf,), (-np.inf,), (np.nan,), (-0.0,), (np.inf, -0.0)], ids=str)
def test_masks_make_no_numbers_of_their_own(values):
    x, w = with_some(values, 11, 13), np.zeros((13, 4), np.float32)
    w[:, 0] = 1
    check(lambda x, w: (x * 2 @ w, (x * 2).sum(0), (x * 2).max(0), (x * 2).min(1), jnp.argmax(x * 2, 0)), x, w)


def test_sums_of_negative_zeros():
    x = np.full((11, 3), -0.0, np.float32)
    check(
        lambda x: ((x * 2).sum(0), jax.lax.reduce(x * 2, np.float32(-0.0), jax.lax.add, (0,))),
        x,
        exact=[np.zeros(3)] * 2,
    )


def test_initial_values_that_are_not_neutral():
    x, y = real(11, 5), np.float32(0.25)

    def fun(x, y):
        e = jnp.exp(x)
        init = jnp.asarray(5, x.dtype)
        return tuple(
            jax.lax.reduce(e, start, combine, (0,))
            for start in (init, y)
            for combine in (jax.lax.add, jax.lax.mul, jax.lax.max, jax.lax.min)
        )

    check(fun, x, y, chunks=(2, 4, 10))


def test_two_results_of_one_reducer():
    def fun(x):
        return jax.lax.reduce(
            (jnp.exp(x), x * 2),
            (jnp.asarray(0, x.dtype), jnp.asarray(1, x.dtype)),
            lambda a, b: (a[0] + b[0], a[1] * b[1]),
            (0,),
        )

    check(fun, real(11, 5))


def test_gradients_that_gather_along_another_dimension():
    check(jax.grad(lambda x: (jax.lax.top_k(jnp.exp(x @ x.T), 3)[0] ** 2).sum()), real(9, 4), splits=4)
    check(jax.grad(lambda x: (jnp.sort(jnp.exp(x @ x.T), 1) * jnp.arange(9.0)).sum()), real(9, 4), splits=4)


def test_free_values_that_somebody_outside_uses_too():
    def fun(x):
        k = jnp.exp(x)
        return k.sum(0), jnp.linalg.cholesky(k @ k.T + 9 * jnp.eye(9)), k * 2

    check(fun, real(9, 9), splits=5)


INDEXED = {
    "take rows": lambda x, i: (jnp.exp(x)[i] * 2).sum(-1),
    "take columns": lambda x, i: (jnp.exp(x)[:, i % 7] * 2).sum(0),
    "out of bounds": lambda x, i: (jnp.exp(x).at[i - 3].get(mode="fill", fill_value=7) * 2).sum(-1),
    "along": lambda x, i: (jnp.take_along_axis(jnp.exp(x), i[: x.shape[0], None] % 7, 1) * 2).sum(1),
    "add rows": lambda x, i: (jnp.exp(x).at[i].add(jnp.sin(x[i])) * 2).sum(0),
    "max columns": lambda x, i: (jnp.exp(x).at[:, i % 7].max(jnp.sin(x[:, i % 7]) * 2) * 2).sum(0),
    "segments": lambda x, i: jnp.exp(jax.ops.segment_sum(jnp.sin(x)[i] * 2, i // 2, 7)).sum(1),
    "concatenate": lambda x, i: (jnp.concatenate([jnp.exp(x), jnp.sin(x)], 1) * 2).sum(1),
    "shift": lambda x, i: (jax.lax.pad(jnp.exp(x), jnp.ones((), x.dtype), ((-1, 1, 0), (2, -2, 0))) * 2).sum(0),
    "pad": lambda x, i: (jax.lax.pad(jnp.exp(x), jnp.ones((), x.dtype), ((1, 2, 1), (0, 0, 0))) * 2).sum(0),
    "slices": lambda x, i: (jnp.exp(x)[1:7] * 2).sum(0) + jnp.exp(x)[::-1].sum(0),
    "update": lambda x, i: (jax.lax.dynamic_update_slice(jnp.exp(x), jnp.sin(x[:3]), (i[0], 0 * i[0])) * 3).sum(1),
    "dynamic": lambda x, i: (jax.lax.dynamic_slice(jnp.exp(x), (i[0], 0 * i[0]), (4, 7)) * 3).sum(0),
    "sort": lambda x, i: jax.lax.sort((jnp.exp(x), x * 2), dimension=1, num_keys=1),
    "cumsum": lambda x, i: jnp.cumsum(jnp.exp(x), 0).max(1),
    "one hot": lambda x, i: jax.nn.one_hot(i % 11, 11, dtype=x.dtype) @ jnp.exp(x),
}


@pytest.mark.parametrize("name", INDEXED)
def test_indexing(name):
    check(INDEXED[name], real(11, 7), labels(13, 11), bitwise=name not in OTHER_BITS)


@pytest.mark.parametrize("mode", ["clip", "fill", "wrap"])
def test_taking_out_of_bounds(mode):
    x, i = real(9, 6), labels(14, 25) - 8
    check(lambda x, i: (jnp.take(jnp.exp(x), i, axis=0, mode=mode) * 2).sum(-1), x, i)


@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("method", ["add", "max", "mul", "set"])
def test_scattering_out_of_bounds_and_twice(method, mode):
    def fun(x, i, u):
        return (getattr(jnp.exp(x).at[i], method)(jnp.sin(u), mode=mode) * 2).sum(1)

    check(fun, real(9, 6), labels(14, 25) - 8, real(14, 6))


def test_narrow_unsigned_indices():
    gather = jax.lax.GatherDimensionNumbers((1,), (0,), (0,))
    scatter = jax.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    index = np.arange(14, dtype=np.uint8)[:, None] * 7
    check(lambda x, i: jnp.sin(jax.lax.gather(jnp.exp(x), i, gather, (1, 6), mode="clip")), real(9, 6), index)
    check(
        lambda x, i, u: jnp.sin(jax.lax.scatter_add(jnp.exp(x), i, jnp.exp(u), scatter, mode="clip")),
        *(real(9, 6), index, real(14, 6)),
    )


def test_windows_that_begin_where_an_index_says():
    gather = jax.lax.GatherDimensionNumbers((1, 2), (), (0,))
    scatter = jax.lax.ScatterDimensionNumbers((1, 2), (), (0,))
    index = labels(14, 12)[:, None]
    check(lambda x, i: jnp.sin(jax.lax.gather(jnp.exp(x), i, gather, (3, 6), mode="clip")), real(9, 6), index)
    check(
        lambda x, i, u: jnp.sin(jax.lax.scatter_add(jnp.exp(x), i, jnp.exp(u), scatter, mode="clip")),
        *(real(9, 6), index, real(14, 3, 6)),
    )


def test_taking_and_adding_special_values():
    x = np.array([[np.inf, -np.inf, np.nan, -0.0, 0.0]] * 9, np.float32)
    index = labels(14, 9)
    check(lambda x, i: (x * 2)[i], x, index)
    check(lambda x, i, u: (x * 1).at[i].add(u * 2), np.full((9, 5), -0.0, np.float32), index, x[index])


def scanned(x, w):
    def step(carry, row):
        carry = jnp.tanh(carry @ w + row)
        return carry, (jnp.exp(carry) * 2).sum(0)

    return jax.lax.scan(step, jnp.zeros_like(x[0]), x)


def captured(x, p):
    k = jnp.exp(x @ x.T)
    return jax.lax.cond(p > 0, lambda: (k * 2).sum(0), lambda: k.max(1)) + k.sum(1)


CONTROL = {
    "scan": (scanned, real(5, 7, 6), real(6, 6)),
    "scan_grad": (jax.grad(lambda x, w: scanned(x, w)[1].sum(), (0, 1)), real(3, 7, 6), real(6, 6)),
    "cond": (
        lambda x, p: jax.lax.cond(p > 0, lambda y: jnp.exp(y @ y.T).sum(0), lambda y: jnp.sin(y @ y.T).max(0), x),
        *(real(9, 4), np.float32(1)),
    ),
    "captured": (captured, real(9, 4), np.float32(1)),
    "random": (
        lambda key: jax.random.uniform(jax.random.wrap_key_data(key), (31, 7), jnp.float32).max(0),
        np.array([1, 2], np.uint32),
    ),
    "factorised": (
        lambda a: jnp.linalg.cholesky(a @ a.transpose(0, 2, 1) + 3 * jnp.eye(4, dtype=a.dtype)),
        real(7, 4, 4),
    ),
    "solved": (
        lambda a, b: jax.scipy.linalg.solve_triangular(jnp.tril(a) + 3 * jnp.eye(5), jnp.exp(b), lower=True),
        *(real(5, 5), real(5, 13)),
    ),
    "solved_from_the_right": (
        lambda a, b: jax.lax.linalg.triangular_solve(jnp.triu(a) + 3 * jnp.eye(5), jnp.exp(b), transpose_a=True),
        *(real(2, 5, 5), real(2, 13, 5)),
    ),
    "transformed": (lambda a: jnp.abs(jnp.fft.fft(jnp.sin(a), axis=1)), real(11, 8)),
}


@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_and_more(name):
    check(*CONTROL[name], splits=6, bitwise=name not in OTHER_BITS, options=OPTIMISED)


def convolved(x, k):
    return jax.nn.relu(
        jax.lax.conv_general_dilated(x * 2, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    )


def test_convolution():
    """XLA:CPU adds up in another order where there is one feature alone: see `test_windows` for the bits."""
    check(convolved, real(5, 7, 6, 3), real(3, 3, 3, 4), bitwise=False)
    check(convolved, whole(5, 7, 6, 3), whole(3, 3, 3, 4))


def test_grouped_convolution_and_its_gradient():
    """A chunk of one group is no grouped convolution: XLA:CPU has another kernel for it, which rounds otherwise."""

    def fun(k, x):
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x * 2, k, (1, 1), "SAME", dimension_numbers=dims, feature_group_count=3)

    def gradients(k, x):
        return jax.grad(lambda k, x: (fun(k, x) ** 2).sum(), (0, 1))(k, x)

    for function in (fun, gradients):
        check(function, real(3, 3, 1, 6), real(4, 5, 4, 3), bitwise=False)
        check(function, whole(3, 3, 1, 6), whole(4, 5, 4, 3))


def test_zero_sizes_and_scalars():
    check(lambda x, y: (jnp.exp(x @ y).sum(0), jnp.exp(x).sum(1), y * 2), real(7, 0), real(0, 5))
    check(lambda x, y: (x * y, (jnp.ones((7, 5), x.dtype) * x).sum(0)), np.float32(2), np.float32(3))


def test_results_that_are_arguments_or_come_twice():
    check(lambda x: (lambda y: (x, y, y, x, y.sum(0)))(jnp.exp(x) * 2), real(9, 6))
