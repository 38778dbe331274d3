"""Arguments and results in the host's memory: not on the device, read and updated by slices, with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.export import export
from jax.sharding import SingleDeviceSharding

import stablehlo_mem as shm
from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.analysis.peak_memory import find_peak
from stablehlo_mem.frontend.canonicalize import attach_rules, remove_rules
from stablehlo_mem.frontend.program import ingest
from stablehlo_mem.ir.blocked import Blocked
from stablehlo_mem.ir.graph import entry_graph
from stablehlo_mem.ir.packed_rows import are_read, are_written
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Options, Refusal
from stablehlo_mem.passes.lookup_from_host import LookupFromHost
from stablehlo_mem.passes.stream_arguments import StreamArguments, StreamedArguments
from stablehlo_mem.rewriting.write_over_arguments import write_over_arguments
from stablehlo_mem.sharding_rules import rule_book
from stablehlo_mem.splitting.candidates import proposals
from stablehlo_mem.splitting.split_step import Split, split
from stablehlo_mem.targets.chips import CHIPS
from stablehlo_mem.targets.devices import topology_devices
from stablehlo_mem.targets.measurement import Measured
from stablehlo_mem.targets.target import named_targets
from tests.support import OPTIMISED, lookups, normal, normals, run, same_bits, text
from tests.test_targets import needs

GIB = 2**30
tpu = needs["tpu"]


def shardings(device):
    """Of arrays on a device, and on its host."""
    return SingleDeviceSharding(device), SingleDeviceSharding(device, memory_kind="pinned_host")


def of_tpu():
    return shardings(topology_devices(CHIPS["tpu:v5e"], 1)[0])


def array(*shape, on, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=on)


def moment(m, g):
    m = 0.9 * m + 0.1 * g
    return m, jnp.tanh(m).sum(1)


def moment_step(rows=6, platform="cpu"):
    """A donated moment on the host, updated by one expression."""
    device, host = shardings(jax.devices("cpu")[0])
    jitted = jax.jit(moment, donate_argnums=0, out_shardings=(host, device))
    return export(jitted, platforms=[platform])(array(rows, 8, on=host), array(rows, 8, on=device))


def split_by(module, chunk):
    """Splits the update along its rows, in place."""
    graph = entry_graph(module)
    value = next(op.results[0] for op in graph.ops if op.name == "stablehlo.add")
    split(module, Split(path=(), value=value, dimension=0, big_bytes=1, chunk=chunk))
    remove_rules(module)


def test_they_are_no_bytes_of_the_device():
    program = ingest(moment_step())
    assert program.argument_bytes == 6 * 8 * 4
    assert program.output_bytes == 6 * 4
    assert program.floor_bytes == 6 * 8 * 4 + 6 * 4
    profile = shm.profile(moment_step(platform="cuda"), target="cuda:h200")
    assert (profile.argument_bytes, profile.host_fixed_bytes) == (6 * 8 * 4, 6 * 8 * 4)
    assert "In the host's memory" in str(profile)


def test_a_copy_to_the_device_is_a_temporary():
    module = normal(ingest(moment_step()))
    peak = find_peak(entry_graph(module), CHIPS["tpu:v5e"])
    assert peak.temp_bytes >= 6 * 8 * 4


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
def test_split_and_written_over_it_computes_the_same(chunk):
    program = ingest(moment_step())
    module = normal(program)
    split_by(module, chunk)
    before = text(module)
    write_over_arguments(module)
    assert module.operation.verify()
    # A ragged last chunk reads rows that were updated already.
    assert (text(module) != before) == (6 % chunk == 0)
    assert (" = %arg0" in text(module)) == (6 % chunk == 0)
    args = normals(6, 8), normals(6, 8, seed=1)
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def test_an_argument_that_is_read_elsewhere_is_not_written_over():
    device, host = shardings(jax.devices("cpu")[0])
    jitted = jax.jit(lambda m, g: (*moment(m, g), m[::-1] + g), donate_argnums=0, out_shardings=(host, device, device))
    program = ingest(export(jitted)(array(6, 8, on=host), array(6, 8, on=device)))
    module = normal(program)
    split_by(module, 2)
    write_over_arguments(module)
    args = normals(6, 8), normals(6, 8, seed=1)
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


def test_cpu_says_that_it_has_one_memory():
    plan = shm.plan(moment_step(4096), 4096 * 8 * 4 + 4096 * 4 + 1000, target="cpu")
    assert not plan.fits
    assert "placement-ignored" in {refusal.code for refusal in plan.refusals}


@needs["cuda"]
def test_cuda_without_a_device_says_that_it_ignores_them():
    exported = moment_step(4096, platform="cuda")
    plan = shm.plan(exported, 4096 * 8 * 4 + 4096 * 4 + 1000, target="cuda:h200")
    assert not plan.fits
    (refusal,) = (refusal for refusal in plan.refusals if refusal.code == "placement-ignored")
    assert "without a device" in refusal.message


def nearest(queries, points):
    """The ten nearest of points that come in blocks."""

    def step(best, block):
        index, rows = block
        distances = (queries**2).sum(1)[:, None] - 2 * queries @ rows.T + (rows**2).sum(1)
        found, at = jax.lax.top_k(-distances, 10)
        merged = jnp.concatenate([best[0], found], 1), jnp.concatenate([best[1], at + index * len(rows)], 1)
        values, order = jax.lax.top_k(merged[0], 10)
        return (values, jnp.take_along_axis(merged[1], order, 1)), None

    none = jnp.full((len(queries), 10), -jnp.inf), jnp.zeros((len(queries), 10), jnp.int32)
    return jax.lax.scan(step, none, (jnp.arange(len(points)), points))[0]


def kernel(x, points, v):
    """A kernel matrix times a vector."""
    squared = (x**2).sum(1)[:, None] - 2 * x @ points.T + (points**2).sum(1)
    return jnp.exp(-squared) @ v


@tpu
def test_forty_gib_of_points_are_searched_in_one_of_device_memory():
    device, host = of_tpu()
    exported = export(jax.jit(nearest), platforms=["tpu"])(
        array(1024, 128, on=device), array(1024, 81920, 128, on=host)
    )
    plan = shm.plan(exported, "1GiB", target="tpu:v5e")
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.peak_bytes <= GIB
    assert plan.after.measured.host_fixed_bytes == 40 * GIB


def distances(queries, points):
    return (queries**2).sum(1)[:, None] - 2 * queries @ points.T + (points**2).sum(1)


IN_ONE_EXPRESSION = {
    "top_k": lambda queries, points: jax.lax.top_k(-distances(queries, points), 10),
    "argsort": lambda queries, points: jnp.argsort(distances(queries, points), axis=1)[:, :10],
    "argmin": lambda queries, points: jnp.argmin(distances(queries, points), axis=1),
}


@tpu
@pytest.mark.parametrize("search", IN_ONE_EXPRESSION)
def test_forty_gib_of_points_are_searched_by_one_expression(search):
    """The distances of 64 queries alone would be 20 GiB."""
    device, host = of_tpu()
    specs = array(64, 128, on=device), array(80 * 2**20, 128, on=host)
    plan = shm.plan(export(jax.jit(IN_ONE_EXPRESSION[search]), platforms=["tpu"])(*specs), "1GiB", target="tpu:v5e")
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.peak_bytes <= GIB
    assert plan.after.measured.host_fixed_bytes == 40 * GIB


@tpu
def test_twenty_gib_of_points_are_multiplied_in_one_of_device_memory():
    device, host = of_tpu()
    count = 20 * 2**21
    specs = array(2048, 128, on=device), array(count, 128, on=host), array(count, on=device)
    plan = shm.plan(export(jax.jit(kernel), platforms=["tpu"])(*specs), "1GiB", target="tpu:v5e")
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.peak_bytes <= GIB
    assert plan.after.measured.host_fixed_bytes == 20 * GIB
    assert {step.pass_name for step in plan.steps} >= {"split-into-loops"}


def adam_update(optimiser, shapes):
    """optax's update with both moments on the host of a TPU, donated, as one expression over flat trees."""
    device, host = of_tpu()
    parameters = {name: array(*shape, on=device) for name, shape in shapes.items()}
    state = jax.eval_shape(optimiser.init, parameters)
    state = jax.tree.map(lambda s: array(*s.shape, on=host if s.ndim else device, dtype=s.dtype), state)
    leaves, tree = jax.tree.flatten((parameters, parameters, state))

    def step(*leaves):
        parameters, gradients, state = jax.tree.unflatten(tree, leaves)
        updates, state = optimiser.update(gradients, state, parameters)
        return tuple(jax.tree.leaves((optax.apply_updates(parameters, updates), state)))

    donated = (*range(len(shapes)), *range(2 * len(shapes), len(leaves)))
    placed = tuple(leaves[i].sharding for i in donated)
    return export(jax.jit(step, donate_argnums=donated, out_shardings=placed), platforms=["tpu"])(*leaves)


