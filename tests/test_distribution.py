"""What a device receives for an op of a distributed program, and how many devices share the op out."""

import pytest

from stablehlo_mem.analysis.distribution import exchanged_bytes, sharing_devices
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph

DEVICES = 8
X, W, Y = 1024 * 64 * 4, 64 * 128 * 4, 1024 * 128 * 4
"""Bytes of rows, weights, and what comes out."""
FORWARD = "contracting_dims = [1] x [0] : (tensor<1024x64xf32>, tensor<64x128xf32>) -> tensor<1024x128xf32>"
WEIGHTS = "contracting_dims = [0] x [0] : (tensor<1024x64xf32>, tensor<1024x128xf32>) -> tensor<64x128xf32>"


def dot(kind: str, left: str, right: str, result: str):
    """A dot whose operands and result lie as given, one dimension over all devices."""
    types = kind.split(" : (")[1].replace(")", "").replace(" -> ", ", ").split(", ")
    places = [f"#sdy.sharding<@mesh, [{{{dims.replace(',', '}, {')}}}]>" for dims in (left, right, result)]
    a, b, c = types
    program = ingest(f"""module attributes {{mhlo.num_partitions = {DEVICES} : i32}} {{
      sdy.mesh @mesh = <["x"={DEVICES}]>
      func.func public @main(%a: {a} {{sdy.sharding = {places[0]}}}, %b: {b} {{sdy.sharding = {places[1]}}})
          -> ({c} {{sdy.sharding = {places[2]}}}) {{
        %0 = stablehlo.dot_general %a, %b, {kind}
        return %0 : {c} }} }}""")
    canonicalize(program.module)
    graph = entry_graph(program.module)
    op = next(op for op in graph.ops if op.name == "stablehlo.dot_general")
    return exchanged_bytes(graph, op), sharing_devices(graph, op)


@pytest.mark.parametrize(
    ("kind", "left", "right", "result", "nbytes"),
    [
        pytest.param(FORWARD, '"x",', ",", '"x",', 0, id="rows over devices, weights everywhere"),
        pytest.param(FORWARD, '"x",', '"x",', '"x",', W, id="weights are gathered"),
        pytest.param(FORWARD, '"x",', ',"x"', ',"x"', W + Y / DEVICES, id="less than to gather the rows"),
        pytest.param(FORWARD, ',"x"', '"x",', ",", 2 * Y, id="sums over devices, which each needs whole"),
        pytest.param(WEIGHTS, '"x",', '"x",', '"x",', W, id="sums that stay in parts"),
        pytest.param(WEIGHTS, '"x",', '"x",', ",", 2 * W, id="sums of gradients"),
        pytest.param(WEIGHTS, '"x",', ',"x"', '"x",', Y / DEVICES + W, id="another dimension over the devices"),
        pytest.param(FORWARD, ",", ",", '"x",', 0, id="each computes its part"),
    ],
)
def test_what_moves_least(kind, left, right, result, nbytes):
    assert dot(kind, left, right, result) == (nbytes, DEVICES)
