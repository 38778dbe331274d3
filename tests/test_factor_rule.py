"""Factor rules: how an op splits along a dimension of one of its tensors, and why not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.ir.structural_equality import equal_ops_cache
from stablehlo_mem.sharding_rules import OP_RULES, rule_book, rule_of
from stablehlo_mem.sharding_rules.factor_rule import FactorRule, SplitOp, elementwise_rule, split_along
from stablehlo_mem.sharding_rules.halo import Window
from stablehlo_mem.sharding_rules.linear_ops import linear_groups
from tests.support import graph_of, normal, program_of

MATMUL = FactorRule((4, 6, 8), (((0,), (1,)), ((1,), (2,))), (((0,), (2,)),), frozenset({1}), ())


def test_a_shared_factor_passes_through():
    assert split_along(MATMUL, 7, MATMUL.operands[0], 0, 4) == SplitOp(7, 0, 4, (0, None), (0,), False)
    assert split_along(MATMUL, 7, MATMUL.results[0], 1, 8) == SplitOp(7, 2, 8, (None, 1), (1,), False)


def test_ops_of_one_rule_are_split_alike():
    assert [split_along(MATMUL, op, MATMUL.operands[0], 0, 4) for op in (7, 8)] == [
        SplitOp(op, 0, 4, (0, None), (0,), False) for op in (7, 8)
    ]


def test_a_reduction_factor_reduces():
    assert split_along(MATMUL, 7, MATMUL.operands[0], 1, 6) == SplitOp(7, 1, 6, (1, 0), (None,), True)


def test_fewer_elements_than_the_dimension_are_merged_ones():
    split_op = split_along(MATMUL, 7, MATMUL.operands[0], 0, 2)
    assert isinstance(split_op, SplitOp)
    assert split_op.n == 2


def test_a_coarser_factor_says_how_many_elements_it_can_do():
    rule = FactorRule((4, 3), (((0, 1),),), (((0,), (1,)),), frozenset(), ())
    blocked = split_along(rule, 0, rule.operands[0], 0, 12)
    assert isinstance(blocked, Blocked)
    assert (blocked.code, blocked.coarser_n) == ("finer-than-factor", 4)
    assert split_along(rule, 0, rule.operands[0], 0, 4) == SplitOp(0, 0, 4, (0,), (0,), False)
    assert split_along(rule, 0, rule.operands[0], 0, 2) == SplitOp(0, 0, 2, (0,), (0,), False)


def test_a_minor_factor_blocks():
    rule = FactorRule((4, 3), (((0,), (1,)),), (((0, 1),),), frozenset(), ())
    blocked = split_along(rule, 0, rule.operands[0], 1, 3)
    assert isinstance(blocked, Blocked)
    assert blocked.code == "minor-factor"


def test_unit_factors_do_not_count():
    rule = FactorRule((1, 4), (((0,), (1,)),), (((0, 1),),), frozenset(), ())
    assert split_along(rule, 0, rule.results[0], 0, 4) == SplitOp(0, 1, 4, (1,), (0,), False)
    assert isinstance(split_along(rule, 0, rule.operands[0], 0, 1), Blocked)


def test_a_blocked_factor_gives_its_reason():
    rule = elementwise_rule((4, 6), (2,), 1).block({1}, "elements are ordered along it")
    blocked = split_along(rule, 0, rule.operands[0], 1, 6)
    assert blocked == Blocked("needs-whole-dimension", "elements are ordered along it")
    assert isinstance(split_along(rule, 0, rule.operands[0], 0, 4), SplitOp)


def test_a_factor_of_operands_only_needs_the_whole():
    rule = FactorRule((4, 6), (((0,), (1,)),), (((0,),),), frozenset(), ())
    assert isinstance(split_along(rule, 0, rule.operands[0], 1, 6), Blocked)


def test_scalars_take_part_whole():
    rule = elementwise_rule((4, 6), (0, 2, 2), 1)
    assert split_along(rule, 0, rule.results[0], 0, 4) == SplitOp(0, 0, 4, (None, 0, 0), (0,), False)


OPS = {
    # op on %x : 4x6xf32, its result type: (dimension of %x → "through d", "reduces" or the code of the reason)
    "stablehlo.sine %x : tensor<4x6xf32>": ("4x6xf32", ["through 0", "through 1"]),
    "stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>": (
        "6x4xf32",
        ["through 1", "through 0"],
    ),
    "stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>": ("24xf32", ["through 0", "minor-factor"]),
    "stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<4x2x3xf32>": ("4x2x3xf32", ["through 0", "finer-than-factor"]),
    "stablehlo.reverse %x, dims = [1] : tensor<4x6xf32>": ("4x6xf32", ["through 0", "needs-whole-dimension"]),
    "stablehlo.slice %x [0:4, 1:5] : (tensor<4x6xf32>) -> tensor<4x4xf32>": (
        "4x4xf32",
        ["through 0", "needs-whole-dimension"],
    ),
    "stablehlo.concatenate %x, %x, dim = 1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>": (
        "4x12xf32",
        ["through 0", "needs-whole-dimension"],
    ),
    "stablehlo.broadcast_in_dim %x, dims = [2, 0] : (tensor<4x6xf32>) -> tensor<6x5x4xf32>": (
        "6x5x4xf32",
        ["through 2", "through 0"],
    ),
    "stablehlo.dot_general %x, %x, contracting_dims = [1] x [1] : "
    "(tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x4xf32>": ("4x4xf32", ["through 0", "reduces"]),
    "stablehlo.fft %x, type = FFT, length = [6] : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xcomplex<f32>>": (
        "4x6xcomplex<f32>",
        ["through 0", "needs-whole-dimension"],
    ),
    "stablehlo.optimization_barrier %x : tensor<4x6xf32>": ("4x6xf32", ["through 0", "through 1"]),
    "chlo.erf %x : tensor<4x6xf32> -> tensor<4x6xf32>": ("4x6xf32", ["through 0", "through 1"]),
}


@pytest.mark.parametrize("op", OPS)
def test_ops(op):
    result, expected = OPS[op]
    argument = "4x6xcomplex<f32>" if "complex" in result else "4x6xf32"
    main = f"@main(%x: tensor<{argument}>) -> tensor<{result}>"
    graph = graph_of(f"func.func public {main} {{\n%y = {op}\nreturn %y : tensor<{result}> }}")
    rule = rule_of(graph, 0)
    assert rule is not None
    assert [describe(split_along(rule, 0, rule.operands[0], d, size)) for d, size in enumerate((4, 6))] == expected


def describe(placed):
    if isinstance(placed, Blocked):
        return placed.code
    return "reduces" if placed.reducing else f"through {placed.result_dims[0]}"


def test_what_has_no_row_is_a_barrier():
    graph = graph_of(
        "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%y = stablehlo.custom_call @mine(%x) : (tensor<4xf32>) -> tensor<4xf32>\nreturn %y : tensor<4xf32> }"
    )
    assert rule_of(graph, 0) is None


def test_a_solve_treats_each_column_by_itself():
    def solve(left):
        graph = graph_of(
            "func.func public @main(%a: tensor<3x4x4xf32>, %b: tensor<3x4x4xf32>) -> tensor<3x4x4xf32> {\n"
            f'%x = "stablehlo.triangular_solve"(%a, %b) <{{left_side = {left}, lower = true, unit_diagonal = false, '
            "transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<3x4x4xf32>, tensor<3x4x4xf32>) -> "
            "tensor<3x4x4xf32>\nreturn %x : tensor<3x4x4xf32> }"
        )
        rule = rule_of(graph, 0)
        assert rule is not None
        return [describe(split_along(rule, 0, rule.results[0], d, size)) for d, size in enumerate((3, 4, 4))]

    assert solve("true") == ["through 0", "needs-whole-dimension", "through 2"]
    assert solve("false") == ["through 0", "through 1", "needs-whole-dimension"]


def test_free_rows_read_nothing_big():
    assert {name for name, row in OP_RULES.items() if row.free} == {
        *("stablehlo.broadcast_in_dim", "stablehlo.constant", "stablehlo.iota")
    }


def test_a_cumulative_sum_goes_on_along_its_own_dimension_only():
    """A cumulative sum over rows leaves the columns alone."""
    graph = graph_of(program_of(lambda x: jnp.cumsum(x, 0), np.zeros((12, 5), np.float32)))
    op = next(op.index for op in graph.ops if op.name == "stablehlo.reduce_window")
    rule = rule_of(graph, op)
    assert rule is not None
    assert split_along(rule, op, rule.operands[0], 0, 12) == SplitOp(op, 0, 12, (0, None), (0,), False, direction=1)
    assert split_along(rule, op, rule.operands[0], 1, 5) == SplitOp(op, 1, 5, (1, None), (1,), False)


def test_windows_slide_over_an_operand_by_chunks_of_the_result():
    def pooled(x):
        return jax.lax.reduce_window(x, -np.inf, jax.lax.max, (3, 1), (2, 1), "SAME")

    graph = graph_of(program_of(pooled, np.zeros((12, 5), np.float32)))
    op = next(op.index for op in graph.ops if op.name == "stablehlo.reduce_window")
    rule = rule_of(graph, op)
    assert rule is not None
    fine = split_along(rule, op, rule.results[0], 0, 6)
    assert fine == split_along(rule, op, rule.operands[0], 0, 6)
    assert isinstance(fine, SplitOp)
    assert (fine.operand_dims, fine.result_dims) == ((0, None), (0,))
    assert fine.windows == ((0, Window(12, 2, 0, 3)),)
    coarse = split_along(rule, op, rule.results[0], 0, 3)
    assert isinstance(coarse, SplitOp)
    assert coarse.windows == ((0, Window(12, 4, 0, 5)),)
    assert split_along(rule, op, rule.operands[0], 0, 12) == Blocked(
        "finer-than-factor", "the op splits the dimension more coarsely", 6
    )


def test_a_slice_is_made_of_windows_that_begin_elsewhere():
    graph = graph_of(program_of(lambda x: x[3:11:2, 1:4], np.zeros((12, 5), np.float32)))
    op = next(op.index for op in graph.ops if op.name == "stablehlo.slice")
    rule = rule_of(graph, op)
    assert rule is not None
    rows, columns = (split_along(rule, op, rule.results[0], d, n) for d, n in ((0, 2), (1, 3)))
    assert isinstance(rows, SplitOp)
    assert (rows.operand_dims, rows.windows) == ((0,), ((0, Window(12, 4, -3, 3)),))
    assert isinstance(columns, SplitOp)
    assert (columns.operand_dims, columns.windows) == ((1,), ((0, Window(5, 1, -1, 1)),))


LOOP = """
  func.func public @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32>, %n: tensor<i32>) -> tensor<4x6xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %r:3 = stablehlo.while(%i = %zero, %c = %x, %acc = %w) : tensor<i32>, tensor<4x6xf32>, tensor<6x6xf32>
    cond {
      %more = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %more : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %d = stablehlo.dot_general %c, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
      %g = stablehlo.dot_general %c, %d, contracting_dims = [0] x [0] : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
      %sum = stablehlo.add %acc, %g : tensor<6x6xf32>
      stablehlo.return %j, %d, %sum : tensor<i32>, tensor<4x6xf32>, tensor<6x6xf32>
    }
    return %r#1 : tensor<4x6xf32>
  }"""  # noqa: E501


def test_a_loop_moves_the_rows_of_its_states_and_sums_over_them():
    """Operands in order: counter, states, sums; and what is captured: the bound, one and the weights."""
    graph = graph_of(LOOP)
    (op,) = (op for op in graph.ops if op.name == "stablehlo.while")
    book = rule_book(graph)
    split_op = book.split(op.index, "operands", 1, 0, 4)
    assert isinstance(split_op, SplitOp)
    captured = (None,) * 3
    assert (split_op.operand_dims, split_op.result_dims) == ((None, 0, None, *captured), (None, 0, None))
    assert (split_op.partial, split_op.invariant_results, split_op.init_operands) == ((2,), (0,), (2,))
    assert book.split(op.index, "results", 1, 0, 4) == split_op
    blocked = book.split(op.index, "operands", 1, 1, 6)
    assert isinstance(blocked, Blocked)
    assert "in it stablehlo.dot_general" in blocked.message


def test_what_is_known_of_a_loop_is_known_of_those_alike():
    """In the graph of another state of the program too; of other shapes, numbers or sources of the same nothing is."""

    def repeated(x, y, z):
        def times(c, factor):
            return jax.lax.fori_loop(0, 3, lambda _, c: jnp.tanh(c) * factor, c)

        alike = [times(one, 2.0) for one in (x, y)]
        return [*alike, times(z, 2.0), times(x, 3.0), times(jnp.sin(x), 2.0)]

    matrix = np.ones((4, 6), np.float32)
    module = normal(program_of(repeated, matrix, matrix, np.ones((4, 7), np.float32)))
    graph = entry_graph(module)
    loops = [op.index for op in graph.ops if op.name == "stablehlo.while"]
    known = [id(equal_ops_cache(graph, op)) for op in loops]
    assert len(loops) == 5
    assert known[0] == known[1]
    assert len(set(known)) == 4
    again = entry_graph(module, graph.interned)
    assert [id(equal_ops_cache(again, op)) for op in loops] == known


def test_what_adds_up_in_parts():
    def groups(op, *types):
        arguments = ", ".join(f"%{name}: tensor<{t}>" for name, t in zip("abc", types, strict=False))
        main = f"@main({arguments}) -> tensor<{types[0]}>"
        graph = graph_of(f"func.func public {main} {{\n%y = {op}\nreturn %y : tensor<{types[0]}> }}")
        return linear_groups(graph.handles[0])

    f, i = "4xf32", "4xi32"
    assert groups("stablehlo.add %a, %b : tensor<4xf32>", f, f) == ((0, 1),)
    assert groups("stablehlo.multiply %a, %b : tensor<4xf32>", f, f) == ((0,), (1,))
    assert groups("stablehlo.divide %a, %b : tensor<4xf32>", f, f) == ((0,),)
    assert groups("stablehlo.divide %a, %b : tensor<4xi32>", i, i) == ()
    assert groups("stablehlo.maximum %a, %b : tensor<4xf32>", f, f) == ()


def test_a_collective_of_several_shapes_has_no_rule():
    """One rule says which dimension of all of them is split."""
    graph = graph_of(
        """
        func.func public @main(%x: tensor<4x6xf32>, %y: tensor<6x4xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>) {
          %0:2 = "stablehlo.all_reduce"(%x, %y) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
          ^bb0(%l: tensor<f32>, %r: tensor<f32>):
            %1 = stablehlo.add %l, %r : tensor<f32>
            stablehlo.return %1 : tensor<f32>
          }) : (tensor<4x6xf32>, tensor<6x4xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>)
          return %0#0, %0#1 : tensor<4x6xf32>, tensor<6x4xf32>
        }
        """
    )
    assert rule_of(graph, 0) is None
