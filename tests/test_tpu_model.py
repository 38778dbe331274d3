"""XLA:TPU and XLA:GPU around matmuls: what is one kernel, what is stored how, and what it costs. Compiles nothing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.cost_model import graph_seconds
from stablehlo_mem.analysis.fusion import plan_buffers
from stablehlo_mem.analysis.op_cost import flop_seconds
from stablehlo_mem.ir.bindings import parse_module
from stablehlo_mem.ir.graph import Graph, entry_graph
from stablehlo_mem.targets.chips import CHIPS
from tests import support
from tests.support import program_of

TPU, GPU = CHIPS["tpu:v5e"], CHIPS["cuda:h200"]
ROWS, WIDTH = 4096, 2048


def graph_of(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    return support.graph_of(program_of(function, *(np.zeros(shape, np.float32) for shape in shapes)))


def written(graph: Graph, chip: Any = TPU) -> list[str]:
    """The names of the ops whose results of at least a row each are written to memory."""
    buffers = plan_buffers(graph, chip)
    large = (v for v in graph.values if v.is_computed and v.nbytes >= 4 * ROWS and buffers.materialised[v.index])
    return [graph.ops[v.producer].name.partition(".")[2] for v in large]


def convolve(x: jax.Array, k: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize(("depth", "is_one"), [(384, True), (512, False)])
def test_a_tpu_computes_a_dot_with_a_short_contraction_in_the_next_ones_kernel(depth: int, is_one: bool):
    shapes = (ROWS, depth), (depth, WIDTH), (WIDTH, 256)
    graph = graph_of(lambda x, a, b: jnp.tanh(x @ a) @ b, *shapes)
    assert len(written(graph)) == (1 if is_one else 2)
    assert len(written(graph, GPU)) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a, b, c: (x @ a * c) @ b,
        lambda x, a, b, c: (jnp.matmul(x, a, precision="highest")) @ b,
        lambda x, a, b, c: (lambda u: (u / u.sum(1, keepdims=True)) @ b)(x @ a),
        lambda x, a, b, c: (lambda u: (u @ b, u @ a.T))(x @ a),
    ],
    ids=["another operand", "full precision", "a sum of it", "two dots"],
)
def test_no_dot_is_nested_whose_result_others_need(function: Callable[..., Any]):
    graph = graph_of(function, (ROWS, 64), (64, WIDTH), (WIDTH, 64), (ROWS, WIDTH))
    assert any(graph.values[v].shape == (ROWS, WIDTH) for v in materialised(graph))


@pytest.mark.parametrize(
    ("inner", "outer", "is_one"),
    [
        ("sa,sb->ab", "ab,be->ae", True),
        ("sa,sb->ab", "ab,ea->eb", True),
        ("hac,hbc->hab", "hab,hbe->ae", True),
        ("sic,sb->icb", "icb,be->ice", True),
        ("sic,sjd->ijcd", "ijcd,cde->ije", False),
        ("sic,sjd->ijcd", "ijcd,de->ijce", False),
        ("hac,hbc->hab", "hab,he->abe", False),
    ],
)
def test_a_nested_dot_brings_one_dimension_that_the_next_one_contracts(inner: str, outer: str, is_one: bool):
    """As libtpu compiles them: an outer product mean is written, the scores of attention are not."""
    sizes = dict.fromkeys("sce", 8) | dict.fromkeys("hd", 16) | dict.fromkeys("abij", 128)
    left, right, second = (*inner.split("->")[0].split(","), outer.split(",")[1].split("->")[0])
    graph = graph_of(
        lambda x, y, w: jnp.einsum(outer, jnp.einsum(inner, x, y), w),
        *(tuple(sizes[letter] for letter in letters) for letters in (left, right, second)),
    )
    assert (len(materialised(graph)) == 1) == is_one


def materialised(graph: Graph) -> list[int]:
    buffers = plan_buffers(graph, TPU)
    return [v.index for v in graph.values if v.is_computed and buffers.materialised[v.index]]


@pytest.mark.parametrize(
    ("reader", "itemsize"),
    [
        (lambda u, b: (u @ b, u.T @ u), 2),
        (lambda u, b: (jnp.concatenate([u, u]) @ b, u @ b), 2),
        (lambda u, b: (u @ b, u + 1.0), 4),
        (lambda u, b: (jnp.matmul(u, b, precision="highest"), u.T @ u), 4),
    ],
    ids=["two dots", "moved to a dot", "also a sum", "full precision"],
)
def test_a_tpu_stores_what_only_matmuls_read_as_they_take_it(reader: Callable[..., Any], itemsize: int):
    graph = graph_of(lambda x, b: reader(jnp.sort(x, 0), b), (ROWS, WIDTH), (WIDTH, 64))
    (sort,) = [op for op in graph.ops if op.name == "stablehlo.sort"]
    assert compiler_model(TPU).stored_bytes(graph, sort.results[0]) == itemsize * ROWS * WIDTH
    assert compiler_model(GPU).stored_bytes(graph, sort.results[0]) == 4 * ROWS * WIDTH


def test_a_tpu_gathers_rows_along_the_lanes():
    graph = graph_of(lambda x, y: x[jnp.arange(ROWS) % 7] * y, (8, 16), (ROWS, 16))
    (gather,) = [op for op in graph.ops if op.name == "stablehlo.gather"]
    assert compiler_model(TPU).stored_bytes(graph, gather.results[0]) == 4 * ROWS * 128
    assert compiler_model(TPU).buffer_bytes(graph.values[gather.results[0]]) == 4 * ROWS * 16


def test_a_tpu_fuses_convolutions_as_it_does_dots():
    graph = graph_of(
        lambda x, k: jax.nn.relu(convolve(jax.nn.relu(x) * 2, k)).sum((1, 2)), (8, 64, 64, 128), (3, 3, 128, 128)
    )
    assert written(graph) == []
    assert "convolution" in written(graph, GPU)


def test_a_convolution_of_a_small_batch_is_several_kernels():
    def seconds(batch: int) -> float:
        return graph_seconds(graph_of(convolve, (batch, 8, 8, 128), (3, 3, 128, 128)), TPU)

    assert seconds(4) > seconds(8) + 8 * TPU.launch_seconds


def test_matrix_units_work_beside_the_lanes():
    """Exponentials of a matmul's result take no time where the matmul takes longer."""

    def seconds(function: Callable[[Any], Any]) -> float:
        return graph_seconds(graph_of(lambda x, y: function(x @ y), (ROWS, ROWS), (ROWS, ROWS)), TPU)

    assert seconds(jnp.exp) == pytest.approx(seconds(lambda x: x))


