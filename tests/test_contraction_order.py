"""Products: the order of a contraction against exhaustive search, and what is collected of a program."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stablehlo_mem.einsum.contraction_order import Network, Piece, best_order, cost, factors_of
from stablehlo_mem.einsum.matcher import collect
from tests.support import graph_of, program_of

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)


def chain(dims):
    """The matrices dims[0] x dims[1], dims[1] x dims[2], ... as a network; dimensions of one element have no label."""
    labels = [0 if size == 1 else 1 << i for i, size in enumerate(dims)]
    factors = tuple(Piece(a | b) for a, b in itertools.pairwise(labels))
    return Network(factors, labels[0] | labels[-1], tuple(dims), 4)


def exhaustive(dims, *, prefer_memory):
    """(FLOPs, peak bytes) of the best parenthesisation."""

    @functools.cache
    def all_costs(i, j):
        """Every (FLOPs, peak bytes) of the matrices i .. j, and the bytes of their product."""
        nbytes = 0 if j == i + 1 or (i, j) == (0, len(dims) - 1) else 4 * dims[i] * dims[j]
        if j == i + 1:
            return {(0, 0)}, 0
        found = set()
        for k in range(i + 1, j):
            (left, left_bytes), (right, right_bytes) = all_costs(i, k), all_costs(k, j)
            flops = dims[i] * dims[k] * dims[j] * (2 if dims[k] > 1 else 1)
            for f, p in left:
                for g, q in right:
                    peak = min(max(p, left_bytes + q), max(q, right_bytes + p))
                    found.add((f + g + flops, max(peak, left_bytes + right_bytes + nbytes)))
        return found, nbytes

    costs = all_costs(0, len(dims) - 1)[0]
    return min(costs, key=lambda c: c[::-1] if prefer_memory else c)


@SLOW
@given(st.lists(st.integers(2, 50), min_size=3, max_size=9), st.booleans())
def test_chains_are_as_good_as_exhaustive_search_says(dims, prefer_memory):
    found = best_order(chain(dims), prefer_memory=prefer_memory)[1]
    flops, peak = exhaustive(tuple(dims), prefer_memory=prefer_memory)
    assert (found.peak_bytes == peak) if prefer_memory else (found.flops == flops)


@SLOW
@given(st.lists(st.integers(1, 4), min_size=3, max_size=9), st.booleans())
def test_chains_with_vectors_inside_are_at_least_as_good(dims, prefer_memory):
    found = best_order(chain(dims), prefer_memory=prefer_memory)[1]
    flops, peak = exhaustive(tuple(dims), prefer_memory=prefer_memory)
    assert (found.peak_bytes <= peak) if prefer_memory else (found.flops <= flops)


@pytest.mark.parametrize("prefer_memory", [False, True])
def test_long_chains_are_parenthesised_along_the_chain_however_they_come(prefer_memory):
    rng = np.random.default_rng(0)
    dims = [int(d) for d in rng.integers(1, 5000, 73)]
    network = chain([max(2, d) for d in dims])
    shuffled = [network.factors[i] for i in rng.permutation(72)]
    other = Network(tuple(shuffled), network.kept, network.sizes, 4)
    (tree, one), (other_tree, two) = (best_order(n, prefer_memory=prefer_memory) for n in (network, other))
    assert one.peak_bytes == two.peak_bytes
    assert prefer_memory or one.flops == two.flops
    assert cost(network, tree) == one
    assert cost(other, other_tree) == two
    assert factors_of(tree) == network.everything


def test_a_ring_is_cut_somewhere():
    network = chain([3, 50, 3, 50, 3, 50, 3, 50, 3, 50, 3])
    factors = tuple(Piece(f.labels & ~(1 << 10) | (f.labels >> 10 & 1)) for f in network.factors)
    ring = Network(factors, 0, network.sizes, 4)
    assert best_order(ring, prefer_memory=False)[1].flops < 20 * 3 * 50 * 3


def test_a_label_of_one_factor_is_summed_before_the_contraction():
    network = Network((Piece(0b011), Piece(0b110)), 0, (8, 3, 9), 4)
    assert best_order(network, prefer_memory=False) == ((0, 1), Piece(0, 8 * 3 + 3 * 9 + 2 * 3, 24, 0))


def collected(fun, *shapes, dtype=np.float32):
    graph = graph_of(program_of(fun, *(np.zeros(shape, dtype) for shape in shapes)))
    roots = [op for op in graph.ops if op.name in ("stablehlo.dot_general", "stablehlo.reduce")]
    product = collect(graph, roots[-1].index)
    assert product is not None
    return graph, product


def shapes_of(graph, product):
    return [graph.values[f.value].shape for f in product.factors]


def test_collects_through_transposes_scalings_and_sums():
    graph, product = collected(lambda a, b, c: (2 * (a @ b).T @ -c).sum(0), (4, 5), (5, 6), (4, 7))
    assert sorted(shapes_of(graph, product)) == [(4, 5), (4, 7), (5, 6)]
    assert [s.kind for s in product.scalings] == ["multiply", "negate"]
    assert len(product.out) == 1


def test_shared_values_are_factors():
    graph, product = collected(lambda a, b: ((p := a @ b) * p).sum(), (4, 5), (5, 6))
    assert shapes_of(graph, product) == [(4, 6), (4, 6)]
    assert product.factors[0].shared is not None


def test_what_is_no_product_is_a_factor():
    graph, product = collected(lambda a, b, c: jnp.exp(a @ b) @ c, (4, 5), (5, 6), (6, 3))
    assert shapes_of(graph, product) == [(4, 6), (6, 3)]


def test_an_iota_that_wraps_is_no_index():
    def fun(x):
        i = jnp.arange(300).astype(np.uint8)
        mask = jax.lax.iota(np.uint8, 300)[:, None] == jax.lax.iota(np.uint8, 300)[None]
        return jnp.where(mask, x, 0).sum() + i.sum()

    module = program_of(fun, np.zeros((300, 300), np.float32))
    graph = graph_of(module)
    for op in graph.ops:
        if op.name == "stablehlo.reduce":
            product = collect(graph, op.index)
            assert product is None or all(len(set(f.labels)) == len(f.labels) for f in product.factors)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0)])
def test_nothing_is_collected_of_nothing(shape):
    a = np.zeros(shape, np.float32)
    graph = graph_of(program_of(lambda a, b: a @ b, a, a.T))
    (dot,) = (op.index for op in graph.ops if op.name == "stablehlo.dot_general")
    assert collect(graph, dot) is None
