"""Attention by the chips' own kernels: what is recognised, what becomes of it, and what does not qualify."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas

import stablehlo_mem as shm
from stablehlo_mem.analysis.compilers import compiler_model
from stablehlo_mem.analysis.op_cost import op_flops
from stablehlo_mem.attention import pallas_flash
from stablehlo_mem.attention.on_devices import Shares
from stablehlo_mem.attention.origins import number_in
from stablehlo_mem.attention.pattern import AttentionOp, attention_ops
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.bindings import walk_operations
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.passes.cudnn_attention import CudnnAttention
from stablehlo_mem.passes.pallas_attention import PallasAttention
from stablehlo_mem.rewriting.attention_pass import AttentionPass
from stablehlo_mem.rewriting.rewriting_pass import Match
from stablehlo_mem.targets.chips import CHIPS
from tests.attention_programs import FORWARD_ONLY, NEAR_MISSES, SPELLINGS, Program, gradient
from tests.attention_reference import with_formulas
from tests.support import (
    exported,
    graph_of,
    in_f64,
    normal,
    normals,
    program_of,
    rewrite,
    run,
    text,
    yardstick,
)
from tests.textual import source_and_expected

FORWARD = {**SPELLINGS, **FORWARD_ONLY}
WITHOUT_BIAS = [name for name in FORWARD if name not in ("log_sum_exp", "projected_bias", "window")]


def arguments(program: Program) -> list[np.ndarray]:
    """Drawn arguments; lengths are at least one."""
    _, specs = program
    drawn = []
    for i, spec in enumerate(specs):
        if np.issubdtype(spec.dtype, np.integer):
            drawn.append(np.array([100, 250], spec.dtype))
        elif spec.dtype == np.bool_:
            drawn.append(normals(*spec.shape, seed=i) > -1)
        else:
            drawn.append(normals(*spec.shape, seed=i).astype(spec.dtype))
    return drawn


@pytest.fixture
def interpreted(monkeypatch):
    """Pallas' kernels are lowered for the CPU, interpreted: the arithmetic of each block, in the order of the grid."""
    monkeypatch.setattr(pallas, "pallas_call", functools.partial(pallas.pallas_call, interpret=True))
    monkeypatch.setattr(pallas_flash, "_lowered", lambda f, _, *specs: jax.jit(f).lower(*specs).as_text())
    for text_of in (pallas_flash.forward_text, pallas_flash.backward_text):
        text_of.cache_clear()
    yield
    for text_of in (pallas_flash.forward_text, pallas_flash.backward_text):
        text_of.cache_clear()


def wrong_results(one: AttentionPass, program: Program, count: int, args: list[np.ndarray] | None = None) -> list[str]:
    """What is wrong with the results where so many parts became calls, and the calls of cuDNN their formulas."""
    f, _ = program
    args = arguments(program) if args is None else args
    origin = program_of(f, *args)
    module = normal(origin)
    assert rewrite(module, one) == count
    if isinstance(one, CudnnAttention):
        assert "256x256xf32" not in text(module)
        assert with_formulas(module) == (1 if count == 1 else 2)
    remove_rules(module)
    new, old = (run(origin, one, *args) for one in (module, None))
    results = zip(new, old, in_f64(f, *args), strict=True)
    return [wrong for wrong in (yardstick(*three) for three in results) if wrong]


@pytest.mark.parametrize("name", FORWARD)
def test_cudnn_output(name):
    """One call, no scores, and the results of the program by the formula of the call."""
    assert wrong_results(CudnnAttention(), FORWARD[name](jnp.bfloat16), 1) == []


@pytest.mark.parametrize("name", SPELLINGS)
def test_cudnn_gradient(name):
    """Output and the three gradients: a forward call and a backward call."""
    assert wrong_results(CudnnAttention(), gradient(SPELLINGS[name](jnp.bfloat16)), 4) == []


@pytest.mark.parametrize("name", WITHOUT_BIAS)
def test_pallas_output(name, interpreted):
    """JAX's own kernel, interpreted: the results of the program."""
    assert wrong_results(PallasAttention(), FORWARD[name](jnp.float32), 1) == []