def test_a_reduction_of_what_a_matmul_writes_is_no_kernel():
    def seconds(function: Callable[[Any], Any]) -> float:
        return graph_seconds(graph_of(lambda x, y: function(x @ y), (ROWS, 512), (512, ROWS)), TPU)

    assert seconds(lambda x: (x, x.sum(1))) == pytest.approx(seconds(lambda x: x), rel=0.01)
    assert written(graph_of(lambda x, y: jnp.exp(x @ y).sum(1), (ROWS, 512), (512, ROWS))) == ["reduce"]


def test_a_gpu_fuses_arguments_into_what_follows_a_dot():
    """But nothing that is computed in the same block."""
    shapes = (ROWS, 64), (64, WIDTH), (WIDTH,)
    argument, computed = (
        graph_of(lambda x, a, v, f=function: jnp.exp(x @ a - f(v)), *shapes) for function in (lambda v: v, jnp.sort)
    )
    assert written(argument, GPU) == ["exponential"]
    assert written(computed, GPU) == ["dot_general", "exponential"]


def test_a_pallas_kernel_costs_its_exponentials_too():
    """Those of an attention with narrow heads take longer than its matmuls."""

    def graph(flops: int, transcendentals: int) -> Graph:
        estimate = f'{{"flops": {flops}, "transcendentals": {transcendentals}, "bytes_accessed": 1}}'
        config = f'{{"custom_call_config": {{"cost_estimate": {estimate}}}}}'.replace('"', "\\22")
        module = parse_module(f"""func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {{
          %y = stablehlo.custom_call @tpu_custom_call(%x) {{backend_config = "{config}"}}
            : (tensor<64x64xf32>) -> tensor<64x64xf32>
          return %y : tensor<64x64xf32>
        }}""")
        kept.append(module)
        return entry_graph(module)

    few, many = graph(10**10, 1), graph(10**10, 10**9)
    assert flop_seconds(few, few.ops[0], TPU) == pytest.approx(1e10 / TPU.half_flops_per_second)
    assert flop_seconds(many, many.ops[0], TPU) > 10 * flop_seconds(few, few.ops[0], TPU)


kept: list[Any] = []
"""Modules that graphs point into."""
