"""Axes: how far one grows from a seed, what stands in its way, and when it starts again more coarsely."""

import jax
import jax.numpy as jnp
import numpy as np

from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.axis import grow_axis
from tests import support
from tests.support import normal, program_of


def graph_of(fun, *shapes):
    return support.graph_of(program_of(fun, *(np.zeros(s, np.float32) for s in shapes)))


def seed_of(graph, name, shape=None):
    return next(
        v.index
        for v in graph.values
        if v.is_computed and graph.ops[v.producer].name == f"stablehlo.{name}" and shape in (None, v.shape)
    )


def names(graph, axis):
    return sorted({graph.ops[node.op].name.removeprefix("stablehlo.") for node in axis.split_ops})


def grown(graph, value, dimension, big_bytes=1):
    return grow_axis(graph, rule_book(graph), (value, dimension), big_bytes)


def scores(x, y, v):
    return jnp.exp(jnp.einsum("id,jd->ij", x, y)) @ v


def test_grows_up_and_down_to_where_it_ends():
    graph = graph_of(scores, (12, 3), (20, 3), (20,))
    value = seed_of(graph, "exponential")
    rows, columns = grown(graph, value, 0), grown(graph, value, 1)
    assert names(graph, rows) == names(graph, columns) == ["dot_general", "exponential"]
    assert [n.reducing for n in rows.split_ops] == [False, False, False]
    assert [n.reducing for n in columns.split_ops] == [False, False, True]
    assert (rows.n, columns.n) == (12, 20)
    assert not rows.obstacles
    assert not columns.obstacles


def test_from_any_value_of_an_axis_the_same_axis():
    graph = graph_of(scores, (12, 3), (20, 3), (20,))
    first = grown(graph, seed_of(graph, "exponential"), 0)
    other = grown(graph, seed_of(graph, "dot_general", (12, 20)), 0)
    assert first.split_ops == other.split_ops


def test_small_values_are_left_outside():
    graph = graph_of(lambda x, w: jnp.sin(jnp.tanh(x) @ w).sum(1), (12, 3), (3, 40))
    big = 12 * 40 * 4
    assert "tanh" not in names(graph, grown(graph, seed_of(graph, "sine"), 0, big))
    assert "tanh" in names(graph, grown(graph, seed_of(graph, "sine"), 0, 1))


def test_a_broadcast_that_only_adds_a_dimension_is_followed():
    """The gradient of `d[..., 0]` puts what is large into a dimension of two by a broadcast and a pad."""
    graph = graph_of(lambda x: jnp.pad(jnp.exp(x)[:, :, None], ((0, 0), (0, 0), (0, 1))).sum((0, 1)), (12, 20))
    axis = grown(graph, seed_of(graph, "exponential"), 0, 12 * 20 * 4)
    assert names(graph, axis) == ["broadcast_in_dim", "exponential", "pad", "reduce"]
    assert axis.split_ops[-1].reducing


def test_a_broadcast_that_repeats_its_operand_is_not():
    graph = graph_of(lambda x, y: jnp.exp(jnp.sin(x)[:, None] + y) + jnp.cos(jnp.sin(x)[:, None] * y), (12,), (12, 20))
    axis = grown(graph, seed_of(graph, "exponential"), 0, 12 * 20 * 4)
    assert "sine" not in names(graph, axis)


def test_an_obstacle_names_the_op_in_the_way():
    graph = graph_of(lambda x, y: jnp.sort(jnp.exp(x @ y), axis=0).sum(0), (12, 3), (3, 20))
    axis = grown(graph, seed_of(graph, "exponential"), 0)
    (obstacle,) = [o for o in axis.obstacles if graph.ops[o.op].name == "stablehlo.sort"]
    assert obstacle.blocked.code == "needs-whole-dimension"
    assert (obstacle.value, obstacle.dimension) == (seed_of(graph, "exponential"), 0)


def test_an_op_without_a_rule_is_an_obstacle():
    graph = support.graph_of(
        "func.func public @main(%x: tensor<12x5xf32>) -> tensor<12x5xf32> {\n"
        "%y = stablehlo.exponential %x : tensor<12x5xf32>\n"
        "%z = stablehlo.custom_call @mine(%y) : (tensor<12x5xf32>) -> tensor<12x5xf32>\n"
        "return %z : tensor<12x5xf32> }"
    )
    axis = grown(graph, seed_of(graph, "exponential"), 0)
    assert {o.blocked.code for o in axis.obstacles} == {"no-rule"}