@pytest.mark.parametrize("name", [name for name in WITHOUT_BIAS if name in SPELLINGS])
def test_pallas_gradient(name, interpreted):
    """The same of the gradients."""
    assert wrong_results(PallasAttention(), gradient(SPELLINGS[name](jnp.bfloat16)), 4) == []


@pytest.mark.parametrize("one", [CudnnAttention(), PallasAttention()], ids=lambda one: one.name)
@pytest.mark.parametrize(("program", "code"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_miss_is_refused(one, program, code):
    f, specs = program(jnp.bfloat16)
    graph = graph_of(ingest(exported(f, *specs)))
    found = [one.match(graph, op.index, prefer_memory=False) for op in graph.ops if op.name in one.roots]
    assert [item.code for item in found if item is not None and isinstance(item, Blocked)] == [code]
    assert not any(isinstance(item, Match) for item in found)


def test_float32_stays_float32_on_cuda():
    """cuDNN multiplies bfloat16 and float16 only."""
    f, specs = SPELLINGS["einsum_f32_softmax"](jnp.float32)
    graph = graph_of(ingest(exported(f, *specs)))
    (found,) = attention_ops(graph).values()
    assert isinstance(found, AttentionOp)
    blocked = CudnnAttention().match(graph, found.root, prefer_memory=False)
    assert isinstance(blocked, Blocked)
    assert blocked.code == "no-kernel"
    assert "float32" in blocked.message or "f32" in blocked.message


def test_more_precision_needs_relaxed():
    """Probabilities that the program multiplies in float32 are rounded by the kernel: only if that is allowed."""

    def f(q, k, v):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1), v.astype(jnp.float32)).astype(q.dtype)

    specs = SPELLINGS["einsum_f32_softmax"](jnp.bfloat16)[1]
    graph = graph_of(ingest(exported(f, *specs)))
    (root,) = attention_ops(graph)
    match = CudnnAttention().match(graph, root, prefer_memory=False)
    assert isinstance(match, Match)
    assert match.numerics == "relaxed"


