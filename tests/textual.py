"""Textual cases: tests/ir/<name>.mlir holds a program, `// -----`, and all of what a rewrite makes of it.

The first line says what is done: `// canonicalize`; `// rematerialise`, all stacks of the first scan that has any to
drop; `// rematerialise in a pair`, all that a `shard_map` stores for its gradient; `// fuse-into-scan`, the readers of
the one stack that is read whole; `// fission-scans`, what the one scan accumulates; `// recompute-in-loops`, all it
can; `// compute-where-read`, the first for a GPU; `// sink-converts`, the first for a TPU; `// offload-to-host`, all it
can; `// offload-residuals`, the first; `// recompute-residuals`, all it can; `// hold-copies`; `//
finish-before-loops`; `// join-barriers`; `// slice-as-integers`; `// order-dots`; `// write-over-arguments`, `//
write-over-arguments, delayed`; `// stream-arguments`, `// stream-arguments, copied again`, 64 bytes at a time; `//
lookup-from-host`, the first; `// reblock-scans by CHUNK`, the first; `// rewrite PASS [bytes first]`, everywhere the
pass matches; or `// split OP along DIMENSION by CHUNK [from BYTES] [streaming]`, where OP names the first op whose
result is the seed, in normal form, nested blocks included, and BYTES is the least size of the values that are split, 1
if not given.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

from stablehlo_mem.frontend.canonicalize import canonicalize
from stablehlo_mem.ir.bindings import clone_module, ir, parse_module
from stablehlo_mem.ir.graph import Path, entry_graph, nested_graph
from stablehlo_mem.pass_api.candidate import Candidate
from stablehlo_mem.passes import PASSES
from stablehlo_mem.passes.compute_where_read import ComputeWhereRead
from stablehlo_mem.passes.fission_scans import FissionScans
from stablehlo_mem.passes.fuse_into_scan import FuseIntoScan
from stablehlo_mem.passes.lookup_from_host import LookupFromHost
from stablehlo_mem.passes.offload_residuals import OffloadResiduals
from stablehlo_mem.passes.offload_to_host import OffloadToHost
from stablehlo_mem.passes.reblock_scans import ReblockScans, outline
from stablehlo_mem.passes.recompute_in_loops import RecomputeInLoops
from stablehlo_mem.passes.recompute_residuals import RecomputeResiduals
from stablehlo_mem.passes.rematerialise import Rematerialise
from stablehlo_mem.passes.sink_converts import SinkConverts
from stablehlo_mem.passes.stream_arguments import StreamArguments, StreamedArguments
from stablehlo_mem.rewriting.finish_before_loops import finish_before_loops
from stablehlo_mem.rewriting.hold_copies import hold_copies
from stablehlo_mem.rewriting.join_barriers import join_barriers
from stablehlo_mem.rewriting.order_dots import order_dots
from stablehlo_mem.rewriting.rewriting_pass import RewritingPass
from stablehlo_mem.rewriting.slice_as_integers import slice_as_integers
from stablehlo_mem.rewriting.write_over_arguments import write_over_arguments
from stablehlo_mem.splitting.split_step import Split, split
from tests.support import (
    accumulated,
    blocks,
    dropped_in_pairs,
    first_for_gpu,
    fusable,
    lookups,
    offered,
    offloadable,
    recomputable,
    repeated,
    residuals,
    rewrite,
    text,
    without_stacks,
)

DIRECTORY = pathlib.Path(__file__).with_name("ir")
CASES = sorted(path.stem for path in DIRECTORY.glob("*.mlir"))
SEPARATOR = "\n// -----\n"
_REWRITE = re.compile(r"// rewrite ([\w-]+)( bytes first)?\n")
_REBLOCK = re.compile(r"// reblock-scans by (\d+)\n")
_SPLIT = re.compile(r"// split (\w+) along (\d+) by (\d+)(?: from (\d+))?( streaming)?\n")


def source_and_expected(name: str) -> tuple[str, str]:
    source, _, expected = (DIRECTORY / f"{name}.mlir").read_text().partition(SEPARATOR)
    return source, expected


def expected_and_actual(name: str) -> tuple[str, str]:
    source, expected = source_and_expected(name)
    return expected, rewritten(source)


def rewriting(source: str) -> tuple[RewritingPass, bool] | None:
    """The pass of a case that is a `// rewrite`, and whether bytes go first."""
    match = _REWRITE.match(source)
    if match is None:
        return None
    one = next(p for p in PASSES if p.name == match[1])
    assert isinstance(one, RewritingPass)
    return one, bool(match[2])


def rewritten(source: str) -> str:
    module = parse_module(source)
    canonicalize(module)
    if found := rewriting(source):
        one, prefer_memory = found
        rewrite(module, one, prefer_memory=prefer_memory)
    elif match := _SPLIT.match(source):
        path, value = _find(module, f"stablehlo.{match[1]}")
        least = int(match[4] or 1)
        seed = Split(path=path, value=value, dimension=int(match[2]), big_bytes=least, chunk=int(match[3]))
        split(module, dataclasses.replace(seed, streaming=bool(match[5])))
    elif source.startswith("// rematerialise\n"):
        assert without_stacks(module)
    elif source.startswith("// rematerialise in a pair\n"):
        Rematerialise().apply(module, dropped_in_pairs(entry_graph(module))[-1].step.params)
    elif source.startswith("// fuse-into-scan\n"):
        (candidate,) = fusable(entry_graph(module))
        assert isinstance(candidate, Candidate)
        FuseIntoScan().apply(module, candidate.step.params)
    elif source.startswith("// fission-scans\n"):
        (candidate,) = accumulated(entry_graph(module))
        assert isinstance(candidate, Candidate)
        FissionScans().apply(module, candidate.step.params)
    elif source.startswith("// recompute-in-loops\n"):
        RecomputeInLoops().apply(module, repeated(entry_graph(module))[-1].step.params)
    elif source.startswith("// compute-where-read\n"):
        ComputeWhereRead().apply(module, first_for_gpu(entry_graph(module)).step.params)
    elif source.startswith("// sink-converts\n"):
        SinkConverts().apply(module, offered(entry_graph(module))[0].step.params)
    elif source.startswith("// offload-to-host\n"):
        found = [c for c in offloadable(entry_graph(module)) if isinstance(c, Candidate)]
        OffloadToHost().apply(module, found[-1].step.params)
    elif source.startswith("// offload-residuals\n"):
        OffloadResiduals().apply(module, residuals(entry_graph(module))[0].step.params)
    elif source.startswith("// recompute-residuals\n"):
        RecomputeResiduals().apply(module, recomputable(entry_graph(module))[-1].step.params)
    elif source.startswith("// hold-copies\n"):
        hold_copies(module)
    elif source.startswith("// finish-before-loops\n"):
        finish_before_loops(module)
    elif source.startswith("// slice-as-integers\n"):
        slice_as_integers(module, frozenset({"bf16"}))
    elif source.startswith("// order-dots\n"):
        order_dots(module, frozenset({"bf16"}))
    elif source.startswith("// write-over-arguments"):
        write_over_arguments(module, delayed=source.startswith("// write-over-arguments, delayed\n"))
    elif source.startswith("// join-barriers\n"):
        join_barriers(module)
    elif source.startswith("// stream-arguments\n"):
        StreamArguments().apply(module, StreamedArguments(chunk_bytes=64, arguments=2))
    elif source.startswith("// stream-arguments, copied again\n"):
        StreamArguments().apply(module, StreamedArguments(chunk_bytes=64, arguments=2, again=True))
    elif source.startswith("// lookup-from-host\n"):
        LookupFromHost().apply(module, lookups(entry_graph(module))[0].step.params)
    elif match := _REBLOCK.match(source):
        ReblockScans().apply(module, _first_scan(module, int(match[1])))
    else:
        assert source.startswith("// canonicalize\n")
    module.operation.verify()
    return text(module)


def _first_scan(module: ir.Module, chunk: int) -> Split:
    """The split that takes the first scan in chunks: it names values as they are once scans are ops."""
    copy = clone_module(module)
    outline(copy)
    scan = next(op for op in entry_graph(copy).ops if op.name == "stablehlo.composite")
    return Split(path=(), value=scan.operands[0], dimension=0, big_bytes=1, chunk=chunk)


def _find(module: ir.Module, name: str) -> tuple[Path, int]:
    main = entry_graph(module)
    found = ((path, op) for path in blocks(main) for op in nested_graph(main, path).ops if op.name == name)
    path, op = next(found)
    return path, op.results[0]


def write(name: str, actual: str) -> None:
    source, _ = source_and_expected(name)
    (DIRECTORY / f"{name}.mlir").write_text(source + SEPARATOR + actual)
