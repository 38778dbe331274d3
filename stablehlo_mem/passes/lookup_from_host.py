"""lookup-from-host: rows of a table in the host's memory are copied one by one, as they are looked up.

Before, with %table in the host's memory:
    %c = annotate_device_placement(%table) "device" : tensor<vxd>
    %y = stablehlo.gather %c, %ids : tensor<nxd>
After:
    %y = while(%i = 0, %y = zeros) { %r = annotate_device_placement(dynamic_slice %table, %ids[%i]) "device"; ... }

A split along the table copies all of it, chunk by chunk. This copies what is read, with the latency of a copy a row.
Of narrow types as many rows are copied as TPUs pack together.

Refuses nothing. Leaves alone gathers of anything but whole rows along one dimension.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from stablehlo_mem.analysis.host_link import copied_bytes, placements
from stablehlo_mem.analysis.peak_memory import Peak
from stablehlo_mem.ir import builders
from stablehlo_mem.ir.bindings import ir, run_passes, stablehlo
from stablehlo_mem.ir.graph import Graph, OpPath, entry_graph, nested_graph
from stablehlo_mem.ir.host_memory import placed
from stablehlo_mem.ir.op_attributes import integers
from stablehlo_mem.ir.packed_rows import packed_rows
from stablehlo_mem.ir.trip_count import block_runs
from stablehlo_mem.pass_api.candidate import Candidate, Goal, Refusal, Step, StepParams
from stablehlo_mem.pass_api.pass_protocol import Pass
from stablehlo_mem.rewriting.rewriting_pass import block_paths


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostLookup(StepParams):
    """A gather of rows of a table in the host's memory, and how many rows, for people."""

    gather: OpPath
    rows: int


class LookupFromHost(Pass[HostLookup]):
    """The pass: finds gathers of rows of what is copied from the host for them alone."""

    name = "lookup-from-host"
    params_type = HostLookup

    def propose(self, graph: Graph, peak: Peak, goal: Goal) -> Iterator[Candidate | Refusal]:
        """A candidate for each gather whose table is alive at the peak."""
        live = {(item.path, item.value): item.nbytes for item in peak.live}
        for path in block_paths(graph):
            block = nested_graph(graph, path)
            for op in placements(block):
                value = block.ops[op].results[0]
                gather = _gather_of(block, op)
                if gather is not None and (path, value) in live:
                    yield _candidate(graph, (path, gather), live[path, value], goal)

    def describe(self, params: HostLookup) -> str:
        """How many rows."""
        return f"{params.rows} rows one by one"

    def apply(self, module: ir.Module, params: HostLookup) -> None:
        """Puts a loop over the indices in the place of a gather, in place."""
        path, op = params.gather
        graph = nested_graph(entry_graph(module), path)
        handle = graph.handles[op]
        copy = graph.handles[graph.values[graph.ops[op].operands[0]].producer]
        with builders.building(handle, handle.location):
            new = _looked_up(copy.operands[0], handle)
        handle.results[0].replace_all_uses_with(new)
        handle.erase()
        copy.erase()
        run_passes(module, "canonicalize")


def _candidate(main: Graph, gather: OpPath, nbytes: int, goal: Goal) -> Candidate:
    path, op = gather
    block, chip = nested_graph(main, path), goal.chip
    table, result = (block.values[v] for v in (block.ops[op].operands[0], block.ops[op].results[0]))
    rows = math.prod(block.values[block.ops[op].operands[1]].shape)
    link = chip.host_link_bytes_per_second or chip.bytes_per_second
    seconds = rows * (chip.step_seconds + 2 * chip.launch_seconds) + (result.nbytes - nbytes) / link
    return Candidate(
        step=Step(LookupFromHost.name, "", HostLookup(gather=gather, rows=rows)),
        saved_bytes=nbytes,
        added_seconds=block_runs(main, path) * seconds,
        numerics="exact",
        summary=f"copy the rows of {table} that are looked up",
        identity=(LookupFromHost.name, *gather),
        refusal_if_useless=Refusal.at(main, gather, f"gather {result}", nbytes, "no-gain", "it frees nothing"),
    )


def _gather_of(graph: Graph, copy: int) -> int | None:
    """The gather of whole rows that alone uses a copy from the host."""
    value = graph.ops[copy].results[0]
    users = [graph.ops[user] for user in graph.users[value]]
    if not copied_bytes(graph, copy, to_host=False) or [user.name for user in users] != ["stablehlo.gather"]:
        return None
    gather = users[0]
    table, indices = (graph.values[v] for v in gather.operands)
    numbers = stablehlo.GatherDimensionNumbers(graph.handles[gather.index].attributes["dimension_numbers"])
    rank, batch = len(table.shape), len(graph.values[gather.results[0]].shape) - len(table.shape) + 1
    is_row = (
        math.prod((*table.shape, *indices.shape)) > 0
        and list(numbers.start_index_map) == list(numbers.collapsed_slice_dims) == [0]
        and not list(numbers.operand_batching_dims)
        and integers(graph, gather, "slice_sizes") == (1, *table.shape[1:])
        and list(numbers.offset_dims) == list(range(batch, batch + rank - 1))
        and (numbers.index_vector_dim == len(indices.shape) or indices.shape[-1] == 1)
        and numbers.index_vector_dim >= len(indices.shape) - 1
    )
    return gather.index if is_row and indices.dtype in ("i32", "i64") and value in gather.operands[:1] else None


def _looked_up(table: Any, gather: Any) -> Any:
    """The rows of a table in the host's memory, at the indices of a gather."""
    shape, size, indices = list(table.type.shape), table.type.shape[0], gather.operands[1]
    count = math.prod(indices.type.shape)
    flat = builders.reshaped(indices, [count])
    last = builders.splat(flat.type, size - 1)
    i32_type = ir.IntegerType.get_signless(32)
    places = builders.convert(stablehlo.clamp(builders.zeros(flat.type), flat, last), i32_type)

    together = min(packed_rows(table.type), size)

    def copy_row(step: Any, carries: list[Any]) -> list[Any]:
        place = builders.reshaped(builders.slice_along(places, 0, step, 1), [])
        if together == 1:
            row = placed(builders.slice_along(table, 0, place, 1), "device")
        else:
            offset = stablehlo.remainder(place, builders.splat(place.type, together))
            first = stablehlo.subtract(place, offset)
            if size % together:
                first = stablehlo.minimum(first, builders.splat(place.type, size - together))
                offset = stablehlo.subtract(place, first)
            row = builders.slice_along(placed(builders.slice_along(table, 0, first, together), "device"), 0, offset, 1)
        return [builders.update_along(carries[0], row, 0, step)]

    rows = builders.retype(table.type, [count, *shape[1:]])
    (result,) = builders.while_loop(count, [builders.broadcast_zeros(rows)], copy_row)
    return builders.reshaped(result, list(gather.results[0].type.shape))