@pytest.mark.parametrize("one", [CudnnAttention(), PallasAttention()], ids=lambda one: one.name)
def test_query_without_keys(one, interpreted):
    """Where all keys of an example are masked, the output is their mean, and scores have no gradient."""

    def f(q, k, v, lengths):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        s = jnp.where(jnp.arange(k.shape[1]) < lengths[:, None, None, None], s, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    assert_right_without_keys(one, f)


def assert_right_without_keys(one, f):
    """Nothing is wrong with output and gradients where no key of the first example counts."""
    specs = SPELLINGS["einsum_f32_softmax"](jnp.bfloat16)[1]
    args = [*arguments((f, specs)), np.array([0, 77], np.int32)]
    assert wrong_results(one, (f, specs), 1, args) == []
    assert wrong_results(one, gradient((f, specs)), 4, args) == []


@pytest.mark.parametrize("one", [CudnnAttention(), PallasAttention()], ids=lambda one: one.name)
def test_query_without_keys_whose_probabilities_are_zeroed(one, interpreted):
    """A select after the softmax makes the output zero, as programs that guard against NaN do."""

    def f(q, k, v, lengths):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        kept = jnp.arange(k.shape[1]) < lengths[:, None, None, None]
        p = jnp.where(kept, jax.nn.softmax(jnp.where(kept, s, -1e30), -1), 0.0)
        return jnp.einsum("bhqk,bkhd->bqhd", p.astype(q.dtype), v)

    assert_right_without_keys(one, f)


@pytest.mark.parametrize("one", [CudnnAttention(), PallasAttention()], ids=lambda one: one.name)
def test_query_without_keys_whose_mask_is_added(one, interpreted):
    """As in Hugging Face's models: the scores have gradients, where a select would let none through."""

    def f(q, k, v, lengths):
        kept = jnp.arange(k.shape[1]) < lengths[:, None, None, None]
        bias = jnp.where(kept, 0.0, float(jnp.finfo(jnp.float32).min))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125 + bias
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    assert_right_without_keys(one, f)


def test_what_queries_without_keys_add_is_multiplied_as_it_is():
    """XLA writes what a matmul reads: no array of queries or keys is converted for one."""

    def f(q, k, v, lengths):
        bias = jnp.where(jnp.arange(k.shape[1]) < lengths[:, None, None, None], 0.0, float(jnp.finfo(jnp.float32).min))
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125 + bias
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    specs = [*SPELLINGS["einsum_f32_softmax"](jnp.bfloat16)[1], SPELLINGS["padded_multi_query"](jnp.bfloat16)[1][-1]]
    program = gradient((f, specs))
    module = normal(program_of(program[0], *arguments(program)))
    assert rewrite(module, CudnnAttention()) > 1
    dots = [op for op in walk_operations(module.operation) if op.name == "stablehlo.dot_general"]
    read = [operand.type for dot in dots for operand in dot.operands if 256 in operand.type.shape]
    assert {str(one.element_type) for one in read} == {"bf16"}


@pytest.mark.parametrize("name", ["jax_nn_causal", "jax_nn_grouped", "padded_multi_query", "packed_documents"])
def test_odd_lengths_are_padded_to_tiles(name, interpreted):
    """Several blocks along the keys, and a part of the last one is padding."""
    program = gradient(SPELLINGS[name](jnp.float32, 300))
    assert wrong_results(PallasAttention(), program, 4) == []


def test_window_needs_no_mask_on_cuda():
    """cuDNN knows windows: there is no array of pairs."""
    f, specs = SPELLINGS["window"](jnp.bfloat16)
    module = normal(program_of(f, *arguments((f, specs))))
    assert rewrite(module, CudnnAttention()) == 1
    assert "\\22sliding_window_length\\22: 100" in text(module)
    assert "256x256" not in text(module)


def test_window_beside_another_mask_is_part_of_the_bias():
    """cuDNN takes no bias with a window."""

    def f(q, k, v, lengths):
        behind = jnp.arange(q.shape[1])[:, None] - jnp.arange(k.shape[1])
        kept = (behind >= 0) & (behind < 100) & (jnp.arange(k.shape[1]) < lengths[:, None, None, None])
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(kept, s, -1e30), -1).astype(q.dtype), v)

    specs = SPELLINGS["padded_multi_query"](jnp.bfloat16)[1]
    specs = [*SPELLINGS["window"](jnp.bfloat16)[1], specs[-1]]
    module = normal(program_of(f, *arguments((f, specs))))
    assert rewrite(module, CudnnAttention()) == 1
    assert "\\22sliding_window_length\\22: 0" in text(module)
    assert "2x1x256x256xbf16" in text(module)
    assert wrong_results(CudnnAttention(), gradient((f, specs)), 4) == []


def test_wider_queries_and_keys_widen_the_values(interpreted):
    """Rotary embeddings in float32: the kernel for TPU multiplies float32, that of cuDNN does not."""
    attend, specs = SPELLINGS["jax_nn_causal"](jnp.float32)

    def f(q, k, v):
        return attend(q.astype(jnp.float32) * 1.5, k.astype(jnp.float32), v.astype(jnp.float32)).astype(q.dtype)

    specs = [jax.ShapeDtypeStruct(spec.shape, jnp.bfloat16) for spec in specs]
    assert wrong_results(PallasAttention(), gradient((f, specs)), 4) == []
    assert rewrite(normal(program_of(f, *arguments((f, specs)))), CudnnAttention()) == 0


def test_numbers_are_computed_as_far_as_their_types_hold_them():
    """An infinity is no integer, -1 no unsigned one, and what is complex is left alone."""
    program = ingest(
        """func.func public @main() -> (tensor<i32>, tensor<ui8>, tensor<complex<f32>>, tensor<bf16>) {
             %inf = stablehlo.constant dense<0x7F800000> : tensor<f32>
             %low = stablehlo.constant dense<-1.0e9> : tensor<f32>
             %one = stablehlo.constant dense<-1.0> : tensor<f32>
             %0 = stablehlo.convert %inf : (tensor<f32>) -> tensor<i32>
             %1 = stablehlo.convert %one : (tensor<f32>) -> tensor<ui8>
             %2 = stablehlo.convert %low : (tensor<f32>) -> tensor<complex<f32>>
             %3 = stablehlo.convert %low : (tensor<f32>) -> tensor<bf16>
             return %0, %1, %2, %3 : tensor<i32>, tensor<ui8>, tensor<complex<f32>>, tensor<bf16> }"""
    )
    graph = entry_graph(program.module)
    assert [number_in(graph, value) for value in graph.ops[-1].operands] == [None, None, None, -998244352.0]


