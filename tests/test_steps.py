"""Steps are typed by their pass, and come back from JSON as they were."""

import json

import pytest

from stablehlo_mem.pass_api.candidate import Step
from stablehlo_mem.passes import PASSES, pass_named, step_from_plain
from stablehlo_mem.passes.compute_where_read import WhereRead
from stablehlo_mem.passes.fission_scans import FissionedScan
from stablehlo_mem.passes.fuse_into_scan import FusedIntoScan
from stablehlo_mem.passes.lookup_from_host import HostLookup
from stablehlo_mem.passes.offload_residuals import OffloadedResiduals
from stablehlo_mem.passes.offload_to_host import OffloadedStacks
from stablehlo_mem.passes.recompute_in_loops import RecomputedValues
from stablehlo_mem.passes.recompute_residuals import RecomputedResiduals
from stablehlo_mem.passes.rematerialise import DroppedStacks
from stablehlo_mem.passes.sink_converts import HeldSlices
from stablehlo_mem.passes.stream_arguments import StreamedArguments
from stablehlo_mem.rewriting.recomputation import Recomputed
from stablehlo_mem.rewriting.rewriting_pass import Rewriting
from stablehlo_mem.splitting.split_step import Split
from stablehlo_mem.utils.plain_data import plain_data

PATH = ((3, 1), (0, 0))
PARAMS = {
    Split: Split(
        path=PATH, value=2, dimension=1, big_bytes=1024, chunk=64, elements=128, loops=2, kept=(4, 5), places=((7, 1),)
    ),
    Rewriting: Rewriting(roots=(((), 1), (PATH, 7)), prefer_memory=True),
    DroppedStacks: DroppedStacks(path=PATH, loop=3, dropped=(1, 2), stacks=4, steps=12, segment=3),
    FusedIntoScan: FusedIntoScan(path=PATH, loop=3, stack=1, ops=5, steps=12),
    FissionedScan: FissionedScan(path=PATH, loop=3, carries=(2, 4), stacks=2, steps=12),
    OffloadedStacks: OffloadedStacks(stacks=(((PATH, 3), 1), (((), 4), 0)), nbytes=4096),
    OffloadedResiduals: OffloadedResiduals(
        values=(4, 6), stored=(9, 12), fetched=(21, 18), late=((20, 22), (19,)), moved=((7, 20),), nbytes=2048
    ),
    RecomputedResiduals: RecomputedResiduals(
        path=PATH,
        place=9,
        segments=(Recomputed(before=12, ops=(2, 3), sources=(0,), awaited=(11,), gathered=(1,)),),
        values=1,
    ),
    RecomputedValues: RecomputedValues(path=PATH, values=(5, 6), readers=2),
    WhereRead: WhereRead(path=PATH, value=4, ops=(2, 3), sources=(0, 1), readers=((5,), (6, 7)), sums=(5,)),
    StreamedArguments: StreamedArguments(chunk_bytes=1024, arguments=5),
    HostLookup: HostLookup(gather=(PATH, 4), rows=12),
    HeldSlices: HeldSlices(slices=((PATH, 7),)),
}


@pytest.mark.parametrize("one", PASSES, ids=lambda one: one.name)
def test_a_step_comes_back_from_json(one):
    step = Step(one.name, "0123456789abcdef", PARAMS[one.params_type])
    data = plain_data(step)
    assert set(data) == {"pass_name", "input_fingerprint", "params"}
    back = step_from_plain(json.loads(json.dumps(data)))
    assert back == step
    assert hash(back) == hash(step)  # paths are tuples again
    assert one.describe(back.params) == one.describe(step.params)


@pytest.mark.parametrize("params", PARAMS.values(), ids=lambda params: type(params).__name__)
def test_a_part_of_a_step_is_none(params):
    name = next(one.name for one in PASSES if one.params_type is type(params))
    with pytest.raises(TypeError):
        step_from_plain({"pass_name": name, "input_fingerprint": "", "params": {}})


def test_there_are_no_other_passes():
    with pytest.raises(ValueError, match="there is no pass 'none'"):
        pass_named("none")
