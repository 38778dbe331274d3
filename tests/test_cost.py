"""The cost model: FLOPs, bytes and trip counts of tiny programs."""

import pytest

from stablehlo_mem.cost import graph_seconds, op_bytes, op_flops, op_seconds, trip_count
from stablehlo_mem.ir.bindings import ir, parse_module
from stablehlo_mem.ir.graph import Graph, entry_graph
from stablehlo_mem.targets.chips import CHIPS

CPU = CHIPS["cpu"]
modules: list[ir.Module] = []
"""Keeps alive what the graphs point into."""


def graph_of(text: str) -> Graph:
    module = parse_module(text)
    modules.append(module)
    return entry_graph(module)


DOT = """func.func public @main(%x: tensor<4x64x32xf32>, %y: tensor<4x32x16xf32>) -> tensor<4x64x16xf32> {
  %d = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<4x64x32xf32>, tensor<4x32x16xf32>) -> tensor<4x64x16xf32>
  return %d : tensor<4x64x16xf32>
}"""


def test_dot_flops_and_bytes():
    graph = graph_of(DOT)
    assert op_flops(graph, graph.ops[0]) == 2 * 4 * 64 * 32 * 16
    assert op_bytes(graph, graph.ops[0], CPU) == 4 * (4 * 64 * 32 + 4 * 32 * 16 + 4 * 64 * 16)


def test_roofline_takes_the_slower_side():
    graph = graph_of(DOT)
    flops, nbytes = op_flops(graph, graph.ops[0]), op_bytes(graph, graph.ops[0], CPU)
    expected = max(flops / CPU.flops_per_second, nbytes / CPU.bytes_per_second)
    assert op_seconds(graph, 0, CPU) == pytest.approx(expected)


def test_convolution_flops():
    graph = graph_of("""
    func.func public @main(%x: tensor<1x8x8x4xf32>, %k: tensor<3x3x4x16xf32>) -> tensor<1x8x8x16xf32> {
      %c = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x8x8x16xf32>
      return %c : tensor<1x8x8x16xf32>
    }""")
    assert op_flops(graph, graph.ops[0]) == 2 * 8 * 8 * 16 * 9 * 4


@pytest.mark.parametrize(("name", "flops"), [("add", 1), ("divide", 4), ("power", 20)], ids=["add", "divide", "power"])
def test_elementwise_flops_come_from_the_table(name: str, flops: int):
    graph = graph_of(f"""func.func public @main(%x: tensor<100xf32>) -> tensor<100xf32> {{
      %a = stablehlo.{name} %x, %x : tensor<100xf32>
      return %a : tensor<100xf32>
    }}""")
    assert op_flops(graph, graph.ops[0]) == 100 * flops


def test_fused_chain_moves_its_ends_only():
    graph = graph_of("""func.func public @main(%x: tensor<1000000xf32>) -> tensor<1000000xf32> {
      %a = stablehlo.add %x, %x : tensor<1000000xf32>
      %b = stablehlo.add %a, %x : tensor<1000000xf32>
      return %b : tensor<1000000xf32>
    }""")
    assert graph_seconds(graph, CPU) < op_seconds(graph, 0, CPU) + op_seconds(graph, 1, CPU)


def loop(bound: str, step: int = 2) -> Graph:
    return graph_of(f"""func.func public @main(%x: tensor<1000xf32>, %n: tensor<i32>) -> tensor<1000xf32> {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %ten = stablehlo.constant dense<10> : tensor<i32>
      %s = stablehlo.constant dense<{step}> : tensor<i32>
      %w:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<1000xf32>
      cond {{
        %p = stablehlo.compare LT, %i, {bound} : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %d = stablehlo.tanh %c : tensor<1000xf32>
        %j = stablehlo.add %i, %s : tensor<i32>
        stablehlo.return %j, %d : tensor<i32>, tensor<1000xf32>
      }}
      return %w#1 : tensor<1000xf32>
    }}""")


@pytest.mark.parametrize(("bound", "step", "trips"), [("%ten", 2, 5), ("%ten", 3, 4), ("%n", 2, 1)])
def test_trip_count(bound: str, step: int, trips: int):
    graph = loop(bound, step)
    op = next(o for o in graph.ops if o.blocks)
    assert trip_count(graph, op) == trips


def test_loop_costs_its_body_times_its_trips():
    slow, fast = loop("%ten", 1), loop("%ten", 10)
    assert graph_seconds(slow, CPU) == pytest.approx(10 * graph_seconds(fast, CPU), rel=0.01)