def test_calls_are_charged():
    """Two matmuls forward and five backward; dQ in float32 and a number for each query."""
    f, specs = gradient(SPELLINGS["jax_nn_causal"](jnp.bfloat16))
    module = normal(ingest(exported(f, *specs)))
    rewrite(module, CudnnAttention())
    graph, chip = entry_graph(module), CHIPS["cuda:h200"]
    forward, backward = (op for op in graph.ops if op.name == "stablehlo.custom_call")
    product = 2 * 2 * 4 * 256 * 256 * 64
    assert [op_flops(graph, op) for op in (forward, backward)] == [2 * product, 5 * product]
    rows = 2 * 4 * 256
    assert compiler_model(chip).kernel_scratch_bytes(graph, backward) == 4 * rows * (64 + 1)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ('{"x"}, {}, {}, {}', Shares(batch=2)),
        ('{}, {}, {"x"}, {}', Shares(heads=2)),
        ('{}, {"x"}, {}, {}', Shares(heads=2, sequence=2)),
        ('{}, {}, {}, {"x"}', "distributed"),
    ],
    ids=["batch", "heads", "queries", "depth"],
)
def test_each_device_runs_the_kernel_on_its_examples_and_heads(place, found):
    """A compiler could not divide the calls. A sequence is exchanged for heads; what lies in parts of depth is left."""
    source, _ = source_and_expected("cudnn_attention_output")
    sharding = f" {{sdy.sharding = #sdy.sharding<@mesh, [{place}]>}}"
    sharded = source.replace("64xbf16>,", f"64xbf16>{sharding},", 1)
    module = normal(f'sdy.mesh @mesh = <["x"=2]>\n{sharded}')
    graph = entry_graph(module)
    (root,) = attention_ops(graph)
    match = CudnnAttention().match(graph, root, prefer_memory=False)
    if isinstance(match, Blocked):
        assert match.code == found
    else:
        assert match.detail == found
        assert (sum(kernel.received for kernel in match.kernels) > 0) == (found.sequence > 1)
        assert rewrite(module, CudnnAttention()) == 1
        (call,) = (op for op in walk_operations(module.operation) if op.name == "stablehlo.custom_call")
        whole, part = (graph.values[graph.arguments[0]].shape, call.operands[0].type.shape)
        assert np.prod(part) * 2 == np.prod(whole)


def test_masks_of_a_scan_are_seen_through():
    """In a scanned layer the mask is handed on by the loop; the forward kernel is called in its body."""

    def f(q, k, v):
        def layer(x, _):
            return SPELLINGS["haiku"](jnp.bfloat16)[0](x, k, v), None

        return jax.lax.scan(layer, q, None, length=3)[0]

    origin = program_of(f, *arguments(SPELLINGS["haiku"](jnp.bfloat16)))
    module = normal(origin)
    assert rewrite(module, CudnnAttention()) == 1
    assert "\\22mask_type\\22: \\22CAUSAL" in text(module)
    assert "256x256xi1" not in text(module)


def scanned(attend, *others, prepare=lambda *others: others):
    """The gradients of three scanned layers of attention, and their arguments; some are prepared before the scan."""

    def f(x, w, *others):
        others = prepare(*others)

        def layer(x, w):
            q, k, v = jnp.moveaxis((x @ w).reshape(2, 256, 3, 4, 64), 2, 0)
            return x + attend(q, k, v, *others).reshape(2, 256, 256), None

        return jax.lax.scan(layer, x, w)[0]

    def gradients(*args):
        return jax.grad(lambda *a: jnp.sin(f(*a).astype(jnp.float32)).sum(), (0, 1))(*args)

    x, w = normals(2, 256, 256), normals(3, 256, 768) / 16
    return gradients, [*(a.astype(jnp.bfloat16) for a in (x, w)), *others]


