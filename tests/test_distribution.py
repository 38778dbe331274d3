"""What a device receives for an op of a distributed program, and how many devices share the op out."""

import pytest

from stablehlo_mem.analysis.distribution import (
    exchanged_bytes,
    gathered_bytes,
    partial_bytes,
    repeated_bytes,
    sharing_devices,
)
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.sharding_rules.factor_rule import SplitOp
from stablehlo_mem.targets.chips import CHIPS

DEVICES = 8
X, W, Y = 1024 * 64 * 4, 64 * 128 * 4, 1024 * 128 * 4
"""Bytes of rows, weights, and what comes out."""
FORWARD = "contracting_dims = [1] x [0] : (tensor<1024x64xf32>, tensor<64x128xf32>) -> tensor<1024x128xf32>"
WEIGHTS = "contracting_dims = [0] x [0] : (tensor<1024x64xf32>, tensor<1024x128xf32>) -> tensor<64x128xf32>"


def dot(kind: str, left: str, right: str, result: str):
    """What is exchanged for a dot that lies as given, and how many devices share it out."""
    _program, graph, op = placed_dot(kind, left, right, result)
    return exchanged_bytes(graph, op), sharing_devices(graph, op)


def placed_dot(kind: str, left: str, right: str, result: str):
    """A dot whose operands and result lie as given, one dimension over all devices, with its program and graph."""
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
    return program, graph, next(op for op in graph.ops if op.name == "stablehlo.dot_general")


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


@pytest.mark.parametrize(
    ("result", "nbytes"),
    [
        pytest.param('[{"x", "y"}, {}]', W, id="along one dimension they are scattered"),
        pytest.param('[{"x"}, {"y"}]', W + W / DEVICES, id="along two they change one of them then"),
        pytest.param("[{}, {}]", 2 * W, id="whole they are gathered again"),
    ],
)
def test_sums_over_two_axes_of_a_mesh(result, nbytes):
    rows = '#sdy.sharding<@mesh, [{"x", "y"}, {}]>'
    program = ingest(f"""module attributes {{mhlo.num_partitions = {DEVICES} : i32}} {{
      sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func public @main(%a: tensor<1024x64xf32> {{sdy.sharding = {rows}}},
                             %b: tensor<1024x128xf32> {{sdy.sharding = {rows}}})
          -> (tensor<64x128xf32> {{sdy.sharding = #sdy.sharding<@mesh, {result}>}}) {{
        %0 = stablehlo.dot_general %a, %b, {WEIGHTS}
        return %0 : tensor<64x128xf32> }} }}""")
    canonicalize(program.module)
    graph = entry_graph(program.module)
    (op,) = (op for op in graph.ops if op.name == "stablehlo.dot_general")
    assert exchanged_bytes(graph, op) == nbytes