def test_a_value_captured_where_the_axis_does_not_pass_is_an_obstacle():
    def fun(x):
        k = jnp.exp(x)
        return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.sort(k, 0), lambda y: y, x)

    graph = graph_of(fun, (6, 6))
    axis = grown(graph, seed_of(graph, "exponential"), 0)
    (obstacle,) = axis.obstacles
    assert graph.ops[obstacle.op].name == "stablehlo.case"
    assert "stablehlo.sort" in obstacle.blocked.message
    assert "test_axis.py" in obstacle.blocked.message
    assert "elements are ordered along it" in obstacle.blocked.message


def test_starts_again_with_as_many_elements_as_all_can_do():
    graph = graph_of(lambda x: jnp.sin(jnp.exp(x).reshape(4, 3, 5)).sum(2), (12, 5))
    axis = grown(graph, seed_of(graph, "exponential"), 0)
    assert axis.n == 4
    assert "reshape" in names(graph, axis)


def test_two_coarser_divisions_meet_in_their_common_divisor():
    def fun(x):
        e = jnp.exp(x)
        return jnp.sin(e.reshape(4, 6, 5)).sum(2), jnp.cos(e.reshape(6, 4, 5)).sum(2)

    axis = grown(graph := graph_of(fun, (24, 5)), seed_of(graph, "exponential"), 0)
    assert axis.n == 2


def test_one_op_may_be_split_along_two_factors():
    graph = graph_of(lambda x: (lambda k: (k + k.T).sum(1))(jnp.exp(jnp.einsum("id,jd->ij", x, x))), (12, 3))
    axis = grown(graph, seed_of(graph, "exponential"), 0)
    dots = [n for n in axis.split_ops if graph.ops[n.op].name == "stablehlo.dot_general"]
    assert {n.result_dims for n in dots} == {(0,), (1,)}


def test_a_path_through_small_values_is_closed():
    """Centred rows: the mean is small, but all of the way back can be chunked: no barrier."""
    graph = graph_of(lambda x, w: (lambda h: jnp.exp(h - h.mean(1, keepdims=True)))(x @ w).sum(1), (12, 3), (3, 40))
    axis = grown(graph, seed_of(graph, "exponential"), 0, 12 * 40 * 4)
    assert "divide" in names(graph, axis)
    assert not any(n.reducing for n in axis.split_ops)


def test_a_path_through_a_reduction_over_the_axis_stays_open():
    graph = graph_of(lambda x, w: (lambda h: jnp.exp(h - h.mean(0, keepdims=True)))(x @ w).sum(1), (12, 3), (3, 40))
    axis = grown(graph, seed_of(graph, "exponential"), 0, 12 * 40 * 4)
    assert any(n.reducing for n in axis.split_ops)
    assert "divide" not in names(graph, axis)


def test_a_path_through_a_reshape_of_small_values_closes_along_fewer_elements():
    """The mean of each row is compared as an image of 3 x 4: rows of the image are what all can be split into."""

    def fun(x, w):
        h = x @ w
        image = jnp.sin(h.mean(1).reshape(3, 4))
        return jnp.exp(h - image.reshape(12, 1)).sum(1)

    graph = graph_of(fun, (12, 3), (3, 40))
    seed = seed_of(graph, "exponential")
    axis = grown(graph, seed, 0, 12 * 40 * 4)
    assert axis.n == 3
    assert {"sine", "reshape"} <= set(names(graph, axis))
    assert not any(n.reducing for n in axis.split_ops)
    # Where a third of the exponentials would be large itself, the axis keeps its elements and the path stays open.
    axis = grown(graph, seed, 0, 12 * 40)
    assert axis.n == 12
    assert "sine" not in names(graph, axis)


def test_growing_changes_nothing_and_is_deterministic():
    module = normal(program_of(jax.grad(lambda x: jnp.tanh(x @ x.T).sum()), np.zeros((12, 3), np.float32)))
    before = str(module)
    graph = entry_graph(module)
    for value in graph.values:
        for dimension in range(len(value.shape)):
            if value.is_computed:
                assert grown(graph, value.index, dimension) == grown(graph, value.index, dimension)
    assert str(module) == before