def wrong_in_scans(one: AttentionPass, gradients, args) -> list[str]:
    """What is wrong with the results where the backward loop, and then the forward one, calls the kernel."""
    origin = program_of(gradients, *args)
    module = normal(origin)
    assert rewrite(module, one) == 3
    attach_rules(module)
    assert rewrite(module, one) == 1
    if isinstance(one, CudnnAttention):
        assert "4x256x256xf32" not in text(module)
        assert with_formulas(module) == 3
    remove_rules(module)
    new, old = (run(origin, one, *args) for one in (module, None))
    results = zip(new, old, in_f64(gradients, *args), strict=True)
    return [wrong for wrong in (yardstick(*three) for three in results) if wrong]


@pytest.mark.parametrize("name", ["jax_nn_causal", "keys_first"])
def test_gradient_of_scanned_layers(name):
    """The backward loop reads queries, keys, values and probabilities from stacks: those of the scores go."""
    assert wrong_in_scans(CudnnAttention(), *scanned(SPELLINGS[name](jnp.bfloat16)[0])) == []


@pytest.mark.parametrize("one", [CudnnAttention(), PallasAttention()], ids=lambda one: one.name)
@pytest.mark.parametrize("is_added", [False, True], ids=["selected", "added"])
def test_packed_documents_in_scanned_layers(one, is_added, interpreted):
    """The mask of causal segments is computed before the scan; added to scores, the backward loop does not read it."""
    numbers = np.sort(np.random.RandomState(0).randint(0, 5, (2, 256)), -1).astype(np.int32)

    def prepare(numbers):
        kept = ((numbers[:, :, None] == numbers[:, None, :]) & jnp.tri(256, dtype=bool))[:, None]
        return (jnp.where(kept, 0.0, -1e30) if is_added else kept,)

    def attend(q, k, v, mask):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.125
        s = s + mask if is_added else jnp.where(mask, s, -1e30)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s, -1).astype(q.dtype), v)

    assert wrong_in_scans(one, *scanned(attend, numbers, prepare=prepare)) == []


PLUGINS = {"cuda:h200": "jax_plugins.xla_cuda12", "tpu:v5e": "libtpu"}


@pytest.mark.parametrize("target", PLUGINS)
@pytest.mark.parametrize("name", ["jax_nn_causal", "jax_nn_grouped", "mask_of_examples"])
def test_budget_is_kept_by_a_kernel(name, target):
    """Half of the scores, which are three times that unsplit: measured by the target's compiler."""
    pytest.importorskip(PLUGINS[target])
    f, specs = gradient(SPELLINGS[name](jnp.bfloat16, 4096))
    scores = 2 * 2 * 4 * 4096 * 4096
    program = exported(f, *specs, platform=target.partition(":")[0])
    fixed = sum(s.size * 2 for s in specs) * 2
    budget = fixed + scores // 2
    plan = shm.plan(program, budget, target=target)
    assert plan.before.peak_bytes > fixed + scores
    assert plan.after.peak_bytes <= budget
    assert "attention" in plan.decisions[0].pass_name
    # A mask of pairs is the same for all heads; cuDNN reads it as a bias, TPU's program reduces it to rows with keys.
    pairs = r"4096x4096xf32|4x4096x4096x" if name == "mask_of_examples" else r"4096x4096"
    assert not re.search(pairs, plan.result.mlir_module())


def test_program_of_several_platforms_gets_no_kernel():
    """What one platform's compiler does not know must not be in the program."""
    pytest.importorskip("jax_plugins.xla_cuda12")
    f, specs = SPELLINGS["jax_nn_causal"](jnp.bfloat16, 1024)
    alone, both = (jax.export.export(jax.jit(f), platforms=p)(*specs) for p in (["cuda"], ["cpu", "cuda"]))
    assert "cudnn" in shm.plan(alone, None, target="cuda:h200").result.mlir_module()
    assert "cudnn" not in shm.plan(both, None, target=("cuda:h200", "cpu")).result.mlir_module()


@pytest.mark.parametrize("options", [shm.Options(numerics="exact"), shm.Options(passes=("split-into-loops",))])
def test_kernels_can_be_turned_off(options):
    pytest.importorskip("jax_plugins.xla_cuda12")
    f, specs = SPELLINGS["jax_nn_causal"](jnp.bfloat16, 1024)
    plan = shm.plan(exported(f, *specs, platform="cuda"), None, target="cuda:h200", options=options)
    assert plan.decisions == ()
