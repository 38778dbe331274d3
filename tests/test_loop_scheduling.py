"""Regions: which ops run in loops, what leaves them, in how many loops, and where everything else goes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.axis import grow_axis
from stablehlo_mem.splitting.chunk_cost import chunk_sizes, loop_cost, round_chunk
from stablehlo_mem.splitting.loop_schedule import operand_uses
from stablehlo_mem.splitting.loop_scheduling import schedule_loops
from stablehlo_mem.targets.chips import CHIPS
from tests import support
from tests.support import program_of


def region_of(fun, seed, dimension, *shapes, big_bytes=1):
    return region_along(fun, seed, dimension, [np.zeros(s, np.float32) for s in shapes], big_bytes)


def region_along(fun, seed, dimension, arguments, big_bytes=1):
    graph = support.graph_of(program_of(fun, *arguments))
    value = next(v.index for v in graph.values if v.is_computed and graph.ops[v.producer].name == f"stablehlo.{seed}")
    axis = grow_axis(graph, rule_book(graph), (value, dimension), big_bytes)
    region = schedule_loops(graph, axis)
    assert region is not None
    return graph, region


def names(graph, ops):
    return [graph.ops[op].name.removeprefix("stablehlo.") for op in sorted(ops)]


def left(graph, region):
    return [(names(graph, [item.split_op.op])[0], item.split_op.reducing, item.loop) for item in region.outputs]


def scores(x, y, v):
    return jnp.exp(jnp.einsum("id,jd->ij", x, y)) @ v


def test_rows_leave_once():
    graph, region = region_of(scores, "exponential", 0, (12, 3), (20, 3), (20,))
    assert names(graph, region.inner_ops) == ["dot_general", "exponential", "dot_general"]
    assert left(graph, region) == [("dot_general", False, 0)]
    assert region.loop_count == 1


def test_columns_are_accumulated():
    graph, region = region_of(scores, "exponential", 1, (12, 3), (20, 3), (20,))
    assert left(graph, region) == [("dot_general", True, 0)]


def test_what_is_returned_is_not_worth_a_loop():
    graph = support.graph_of(program_of(lambda x: jnp.exp(x), np.zeros((12, 5), np.float32)))
    assert schedule_loops(graph, grow_axis(graph, rule_book(graph), (graph.returned[0], 0), 1)) is None


def test_a_value_that_is_needed_whole_too_leaves():
    def fun(x):
        k = jnp.exp(x)
        s = jnp.sin(k)
        return s.sum(1), jnp.sort(s, 0)[0]

    graph, region = region_of(fun, "exponential", 0, (12, 5))
    assert ("sine", False, 0) in left(graph, region)


def softmax_along(q, k, v):
    return jax.nn.softmax(jnp.einsum("id,jd->ij", q, k), -1) @ v


def test_a_softmax_along_the_axis_takes_three_loops():
    big = 12 * 200 * 4
    graph, region = region_of(softmax_along, "exponential", 1, (12, 3), (200, 3), (200, 4), big_bytes=big)
    assert region.loop_count == 3
    assert [phase for _, _, phase in left(graph, region)] == [0, 1, 2]
    assert all(reducing for _, reducing, _ in left(graph, region))
    runs = [names(graph, [n.op for n in region.split_ops[phase]]) for phase in range(3)]
    assert [r.count("exponential") for r in runs] == [0, 1, 1]
    assert all("dot_general" in r for r in runs)


def test_a_softmax_across_the_axis_takes_one():
    _, region = region_of(softmax_along, "exponential", 0, (12, 3), (200, 3), (200, 4))
    assert region.loop_count == 1


def test_small_values_are_stored_for_later_loops():
    """The row sums of squares, small and needed in both loops, are computed in the first only."""

    def fun(x, w):
        h = jnp.exp(x @ w)
        s = jnp.sqrt((x * x).sum(1))
        total = (h * s[:, None]).sum(0)
        return ((h * total) * jnp.cos(s)[:, None]).sum(0)

    graph, region = region_of(fun, "exponential", 0, (64, 3), (3, 40), big_bytes=64 * 40 * 4)
    assert region.loop_count == 2
    first, second = (names(graph, [n.op for n in region.split_ops[p]]) for p in range(2))
    assert "exponential" in first
    assert "exponential" in second
    assert "sqrt" not in second


def test_the_same_nodes_never_run_outside_and_inside():
    graph, region = region_of(softmax_along, "exponential", 1, (12, 3), (200, 3), (200, 4))
    assert not set(region.placement) & region.inner_ops
    for phase in range(region.loop_count):
        for node in region.split_ops[phase]:
            free = graph.ops[node.op].name.split(".")[1] in ("broadcast_in_dim", "constant", "iota")
            assert node.op in region.inner_ops or free


def test_needed_is_closed_and_in_program_order():
    graph, region = region_of(softmax_along, "exponential", 1, (12, 3), (200, 3), (200, 4))
    for phase in range(region.loop_count):
        needed = region.split_ops[phase]
        assert [n.op for n in needed] == sorted(n.op for n in needed)
        for node in needed:
            for use in operand_uses(graph, node):
                source = region.producer_in(phase, use)
                assert source is None or source in needed


def test_placement_puts_every_op_after_what_it_reads():
    def fun(x, w):
        e = jnp.exp(x)
        s = jnp.sort(e.sum(0)) * jnp.sin(w)
        t = jnp.cumsum((e * s).sum(0))
        return (e * t).sum(0) + s

    graph, region = region_of(fun, "exponential", 0, (64, 8), (8,), big_bytes=64 * 8 * 4)
    assert region.loop_count == 3
    ready = {item.value: item.loop + 1 for item in region.outputs}
    for op, place in region.placement.items():
        for value in graph.ops[op].operands:
            producer = graph.values[value].producer
            assert ready.get(value, region.placement.get(producer, 0)) <= place
    placed = {names(graph, [op])[0]: place for op, place in region.placement.items()}
    assert placed["sort"] == placed["sine"] == 1


@given(st.integers(1, 5000), st.integers(1, 5000))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_round_chunk(n, limit):
    chunk = round_chunk(n, limit)
    assert 1 <= chunk <= min(n, limit)
    if any(n % c == 0 for c in range(min(n, limit) // 2 + 1, min(n, limit) + 1)):
        assert n % chunk == 0
    if n % chunk and limit >= 128 <= n:
        assert chunk % 128 == 0
    assert chunk > min(n, limit) / 2 or n % chunk == 0 or chunk >= 1


@pytest.mark.parametrize(
    ("n", "limit", "chunk"), [(64, 64, 64), (64, 40, 32), (1024, 300, 256), (1009, 300, 256), (7, 4, 4), (5, 99, 5)]
)
def test_round_chunk_examples(n, limit, chunk):
    assert round_chunk(n, limit) == chunk


@given(st.integers(2, 100_000))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_chunk_sizes(n):
    sizes = chunk_sizes(n)
    assert list(sizes) == sorted(set(sizes), reverse=True)
    assert sizes[-1] == 1
    assert sizes[0] <= (n + 1) // 2


def gathered_and_summed(nodes, senders, receivers):
    return jnp.zeros_like(nodes).at[receivers].add(jnp.sin(nodes[senders]))


def multiplied_and_summed(nodes, senders, receivers):
    """The same, by one-hot matrices."""
    there, back = (ends[:, None] == jnp.arange(len(nodes)) for ends in (senders, receivers))
    return back.T.astype(nodes.dtype) @ jnp.sin(there.astype(nodes.dtype) @ nodes)


@pytest.mark.parametrize(("fun", "touched"), [(gathered_and_summed, True), (multiplied_and_summed, False)])
def test_a_step_is_charged_what_it_touches(fun, touched):
    edges = [np.zeros(1_000, np.int32)] * 2
    steps = []
    for count in (1_000, 1_000_000):
        graph, region = region_along(fun, "sine", 0, [np.zeros((count, 8), np.float32), *edges])
        steps.append(loop_cost(graph, region, CHIPS["cpu"], 10**6).step_seconds)
    assert (steps[0] == steps[1]) is touched


def scanned_sum(nodes, receivers):
    """The squares of what blocks of edges send to nodes, block by block."""

    def step(total, block):
        return total.at[block].add(jnp.sin(nodes[block])), None

    total, _ = jax.lax.scan(step, jnp.zeros_like(nodes), receivers)
    return total * total * 2


@pytest.mark.parametrize(("dimension", "shares"), [(0, False), (1, True)])
def test_an_axis_ends_at_a_loop_whose_work_every_chunk_would_repeat(dimension, shares):
    """Along the nodes every chunk would go over all edges; along the features it has its own part of each."""
    arguments = np.zeros((1_000, 64), np.float32), np.zeros((10, 100), np.int32)
    graph, region = region_along(scanned_sum, "multiply", dimension, arguments)
    assert ("while" in names(graph, region.inner_ops)) is shares


def test_a_step_is_charged_what_a_loop_inside_repeats():
    """The indices, which have no features."""
    nodes, costs = np.zeros((1_000, 64), np.float32), []
    for edges in (1_000, 100_000):
        graph, region = region_along(scanned_sum, "multiply", 1, [nodes, np.zeros((10, edges // 10), np.int32)])
        costs.append(loop_cost(graph, region, CHIPS["cpu"], 10**6))
    assert 0 < costs[1].step_seconds - costs[0].step_seconds < 0.5 * (costs[1].work_seconds - costs[0].work_seconds)


@pytest.mark.parametrize(("dimension", "lost"), [(0, False), (1, True)])
def test_few_innermost_elements_leave_lanes_empty(dimension, lost):
    graph, region = region_of(lambda x: jnp.exp(x).sum(1 - dimension), "exponential", dimension, (4096, 4096))
    cost = loop_cost(graph, region, CHIPS["cpu"], 10**6)
    assert cost.lane_seconds(64) == 0
    assert (cost.lane_seconds(8) > cost.lane_seconds(16) > 0) is lost
