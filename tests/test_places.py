"""Where a finished program for several devices says that results are computed."""

import re

import pytest

from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.planner.search_state import as_returned
from stablehlo_mem.targets.target import named_targets

SUM = "contracting_dims = [0] x [0] : (tensor<32x64xf32>, tensor<32x16xf32>) -> tensor<64x16xf32>"


def finished(arguments: str, result: str, body: str):
    """A module of a function with such a body, marked and as it is returned; over a mesh of 4 x 2 devices."""
    program = ingest(f"""module attributes {{mhlo.num_partitions = 8 : i32}} {{
      sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func public @main({arguments}) -> {result} {{ {body} }} }}""")
    canonicalize(program.module)
    return program.module, str(as_returned(program.module, named_targets("cuda:h200")))


def constraints(text: str) -> list[str]:
    return re.findall(r"sdy.sharding_constraint %\S+ <@mesh, (.*)> :", text)


def argument(name: str, shape: str, place: str) -> str:
    return f"%{name}: tensor<{shape}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {place}>}}"


def exponential(operand: str, said: str, shape: str = "32x16"):
    """An exponential of what lies in one place, of which propagation says another one."""
    placed = f"#sdy.sharding_per_value<[<@mesh, {said}>]>"
    body = f"""%0 = stablehlo.exponential %a {{sdy.sharding = {placed}}} : tensor<{shape}xf32>
               return %0 : tensor<{shape}xf32>"""
    return finished(argument("a", shape, operand), f"tensor<{shape}xf32>", body)


def test_an_elementwise_op_computes_its_result_where_its_operand_lies():
    module, text = exponential('[{"x"}, {}]', '[{}, {"x"}]')
    assert constraints(text) == ['[{"x"}, {}]']
    (value,) = (v for v in entry_graph(module).values if v.is_computed)
    assert value.parts == (4, 1)


@pytest.mark.parametrize(
    ("operand", "said"),
    [
        pytest.param('[{"x"}, {}]', '[{"x"}, {}]', id="in the same place"),
        pytest.param('[{"x"}, {}]', '[{"x"}, {"y"}]', id="more of it"),
        pytest.param("[{}, {}]", '[{"x"}, {}]', id="of what each has whole"),
        pytest.param('[{"x"}, {"y"}]', '[{}, {"y"}]', id="gathered, which something wants"),
        pytest.param('[{"y"}, {}]', '[{}, {"x"}]', id="shared out over more devices"),
    ],
)
def test_other_ops_compute_it_where_shardy_says(operand, said):
    _, text = exponential(operand, said)
    assert constraints(text) == []


def test_what_reads_it_follows():
    placed = '#sdy.sharding_per_value<[<@mesh, [{}, {"x"}]>]>'
    body = f"""%0 = stablehlo.exponential %a {{sdy.sharding = {placed}}} : tensor<32x16xf32>
               %1 = stablehlo.broadcast_in_dim %0, dims = [1, 2] : (tensor<32x16xf32>) -> tensor<1x32x16xf32>
               %2 = stablehlo.transpose %1, dims = [2, 0, 1] : (tensor<1x32x16xf32>) -> tensor<16x1x32xf32>
               %3 = stablehlo.reshape %2 : (tensor<16x1x32xf32>) -> tensor<2x8x32xf32>
               return %3 : tensor<2x8x32xf32>"""
    module, text = finished(argument("a", "32x16", '[{"x"}, {}]'), "tensor<2x8x32xf32>", body)
    assert constraints(text) == ['[{"x"}, {}]', '[{}, {"x"}, {}]', '[{}, {}, {"x"}]', '[{}, {}, {"x"}]']
    assert [v.parts for v in entry_graph(module).values if v.is_computed][-1] == (1, 1, 4)


@pytest.mark.parametrize(
    ("rows", "result", "constrained"),
    [
        pytest.param(
            '[{"x", "y"}, {}]', '[{"x"}, {"y"}]', ['[{"x", "y"}, {}]', '[{"x"}, {"y"}]'], id="both summed over"
        ),
        pytest.param('[{"x", "y"}, {}]', '[{"x", "y"}, {}]', [], id="scattered as it lies"),
        pytest.param('[{"x"}, {}]', '[{"x"}, {"y"}]', [], id="one summed over"),
        pytest.param('[{"x", "y"}, {}]', "[{}, {}]", [], id="whole"),
    ],
)
def test_a_sum_over_devices_is_scattered_along_one_dimension(rows, result, constrained):
    body = f"""%0 = stablehlo.dot_general %a, %b, {SUM}
               return %0 : tensor<64x16xf32>"""
    arguments = f"{argument('a', '32x64', rows)}, {argument('b', '32x16', rows)}"
    returned = f"(tensor<64x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {result}>}})"
    _, text = finished(arguments, returned, body)
    assert constraints(text) == constrained