STACKED = {"up": (24, 1024, 4096), "down": (24, 4096, 1024)}
UNSTACKED = {f"{name}{i}": STACKED[name][1:] for i in range(6) for name in STACKED}
OPTIMISERS = {"adam": optax.adam(1e-3), "adamw": optax.adamw(1e-3)}


@tpu
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize(("shapes", "layers"), [(STACKED, 24), (UNSTACKED, 6)], ids=["stacked", "unstacked"])
def test_the_moments_of_adam_leave_the_device(optimiser, shapes, layers):
    """Layers of two matrices: beside parameters and gradients one layer's moments are on the device."""
    layer = 2 * 2 * 4096 * 1024 * 4
    moments = parameters_and_gradients = layers * layer
    budget = parameters_and_gradients + layer + 2**20
    plan = shm.plan(adam_update(OPTIMISERS[optimiser], shapes), budget, target="tpu:v5e")
    assert plan.fits
    before, after = plan.before.measured, plan.after.measured
    assert isinstance(before, Measured)
    assert before.peak_bytes > budget
    assert isinstance(after, Measured)
    assert (after.host_fixed_bytes, after.host_temp_bytes) == (moments, 0)
    assert after.peak_bytes <= budget


def test_streamed_arguments_compute_the_same():
    """Also where one of them is too small to be streamed, and one is read by two expressions."""
    device, host = shardings(jax.devices("cpu")[0])

    def update(a, b, c, g):
        a, b = 0.9 * a + g, 0.9 * b + g**2
        return a, b, c * 2, jnp.tanh(a) / jnp.sqrt(1 + b)

    shapes = (6, 8), (6, 8), (1, 1), (6, 8)
    specs = [array(*shape, on=on) for shape, on in zip(shapes, (host, host, host, device), strict=True)]
    jitted = jax.jit(update, donate_argnums=(0, 1, 2), out_shardings=(host, host, host, device))
    program = ingest(export(jitted)(*specs))
    module = normal(program)
    StreamArguments().apply(module, StreamedArguments(chunk_bytes=2 * 8 * 4, arguments=3))
    remove_rules(module)
    write_over_arguments(module)
    assert module.operation.verify()
    assert text(module).count("stablehlo.while") == 1
    args = [normals(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    new, old = (run(program, one, *args, options=OPTIMISED) for one in (module, None))
    assert all(map(same_bits, new, old))


def table_step(t, m, n, x, g):
    """A table is looked up and multiplied by, and updated with its moments, one of which is used at once."""
    y = jnp.tanh(t[jnp.array([2, 0, 2])] @ x) @ t.T
    m, n = 0.9 * m + g, 0.99 * n + g * g
    return y, t - m / (1 + jnp.sqrt(n)), m, n


def exported_table_step(rows=8, width=8, platform="cpu"):
    device, host = shardings(jax.devices("cpu")[0])
    jitted = jax.jit(table_step, donate_argnums=(0, 1, 2), out_shardings=(device, host, host, host))
    arrays = [array(rows, width, on=host)] * 3 + [array(width, width, on=device), array(rows, width, on=device)]
    return export(jitted, platforms=[platform])(*arrays)


@pytest.mark.parametrize("again", [False, True])
def test_what_is_read_elsewhere_is_copied_again_for_its_update(again):
    """An axis of the whole copy would take the lookup and the matmul along, which regroups its sum."""
    program = ingest(exported_table_step())
    module = normal(program)
    StreamArguments().apply(module, StreamedArguments(chunk_bytes=2 * 8 * 4, arguments=3, again=again))
    remove_rules(module)
    write_over_arguments(module)
    assert module.operation.verify()
    assert text(module).count("stablehlo.while") == again
    args = (
        normals(8, 8),
        normals(8, 8, seed=1),
        normals(8, 8, seed=2) ** 2,
        normals(8, 8, seed=3),
        normals(8, 8, seed=4),
    )
    new, old = (run(program, one, *args, options=OPTIMISED) for one in (module, None))
    assert all(map(same_bits, new, old))


def test_copies_again_are_a_candidate_of_their_own():
    """It is offered where something is read elsewhere, and says that it takes the link's time."""
    goal = Goal(CHIPS["tpu:v5e"], Options(), 0)
    for program, expected in ((exported_table_step(4096, 1024, "tpu"), [True]), (moment_step(4096, "tpu"), [])):
        module = normal(ingest(program))
        graph = entry_graph(module)
        found = list(StreamArguments().propose(graph, find_peak(graph, goal.chip), goal))
        assert [c.step.params.again for c in found] == expected
        assert all(c.added_seconds >= 4096 * 1024 * 4 / goal.chip.host_link_bytes_per_second for c in found)


def test_more_steps_than_take_notice_are_not_saved():
    """Chunks of large copies are small whatever the goal: starting their loops takes less than a hundredth of it."""
    module = normal(ingest(exported_table_step(2**17, 4096, "tpu")))
    graph = entry_graph(module)
    goal = Goal(CHIPS["tpu:v5e"], Options(), 2**34)
    (found,) = StreamArguments().propose(graph, find_peak(graph, goal.chip), goal)
    assert [size.params.chunk_bytes for size in found.sizes] == [2**17 * 4096 * 4 // 32]


ROWS = [(30, 4096, 10), (30, 4096, 6), (30, 4096, 2), (32, 4096, 8), (32, 4096, 1)]


@pytest.mark.parametrize(("rows", "width", "count"), ROWS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_that_are_written_are_whole_tiles_or_fill_one(rows, width, count, dtype):
    packed = count % 2 == 0 or dtype == "f32"
    assert are_read((rows, width), dtype, 0, count) == packed
    assert are_written((rows, width), dtype, 0, count) == (packed and count not in (6, 10))
    assert are_written((rows, width, 128), dtype, 0, count)
    assert are_written((count, width), dtype, 0, count)


@tpu
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rows", [10, 1])
def test_a_tpu_compiles_streams_of_any_chunk(dtype, rows):
    """libtpu ends its process where it is to write 10 of 30 rows, and refuses one of two that lie together."""
    device, host = of_tpu()

    def update(m, n, g):
        m, n = 0.9 * m + g, 0.99 * n + g * g
        return m, n, jnp.tanh(m / (1 + n)).sum(1)

    specs = [array(30, 4096, on=on, dtype=dtype) for on in (host, host, device)]
    jitted = jax.jit(update, donate_argnums=(0, 1), out_shardings=(host, host, device))
    program = ingest(export(jitted, platforms=["tpu"])(*specs))
    module = normal(program)
    row = 4096 * jnp.dtype(dtype).itemsize
    StreamArguments().apply(module, StreamedArguments(chunk_bytes=rows * row, arguments=2))
    assert text(module).count("stablehlo.while") == 1
    remove_rules(module)
    write_over_arguments(module)
    assert isinstance(named_targets("tpu:v5e")[0].measure(program, module), Measured)


def streamed(rows=4096):
    """The update of a moment, `rows` / 2 at a time."""
    module = normal(ingest(moment_step(rows, platform="tpu")))
    StreamArguments().apply(module, StreamedArguments(chunk_bytes=rows // 2 * 8 * 4, arguments=1))
    attach_rules(module)
    return module


def test_what_a_loop_copies_to_the_host_is_not_split_again():
    """libtpu compiles no loop in it that writes the parts of the part that it writes."""
    module = streamed()
    graph = entry_graph(module)
    (loop,) = (op for op in graph.ops if op.name == "stablehlo.while")
    body = loop.blocks[1]
    to_host = [op for op in placements(body) if copied_bytes(body, op, to_host=True)]
    assert to_host
    for op in to_host:
        found = rule_book(body).split(op, "results", 0, 0, body.values[body.ops[op].results[0]].shape[0])
        assert isinstance(found, Blocked)
        assert found.code == "needs-whole-dimension"
    from_host = [op for op in placements(body) if copied_bytes(body, op, to_host=False)]
    for op in from_host:
        assert not isinstance(rule_book(body).split(op, "results", 0, 0, 4096 // 2), Blocked)


def test_chunks_that_are_written_to_the_host_divide_the_axis():
    """A ragged last one would read what is written over already."""
    module = normal(ingest(moment_step(4095, platform="tpu")))
    graph = entry_graph(module)
    goal = Goal(CHIPS["tpu:v5e"], Options(), 0)
    found = [c for c in proposals(graph, (), find_peak(graph, goal.chip), goal) if isinstance(c, Candidate)]
    assert found
    assert all(4095 % size.params.chunk == 0 for candidate in found for size in candidate.sizes)


def test_a_streamed_update_has_all_that_it_copies_on_the_device_at_once():
    """Chunks of both moments before and after, of the parameters too: one kernel reads and writes them on a TPU."""
    device, host = shardings(jax.devices("cpu")[0])

    def update(p, m, v, g):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        return p - m / (jnp.sqrt(v) + 1e-8), m, v

    specs = [array(8, 1024, 256, on=on) for on in (host, host, host, device)]
    jitted = jax.jit(update, donate_argnums=(0, 1, 2), out_shardings=(host,) * 3)
    module = normal(ingest(export(jitted, platforms=["tpu"])(*specs)))
    layer = 1024 * 256 * 4
    StreamArguments().apply(module, StreamedArguments(chunk_bytes=layer, arguments=3))
    attach_rules(module)
    graph = entry_graph(module)
    assert find_peak(graph, CHIPS["tpu:v5e"]).temp_bytes == 6 * layer + 4  # the counter
    assert find_peak(graph, CHIPS["cuda:h200"]).temp_bytes < 6 * layer


def lookup(table, ids):
    return jnp.take(table, ids, axis=0, mode="clip")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("rows", [7, 8])
@pytest.mark.parametrize("shape", [(5,), (2, 3), ()])
def test_rows_are_looked_up_as_before(shape, rows, dtype):
    """Indices out of bounds too: they are clamped. Narrow rows are copied two together."""
    device, host = shardings(jax.devices("cpu")[0])
    specs = array(rows, 4, on=host, dtype=dtype), array(*shape, on=device, dtype=jnp.int32)
    program = ingest(export(jax.jit(lookup))(*specs))
    module = normal(program)
    LookupFromHost().apply(module, lookups(entry_graph(module))[0].step.params)
    attach_rules(module)
    assert module.operation.verify()
    if dtype == jnp.float32:  # a TPU pads so small tables, and of narrow ones a result is as large
        assert find_peak(entry_graph(module), CHIPS["cuda:h200"]).temp_bytes < rows * 4 * 4
    remove_rules(module)
    ids = np.random.default_rng(0).integers(-3, 10, shape).astype(np.int32)
    args = normals(rows, 4, dtype=dtype), ids
    assert all(map(same_bits, run(program, module, *args), run(program, None, *args)))


@tpu
def test_rows_of_thirty_gib_are_looked_up_in_the_room_of_the_result():
    device, host = of_tpu()
    specs = array(30 * 2**18, 1024, on=host), array(8192, on=device, dtype=jnp.int32)
    plan = shm.plan(export(jax.jit(lookup), platforms=["tpu"])(*specs), "1GiB", target="tpu:v5e")
    assert plan.fits
    assert [step.pass_name for step in plan.steps] == ["lookup-from-host"]
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.peak_bytes <= 33 * 2**20


@tpu
@pytest.mark.parametrize("rows", [2**20, 2**20 + 1])
def test_narrow_rows_are_looked_up_in_pairs(rows):
    """libtpu copies no single row of bf16; the last of an odd number is copied with the one before."""
    device, host = of_tpu()
    specs = array(rows, 1024, on=host, dtype=jnp.bfloat16), array(512, on=device, dtype=jnp.int32)
    plan = shm.plan(export(jax.jit(lookup), platforms=["tpu"])(*specs), "16MiB", target="tpu:v5e")
    assert plan.fits
    assert [step.pass_name for step in plan.steps] == ["lookup-from-host"]


@tpu
def test_a_scan_over_narrow_layers_on_the_host():
    """Matrices are copied a layer at a time; the rows of the norms' scales, which lie together, before the loop."""
    device, host = of_tpu()
    layers, width = 16, 2048

    def forward(x, w, scale):
        return jax.lax.scan(lambda x, layer: (jnp.tanh(x @ layer[0]) * layer[1], None), x, (w, scale))[0]

    specs = (
        array(64, width, on=device, dtype=jnp.bfloat16),
        array(layers, width, width, on=host, dtype=jnp.bfloat16),
        array(layers, width, on=host, dtype=jnp.bfloat16),
    )
    plan = shm.plan(export(jax.jit(forward), platforms=["tpu"])(*specs), "64MiB", target="tpu:v5e")
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.host_fixed_bytes == layers * (width + 1) * width * 2


def test_slices_along_the_last_dimension_are_not_written_to_the_host_of_a_tpu():
    """libtpu compiles no such copy: `updates_host_along` says so, and the refusal names the value."""
    module = normal(ingest(moment_step(4096, platform="tpu")))
    graph = entry_graph(module)
    for chip, code in (("tpu:v5e", True), ("cuda:h200", False)):
        goal = Goal(CHIPS[chip], Options(), 0)
        refusals = [r for r in proposals(graph, (), find_peak(graph, goal.chip), goal) if isinstance(r, Refusal)]
        assert ("host-slices" in {r.code for r in refusals}) == code


@tpu
def test_the_gradient_of_a_table_of_thirty_gib_needs_one():
    device, host = of_tpu()
    specs = array(30 * 2**18, 1024, on=host), array(8192, on=device, dtype=jnp.int32), array(8192, 1024, on=device)

    def gradient(table, ids, g):
        return jax.vjp(lambda table: table[ids], table)[1](g)[0]

    exported = export(jax.jit(gradient, out_shardings=host), platforms=["tpu"])(*specs)
    plan = shm.plan(exported, "1GiB", target="tpu:v5e")
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.peak_bytes <= GIB
    assert plan.after.measured.host_fixed_bytes == 30 * GIB


@tpu
def test_what_the_compiler_keeps_on_the_host_for_itself_is_reported_and_not_bounded():
    """libtpu copies a table of 130 columns to the host's memory in another layout first."""
    specs = jax.ShapeDtypeStruct((1_000_003, 130), jnp.float32), jax.ShapeDtypeStruct((33, 7), jnp.int32)

    def bags(table, ids):
        return table[ids].sum(1)

    def planned(**options):
        function = shm.jit(bags, "64MiB", target="tpu:v5e", host="table", options=shm.Options(**options))
        return function.plan(*specs)

    plan = planned()
    assert plan.fits
    assert isinstance(plan.after.measured, Measured)
    assert plan.after.measured.host_temp_bytes > 2**20
    bounded = planned(host_memory="1MiB")
    assert isinstance(bounded.after.measured, Measured)
    assert bounded.fits
    assert bounded.after.measured.host_temp_bytes <= 2**20
    assert plan.slowdown < bounded.slowdown


@tpu
def test_a_plan_too_slow_of_a_program_that_libtpu_refuses():
    """No program within the limit of the price has a figure, and none is made up."""
    device, host = of_tpu()
    specs = array(1_000_003, 130, on=host), array(33, 7, on=device, dtype=jnp.int32)
    exported = export(jax.jit(lambda table, ids: lookup(table, ids).sum(1)), platforms=["tpu"])(*specs)
    plan = shm.plan(exported, "64MiB", target="tpu:v5e")
    assert plan.too_slow
    assert plan.affordable_peak_bytes is None
