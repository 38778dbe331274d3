"""The count of `benchmarks/collectives.py`, on HLO as XLA:TPU writes it."""

import importlib
import pathlib
import sys
from typing import Any

import pytest

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("a source distribution has no benchmarks", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))
collectives: Any = importlib.import_module("collectives")

HLO = """HloModule step

%started (a: bf16[4,8]) -> (bf16[4,8], bf16[32,8], u32[]) {
  %a = bf16[4,8]{1,0} parameter(0)
  %gathered.1 = bf16[32,8]{1,0} all-gather(%a), channel_id=1, dimensions={0}
  ROOT %call.1 = (bf16[4,8], bf16[32,8], u32[]) custom-call(%gathered.1), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.1 (b: bf16[4,8], c: bf16[32,8], s: u32[]) -> (bf16[32,8], u32[]) {
  %b = bf16[4,8]{1,0} parameter(0)
  %gathered.2 = bf16[32,8]{1,0} all-gather(%b), channel_id=1, dimensions={0}
  %c = bf16[32,8]{1,0} parameter(1)
  %s = u32[] parameter(2)
  ROOT %both = (bf16[32,8]{1,0}, u32[]) tuple(%c, %s)
}

%ended (d: bf16[4,8], e: bf16[32,8], t: u32[]) -> bf16[32,8] {
  %d = bf16[4,8]{1,0} parameter(0)
  %gathered.3 = bf16[32,8]{1,0} all-gather(%d), channel_id=1, dimensions={0}
  %e = bf16[32,8]{1,0} parameter(1)
  %t = u32[] parameter(2)
  ROOT %call.2 = bf16[32,8]{1,0} custom-call(%d, %e, %gathered.3, %t), custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter.1 (f: f32[32,8]) -> f32[4,8] {
  %f = f32[32,8]{1,0} parameter(0)
  %summed = f32[32,8]{1,0} all-reduce(%f), channel_id=2, to_apply=%add
  %i = u32[] partition-id()
  %z = u32[] constant(0)
  ROOT %part = f32[4,8]{1,0} dynamic-slice(%summed, %i, %z), dynamic_slice_sizes={4,8}
}

%body (p: (bf16[4,8], f32[32,8])) -> (bf16[4,8], f32[32,8]) {
  %p = (bf16[4,8]{1,0}, f32[32,8]{1,0}) parameter(0)
  %rows = bf16[4,8]{1,0} get-tuple-element(%p), index=0
  %sums = f32[32,8]{1,0} get-tuple-element(%p), index=1
  %start = (bf16[4,8]{1,0}, bf16[32,8]{1,0}, u32[]) fusion(%rows), kind=kCustom, calls=%started
  %x = bf16[32,8]{1,0} get-tuple-element(%start), index=1
  %y = u32[] get-tuple-element(%start), index=2
  %on = (bf16[32,8]{1,0}, u32[]) fusion(%rows, %x, %y), kind=kOutput, calls=%async_collective_fusion.1
  %done = bf16[32,8]{1,0} fusion(%rows, %x, %y), kind=kCustom, calls=%ended
  %scattered = f32[4,8]{1,0} fusion(%sums), kind=kCustom, calls=%all-reduce-scatter.1
  ROOT %next = (bf16[4,8]{1,0}, f32[32,8]{1,0}) tuple(%rows, %sums)
}

%condition (q: (bf16[4,8], f32[32,8])) -> pred[] {
  %q = (bf16[4,8]{1,0}, f32[32,8]{1,0}) parameter(0)
  %trips = s32[] constant(3)
  ROOT %less = pred[] compare(%trips, %trips), direction=LT
}

ENTRY %main (m: bf16[4,8], n: f32[32,8]) -> f32[32,8] {
  %m = bf16[4,8]{1,0} parameter(0)
  %n = f32[32,8]{1,0} parameter(1)
  %given = (bf16[4,8]{1,0}, f32[32,8]{1,0}) tuple(%m, %n)
  %loop = (bf16[4,8]{1,0}, f32[32,8]{1,0}) while(%given), condition=%condition, body=%body
  %last = f32[32,8]{1,0} get-tuple-element(%loop), index=1
  ROOT %total = f32[32,8]{1,0} all-reduce(%last), channel_id=3, to_apply=%add
}
"""
GATHERED, SUMMED = 32 * 8 * 2, 32 * 8 * 4
TRIPS = 3


def test_collectives_of_fusions_count_once_and_sums_of_parts_are_not_gathered() -> None:
    assert collectives.counted(HLO) == TRIPS * (GATHERED + SUMMED) + 2 * SUMMED