@pytest.mark.parametrize(
    ("kind", "places", "result_dimension", "nbytes"),
    [
        pytest.param(FORWARD, ('"x",', '"x",', '"x",'), 0, W, id="each chunk of rows gathers the weights"),
        pytest.param(FORWARD, (',"x"', '"x",', ","), 0, 0, id="each chunk of rows has sums of its own"),
        pytest.param(FORWARD, (',"x"', '"x",', ","), 1, 0, id="each chunk of columns too"),
        pytest.param(FORWARD, ('"x",', '"x",', '"x",'), 1, 0, id="each chunk of columns gathers its own weights"),
    ],
)
def test_what_each_chunk_moves_again(kind, places, result_dimension, nbytes):
    _program, graph, op = placed_dot(kind, *places)
    parts = graph.values[op.results[0]].parts
    n = 16 if not parts or parts[result_dimension] == 1 else 16 * DEVICES
    book = rule_book(graph).within(n // 16)
    split_op = book.split(op.index, "results", 0, result_dimension, n)
    assert isinstance(split_op, SplitOp)
    assert repeated_bytes(graph, split_op) == nbytes


def test_each_chunk_of_rows_adds_to_the_gradient_of_the_weights():
    _program, graph, op = placed_dot(WEIGHTS, '"x",', '"x",', '"x",')
    split_op = rule_book(graph).within(DEVICES).split(op.index, "operands", 0, 0, 16 * DEVICES)
    assert isinstance(split_op, SplitOp)
    assert repeated_bytes(graph, split_op) == W


@pytest.mark.parametrize(
    ("kind", "left", "right", "result", "gathered", "partial"),
    [
        pytest.param(FORWARD, '"x",', ",", '"x",', {}, 0, id="nothing"),
        pytest.param(FORWARD, '"x",', '"x",', '"x",', {1: W}, 0, id="weights"),
        pytest.param(WEIGHTS, '"x",', '"x",', '"x",', {}, W, id="sums that each device has a part of in the end"),
        pytest.param(WEIGHTS, '"x",', '"x",', ",", {}, W, id="sums that each device has"),
    ],
)
def test_what_a_device_has_while_an_op_runs(kind, left, right, result, gathered, partial):
    _program, graph, op = placed_dot(kind, left, right, result)
    assert gathered_bytes(graph, op) == {op.operands[i]: nbytes for i, nbytes in gathered.items()}
    assert partial_bytes(graph, op) == partial


def test_what_ops_gather_is_in_memory_from_the_first_to_the_last():
    rows, weights = '#sdy.sharding<@mesh, [{"x"}, {}]>', '#sdy.sharding<@mesh, [{"x"}, {}]>'
    program = ingest(f"""module attributes {{mhlo.num_partitions = {DEVICES} : i32}} {{
      sdy.mesh @mesh = <["x"={DEVICES}]>
      func.func public @main(%x: tensor<16384x512xf32> {{sdy.sharding = {rows}}},
          %w: tensor<512x512xf32> {{sdy.sharding = {weights}}}) -> (tensor<16384x512xf32> {{sdy.sharding = {rows}}}) {{
        %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : (tensor<16384x512xf32>, tensor<512x512xf32>) -> tensor<16384x512xf32>
        %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1]
          : (tensor<16384x512xf32>, tensor<512x512xf32>) -> tensor<16384x512xf32>
        return %1 : tensor<16384x512xf32> }} }}""")
    canonicalize(program.module)
    peak = find_peak(entry_graph(program.module), CHIPS["cuda:h200"])
    rows_of_one = 16384 * 512 * 4 // DEVICES
    assert peak.temp_bytes == rows_of_one + 512 * 512 * 4


@pytest.mark.parametrize(
    ("lies", "moved"),
    [('"x"}, {', 0), ('}, {"x"', X / DEVICES), ("}, {", 0)],
    ids=["as the specs say", "along another dimension", "whole everywhere"],
)
def test_what_enters_a_shard_map_otherwise_than_its_specs_say_is_moved(lies, moved):
    rows = '#sdy.sharding<@mesh, [{"x"}, {}]>'
    program = ingest(f"""module attributes {{mhlo.num_partitions = {DEVICES} : i32}} {{
      sdy.mesh @mesh = <["x"={DEVICES}]>
      func.func public @main(%a: tensor<1024x64xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{{lies}}}]>}})
          -> (tensor<1024x64xf32> {{sdy.sharding = {rows}}}) {{
        %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{"x"}}, {{}}]>] out_shardings=[<@mesh, [{{"x"}}, {{}}]>]
            manual_axes={{"x"}} (%x: tensor<128x64xf32>) {{
          %1 = stablehlo.negate %x : tensor<128x64xf32>
          sdy.return %1 : tensor<128x64xf32>
        }} : (tensor<1024x64xf32>) -> tensor<1024x64xf32>
        return %0 : tensor<1024x64xf32> }} }}""")
    canonicalize(program.module)
    graph = entry_graph(program.module)
    op = next(op for op in graph.ops if op.name == "sdy.manual_computation")
    assert exchanged_bytes(graph, op) == moved
    assert sum(gathered_bytes(graph, op).values()) == moved
