"""The cost model: FLOPs, bytes, counters and trip counts of tiny programs."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.analysis.cost_model import graph_flops, graph_seconds, op_seconds
from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.op_cost import (
    Matmul,
    arithmetic_seconds,
    flop_seconds,
    imbalance_factor,
    matmul_of,
    op_bytes,
    op_flops,
)
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import ir, parse_module
from stablehlo_mem.ir.graph import Graph, entry_graph
from stablehlo_mem.ir.trip_count import Counter, find_counter, trip_count
from stablehlo_mem.targets.chips import CHIPS
from tests import support
from tests.support import program_of

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
    graph, unpacked = graph_of(DOT), dataclasses.replace(CPU, packed_rows=0)
    flops, nbytes = op_flops(graph, graph.ops[0]), op_bytes(graph, graph.ops[0], CPU)
    expected = max(flops / CPU.flops_per_second, nbytes / CPU.bytes_per_second)
    assert op_seconds(graph, 0, unpacked) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rows", "columns", "times"), [(10**6, 10**6, 1), (CPU.packed_rows, 10**6, 2), (2 * CPU.packed_rows,) * 2 + (2,)]
)
def test_operands_are_packed_for_all_rows_and_columns_of_a_matmul(rows: int, columns: int, times: float):
    assert Matmul(rows, columns).packing_factor(CPU) == pytest.approx(times, rel=1e-3)
    assert Matmul(1, 1).packing_factor(CPU) == Matmul(1, columns).packing_factor(CPU) <= 3
    assert Matmul(1, columns).packing_factor(CHIPS["cuda:h200"]) == 1


@pytest.mark.parametrize(
    ("subscripts", "turned", "slow"),
    [
        ("bik,bkj->bij", (False, False), False),
        ("bik,bjk->bij", (False, True), False),
        ("bki,bkj->bij", (True, False), True),
        ("bki,bjk->bij", (True, True), True),
        ("bkhi,bkj->bhij", (True, False), True),
    ],
)
def test_a_left_operand_that_lies_transposed_takes_longer_to_pack(subscripts: str, turned: Any, slow: bool):
    sizes = dict(zip("bhikj", (2, 3, 400, 100, 50), strict=True))
    shapes = ([sizes[letter] for letter in side] for side in subscripts.partition("->")[0].split(","))
    program = program_of(lambda x, y: jnp.einsum(subscripts, x, y), *(np.ones(shape, np.float32) for shape in shapes))
    graph = entry_graph(program.module)
    found = next(matmul_of(graph, op) for op in graph.ops if op.name == "stablehlo.dot_general")
    assert found.transposed == turned
    assert found.swapped().swapped() == found
    straight = dataclasses.replace(found, transposed=(False, False))
    assert (found.packing_factor(CPU) > 1.5 * straight.packing_factor(CPU)) is slow
    assert found.packing_factor(CHIPS["cuda:h200"]) == 1


def test_an_odd_number_of_rows_leaves_a_core_waiting():
    assert imbalance_factor(5, CPU) == pytest.approx(6 / 5)
    assert imbalance_factor(4, CPU) == imbalance_factor(1, CPU) == 1
    assert imbalance_factor(5, CHIPS["cuda:h200"]) == 1


@pytest.mark.parametrize(("shape", "rows"), [((3, 1000), 3), ((1, 3, 1000), 3), ((1, 1000), 1000)])
def test_outermost_rows_are_dealt_out(shape: tuple[int, ...], rows: int):
    written = "x".join(map(str, shape))
    graph = graph_of(f"""func.func public @main(%x: tensor<{written}xf32>) -> tensor<{written}xf32> {{
      %a = stablehlo.tanh %x : tensor<{written}xf32>
      return %a : tensor<{written}xf32>
    }}""")
    expected = flop_seconds(graph, graph.ops[0], CPU) * imbalance_factor(rows, CPU)
    assert arithmetic_seconds(graph, graph.ops[0], CPU) == pytest.approx(expected)


def test_convolution_flops():
    graph = graph_of("""
    func.func public @main(%x: tensor<1x8x8x4xf32>, %k: tensor<3x3x4x16xf32>) -> tensor<1x8x8x16xf32> {
      %c = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>) -> tensor<1x8x8x16xf32>
      return %c : tensor<1x8x8x16xf32>
    }""")
    assert op_flops(graph, graph.ops[0]) == 2 * 8 * 8 * 16 * 9 * 4
    packing = 1 + CPU.packed_rows / 16
    assert arithmetic_seconds(graph, graph.ops[0], CPU) == pytest.approx(
        flop_seconds(graph, graph.ops[0], CPU) * packing
    )


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


@pytest.mark.parametrize("columns", [1, 4])
def test_of_what_a_kernel_reads_slices_count_what_they_take(columns: int):
    """Here a million rows of 1,000 columns, of which few are read, and as many numbers are written."""
    body = "".join(
        f"""%s{i} = stablehlo.slice %x [0:1000000, {i}:{i + 1}] : (tensor<1000000x1000xf32>) -> tensor<1000000x1xf32>
        %a{i + 1} = stablehlo.add %a{i}, %s{i} : tensor<1000000x1xf32>
        """
        for i in range(columns)
    )
    graph = graph_of(f"""func.func public @main(%x: tensor<1000000x1000xf32>, %a0: tensor<1000000x1xf32>)
        -> tensor<1000000x1xf32> {{
      {body}
      return %a{columns} : tensor<1000000x1xf32>
    }}""")
    fused_away = (columns - 1) * arithmetic_seconds(graph, graph.ops[-2], CPU)
    assert graph_seconds(graph, CPU) == pytest.approx((2 + columns) * 4e6 / CPU.bytes_per_second + fused_away)


@pytest.mark.parametrize("name", ["cuda:h200", "tpu:v5e"])
def test_of_what_is_moved_and_sliced_on_the_fly_a_kernel_reads_and_computes_the_slice(name: str):
    def seconds(f: Any, *shape: int) -> float:
        program = ingest(support.exported(f, support.spec(*shape), jax.ShapeDtypeStruct((), jnp.int32)))
        return graph_seconds(support.graph_of(program), CHIPS[name])

    def moved(x: Any, i: Any) -> Any:
        return jnp.sin(jnp.exp(x).swapaxes(0, 1)[1:][5:7]) + i

    def chosen(x: Any, i: Any) -> Any:
        return jnp.sin(jax.lax.dynamic_slice_in_dim(jnp.exp(x).swapaxes(0, 1)[1:], i, 2)) + i

    whole = 64, 2048, 256
    of_slice = seconds(lambda x, i: jnp.sin(jnp.exp(x).swapaxes(0, 1)) + i, 64, 2, 256)
    assert of_slice / 2 < seconds(moved, *whole) < 2 * of_slice
    assert of_slice / 2 < seconds(chosen, *whole) < 2 * of_slice
    assert seconds(lambda x, i: (moved(x, i), jnp.exp(x).sum()), *whole) > 10 * of_slice


def test_a_kernel_reads_its_own_slice_of_what_others_slice_too():
    """Layers of weights, one a kernel: together they read the stack once."""
    body = "".join(
        f"""%s{i} = stablehlo.slice %x [{i}:{i + 1}, 0:1000000] : (tensor<10x1000000xf32>) -> tensor<1x1000000xf32>
        %b{i} = stablehlo.add %s{i}, %s{i} : tensor<1x1000000xf32>
        """
        for i in range(10)
    )
    names, types = ", ".join(f"%b{i}" for i in range(10)), ", ".join(["tensor<1x1000000xf32>"] * 10)
    graph = graph_of(
        f"func.func public @main(%x: tensor<10x1000000xf32>) -> ({types}) {{{body} return {names} : {types} }}"
    )
    assert graph_seconds(graph, CPU) == pytest.approx(2 * 40e6 / CPU.bytes_per_second)


def test_a_loop_reads_a_row_of_a_stack_in_each_step():
    """Also where the kernel that reads it does more than slicing, and the loop hands the stack on."""

    def summed(stack: jax.Array, start: jax.Array) -> jax.Array:
        def step(carry: jax.Array, row: jax.Array) -> Any:
            return carry + jnp.abs(row), None

        return jax.lax.scan(step, start, stack)[0]

    rows, width = 1000, 100_000
    graph = support.graph_of(
        program_of(summed, np.zeros((rows, width), np.float32), np.zeros(width, np.float32)),
    )
    once = 4.0 * rows * width / CPU.bytes_per_second
    assert once < graph_seconds(graph, CPU) < 5 * once


def loop(compared: str, added: str = "%i, %s", start: int = 0, stride: int = 2, dtype: str = "i32") -> Graph:
    return graph_of(f"""func.func public @main(%x: tensor<1000xf32>, %n: tensor<{dtype}>) -> tensor<1000xf32> {{
      %start = stablehlo.constant dense<{start}> : tensor<{dtype}>
      %ten = stablehlo.constant dense<10> : tensor<{dtype}>
      %s = stablehlo.constant dense<{stride}> : tensor<{dtype}>
      %w:3 = stablehlo.while(%i = %start, %same = %ten, %c = %x) : tensor<{dtype}>, tensor<{dtype}>, tensor<1000xf32>
      cond {{
        %p = stablehlo.compare {compared} : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        %d = stablehlo.tanh %c : tensor<1000xf32>
        %j = stablehlo.add {added} : tensor<{dtype}>
        stablehlo.return %j, %same, %d : tensor<{dtype}>, tensor<{dtype}>, tensor<1000xf32>
      }}
      return %w#2 : tensor<1000xf32>
    }}""")


def counter_of(graph: Graph) -> Counter | None:
    return find_counter(graph, next(op for op in graph.ops if op.blocks))


@pytest.mark.parametrize(
    ("compared", "start", "stride"),
    [
        ("LT, %i, %ten", 0, 2),
        ("LT, %i, %ten", 0, 3),
        ("LE, %i, %ten", 0, 3),
        ("LE, %i, %ten", 0, 5),
        ("NE, %i, %ten", 0, 5),
        ("GT, %ten, %i", 4, 1),
        ("GE, %same, %i", 4, 1),
        ("NE, %ten, %i", 4, 2),
        ("GT, %i, %ten", 19, -3),
        ("GE, %i, %ten", 19, -3),
        ("NE, %i, %ten", 19, -3),
        ("LE, %ten, %i", 20, -1),
        ("LT, %i, %same", 10, 1),
        ("LE, %i, %ten", 11, 1),
        ("NE, %i, %ten", 10, 1),
        ("GE, %i, %ten", 9, -1),
    ],
)
@pytest.mark.parametrize("added", ["%i, %s", "%s, %i"])
def test_counters_count_as_the_loop_runs(compared: str, start: int, stride: int, added: str):
    words = compared.replace(",", "").split()
    holds = {"LT": int.__lt__, "LE": int.__le__, "NE": int.__ne__, "GT": int.__gt__, "GE": int.__ge__}[words[0]]
    steps, i = 0, start
    while holds(*(i if name == "%i" else 10 for name in words[1:])):
        steps, i = steps + 1, i + stride
    graph = loop(compared, added, start, stride)
    assert counter_of(graph) == Counter(0, start, stride, steps)
    assert trip_count(graph, next(op for op in graph.ops if op.blocks)) == steps


@pytest.mark.parametrize(
    ("compared", "added", "start", "stride", "dtype"),
    [
        ("LT, %i, %n", "%i, %s", 0, 2, "i32"),
        ("LT, %i, %ten", "%same, %s", 0, 1, "i32"),
        ("LT, %i, %ten", "%i, %n", 0, 1, "i32"),
        ("LT, %i, %ten", "%i, %i", 1, 1, "i32"),
        ("LT, %i, %ten", "%i, %s", 0, 0, "i32"),
        ("LT, %i, %ten", "%i, %s", 0, -1, "i32"),
        ("GT, %i, %ten", "%i, %s", 11, 1, "i32"),
        ("EQ, %i, %ten", "%i, %s", 10, 1, "i32"),
        ("NE, %i, %ten", "%i, %s", 0, 3, "i32"),
        ("NE, %i, %ten", "%i, %s", 11, 1, "i32"),
        ("LT, %i, %ten", "%i, %s", 9, 127, "i8"),
        ("LE, %i, %ten", "%i, %s", 10, 251, "ui8"),
    ],
)
def test_what_is_no_counter(compared: str, added: str, start: int, stride: int, dtype: str):
    graph = loop(compared, added, start, stride, dtype)
    assert counter_of(graph) is None
    assert trip_count(graph, next(op for op in graph.ops if op.blocks)) == 1


def test_loop_costs_its_body_times_its_trips():
    slow, fast = loop("LT, %i, %ten", stride=1), loop("LT, %i, %ten", stride=10)
    assert graph_seconds(slow, CPU) == pytest.approx(10 * graph_seconds(fast, CPU), rel=0.01)


@pytest.mark.parametrize("name", ["cpu", "cuda:h200", "tpu:v5e"])
def test_a_condition_is_computed_before_every_iteration(name: str):
    """A line search computes its objective there."""

    def searched(objective_in_condition: bool) -> Graph:
        def over(x: jax.Array, start: jax.Array) -> jax.Array:
            def objective(step: jax.Array) -> jax.Array:
                return jnp.sum(jnp.sin(x * step) @ x)

            def halve(carry: Any) -> Any:
                return carry[0] / 2, objective(carry[0])

            if objective_in_condition:
                return jax.lax.while_loop(lambda step: objective(step) > 3.0, lambda step: step / 2, start)
            return jax.lax.while_loop(lambda carry: carry[1] > 3.0, halve, (start, start))[0]

        return support.graph_of(program_of(over, np.zeros((1024, 1024), np.float32), np.float32(1)))

    before, within = (graph_seconds(searched(where), CHIPS[name]) for where in (True, False))
    assert before == pytest.approx(within, rel=0.1)
    twice, once = (graph_flops(searched(where), CHIPS[name]) for where in (True, False))
    assert twice == pytest.approx(2 * once, rel=0.01)


@pytest.mark.parametrize("name", ["cpu", "cuda:h200", "tpu:v5e"])
def test_what_no_iteration_changes_is_computed_once_where_the_compiler_hoists_it(name: str):
    def looped(changed: bool) -> Graph:
        def over(x: jax.Array) -> jax.Array:
            def step(carry: jax.Array, _: None) -> Any:
                product = (x * carry if changed else x) @ x
                return carry + product[0, 0], None

            return jax.lax.scan(step, x[0, 0], length=100)[0]

        return support.graph_of(program_of(over, np.zeros((1024, 1024), np.float32)))

    changing, invariant = (graph_flops(looped(changed), CHIPS[name]) for changed in (True, False))
    # XLA:GPU leaves the matmul in the loop: it runs there a hundred times.
    assert changing == pytest.approx(invariant, rel=0.01) if name == "cuda:h200" else changing > 50 * invariant


@pytest.mark.parametrize(("dimension", "length"), [(0, 1024), (1, 4)])
def test_a_sort_costs_by_the_dimension_it_sorts(dimension, length):
    graph = graph_of(f"""func.func public @main(%x: tensor<1024x4xf32>) -> tensor<1024x4xf32> {{
      %s = "stablehlo.sort"(%x) <{{dimension = {dimension} : i64}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %l = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %l : tensor<i1>
      }}) : (tensor<1024x4xf32>) -> tensor<1024x4xf32>
      return %s : tensor<1024x4xf32>
    }}""")
    assert op_flops(graph, graph.ops[0]) == 1024 * 4 * (length - 1).bit_length()


@pytest.mark.parametrize(("dtype", "rate"), [("bfloat16", 1.97e14), ("float16", 1.97e14), ("float32", 1.97e14)])
def test_narrow_matmuls_run_at_their_own_rate(dtype, rate):
    graph = entry_graph(support.normal(program_of(lambda x, y: x @ y, *[jnp.ones((256, 256), dtype)] * 2)))
    dot = next(op for op in graph.ops if op.name == "stablehlo.dot_general")
    assert flop_seconds(graph, dot, CHIPS["tpu:v5e"]) == pytest.approx(2 * 256**3 / rate)
    assert flop_seconds(graph, dot, CPU) == pytest.approx(2 * 256**3 / CPU.flops_per_second)


def test_a_tpu_rounds_the_operands_of_a_matmul_unless_asked_not_to():
    square = jnp.ones((256, 256))
    graph = entry_graph(support.normal(program_of(lambda x, y: jnp.matmul(x, y, precision="highest"), square, square)))
    dot = next(op for op in graph.ops if op.name == "stablehlo.dot_general")
    assert flop_seconds(graph, dot, CHIPS["tpu:v5e"]) == pytest.approx(2 * 256**3 / 5e13)


def test_a_softmax_is_one_kernel_on_a_gpu():
    """It reads its operand once, and is not written over it."""
    rows, columns, gpu = 4096, 8192, CHIPS["cuda:h200"]
    graph = entry_graph(support.normal(program_of(lambda x: jax.nn.softmax(x), jnp.ones((rows, columns)))))
    moved = 2 * 4 * rows * columns / gpu.bytes_per_second
    assert graph_seconds(graph, gpu) == pytest.approx(moved + gpu.launch_seconds)
    (kernel,) = [op for op in graph.ops if plan_buffers(graph, gpu).kernels[op.index] == {op.index}][:-1]
    assert not plan_buffers(graph, gpu).aligned[kernel.index]


@pytest.mark.parametrize("name", ["cuda:h200", "tpu:v5e"])
def test_small_values_stay_on_the_chip(name):
    """Two reductions need the operand one after the other; it is written for the second."""
    chip = CHIPS[name]

    def seconds(nbytes: int) -> float:
        x = jnp.ones((nbytes // 4,))
        return graph_seconds(entry_graph(support.normal(program_of(lambda x: jnp.sort(jnp.sort(x)[::-1]), x))), chip)

    small = chip.on_chip_value_bytes // 4
    assert seconds(8 * small) > 8.5 * (seconds(small) - 3 * chip.launch_seconds)


@pytest.mark.parametrize("launches", [1e-6, 1e-5])
def test_every_kernel_takes_a_start(launches):
    gpu = dataclasses.replace(CHIPS["cuda:h200"], name="a gpu", launch_seconds=launches)
    graph = entry_graph(support.normal(program_of(lambda x: jnp.cumsum(jnp.sort(x)) @ x, jnp.ones(16))))
    kernels = sum(op.index in plan_buffers(graph, gpu).kernels[op.index] for op in graph.ops[:-1])
    assert graph_seconds(graph, gpu) == pytest.approx(kernels * launches, rel=0.01)


def test_a_short_sum_is_fused_into_a_longer_one():
    """The sums over three coordinates are in no memory: XLA:GPU computes them where they are summed."""
    gpu, n = CHIPS["cuda:h200"], 8192
    points = jnp.ones((n, 3))
    program = program_of(lambda x, y: jnp.abs(x[:, None] - y[None]).sum(-1).sum(-1), points, points)
    graph = entry_graph(support.normal(program))
    assert not any(
        plan_buffers(graph, gpu).materialised[v]
        for op in graph.ops
        for v in op.results
        if graph.values[v].nbytes > n * n
    )


def test_a_custom_call_costs_what_it_states():
    """As Pallas writes it; a custom call that states nothing is charged for its bytes alone."""
    types = "(tensor<64x64xf32>) -> tensor<64x64xf32>"
    stated = '{"custom_call_config": {"cost_estimate": {"bytes_accessed": 1, "flops": 10000000000}}}'
    config = '{backend_config = "' + stated.replace('"', "\\22") + '"}'
    graphs = [
        graph_of(f"""func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {{
          %y = stablehlo.custom_call @kernel(%x) {attributes} : {types}
          return %y : tensor<64x64xf32>
        }}""")
        for attributes in (config, "")
    ]
    assert [op_flops(graph, graph.ops[0]) for graph in graphs] == [1e10, 0]
    assert graph_seconds(graphs[0], CPU) == pytest.approx(1e10 / CPU.matmul_rate(4))
    assert graph_seconds(graphs[1], CPU) == pytest.approx(2 * 64 * 64 * 4 / CPU.bytes_per_second)


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (jnp.linalg.cholesky, 64**3 / 3),
        (lambda a: jax.scipy.linalg.solve_triangular(a, a[..., :16], lower=True), 64**2 * 16),
        (lambda a: jnp.linalg.qr(a, mode="r"), 4 / 3 * 64**3),
        (jnp.linalg.eigvalsh, 9 * 64**3),
    ],
    ids=["cholesky", "triangular solve", "qr", "eigh"],
)
def test_factorisations_by_libraries_cost_their_flops(function, flops):
    """On CPU they are custom calls of LAPACK, which do not say what they do."""
    graph = support.graph_of(program_of(function, np.zeros((8, 64, 64), np.float32)))
    calls = [op for op in graph.ops if op.name == "stablehlo.custom_call"]
    assert sum(op_flops(graph, op) for op in calls) == pytest.approx(8 * flops)
    assert sum(flop_seconds(graph, op, CPU) for op in calls) >= 8 * flops / CPU.flops_per_second


def _max_pooled(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _depthwise(x):
    numbers, taps = ("NHWC", "HWIO", "NHWC"), jnp.ones((3, 3, 1, 16))
    return jax.lax.conv_general_dilated(x, taps, (1, 1), "SAME", dimension_numbers=numbers, feature_group_count=16)


@pytest.mark.parametrize(
    ("function", "steps"),
    [
        (lambda x: jnp.sort(x, 2), 8 * 32 * 32 * 16 * 5),
        (jax.grad(lambda x: _max_pooled(x).sum()), 8 * 32 * 32 * 16),
        (_depthwise, 8 * 32 * 32 * 16 * 9),
    ],
    ids=["sort", "gradient of max-pooling", "depthwise convolution"],
)
def test_what_xla_cpu_does_element_by_element_takes_nanoseconds_each(function, steps):
    graph = support.graph_of(program_of(function, np.zeros((8, 32, 32, 16), np.float32)))
    assert 2e-9 * steps < graph_seconds(graph, CPU) < 2e-8 * steps
    assert graph_seconds(graph, CHIPS["cuda:h200"]) < 1e-10 * steps


@pytest.mark.parametrize(
    ("shape", "k", "milliseconds"),
    [((64, 100_000), 10, 8.5), ((2048, 10_000), 10, 33), ((10_000, 1000), 10, 33), ((64, 100_000), 1000, 43)],
)
def test_a_top_k_on_cpu_passes_all_elements_and_sorts_those_that_enter(shape, k, milliseconds):
    """As measured on a server: an element passed over takes 1.3 ns, one that enters a heap of k 12 ns a level."""
    graph = support.graph_of(program_of(lambda x: jax.lax.top_k(x, k), np.zeros(shape, np.float32)))
    assert 0.7e-3 * milliseconds < graph_seconds(graph, CPU) < 1.3e-3 * milliseconds
    assert graph_seconds(graph, CHIPS["cuda:h200"]) < 1e-5 * milliseconds


@pytest.mark.parametrize(("dtype", "axis", "started"), [("int32", 1, False), ("int32", 2, True), ("float32", 1, True)])
def test_results_of_a_reduction_are_started_one_by_one_unless_llvm_has_them_side_by_side(dtype, axis, started):
    graph = support.graph_of(program_of(lambda x: x.max(axis), np.zeros((65536, 4, 4), dtype)))
    traffic = 4 * 65536 * 4 * 5 / CPU.bytes_per_second
    assert (graph_seconds(graph, CPU) > 2 * traffic) == started


@pytest.mark.parametrize(("width", "speedup"), [(512, 4), (2048, 1)], ids=["in the cache", "larger"])
def test_what_a_loop_reads_in_every_step_stays_in_the_cache(width, speedup):
    """The weights of a recurrence: 1 MiB does, 16 MiB does not."""

    def recurrence(w, x):
        return jax.lax.scan(lambda h, _: (h @ w, None), x, length=64)[0]

    graph = support.graph_of(program_of(recurrence, np.zeros((width, width), np.float32), np.zeros(width, np.float32)))
    chip = dataclasses.replace(CPU, flops_per_second=1e30, step_seconds=0.0)
    assert graph_seconds(graph, chip) == pytest.approx(64 * 4 * width**2 / speedup / chip.bytes_per_second, rel=0.02)
