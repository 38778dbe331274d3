"""The collector is paused in a step, and as it was after it."""

import gc

import pytest

from stablehlo_mem.utils import gc_pause


@gc_pause.kept()
def planned(fails: bool) -> bool:
    if fails:
        raise ValueError("of the step")
    with gc_pause.kept():
        pass
    return gc.isenabled()


@pytest.fixture(params=[True, False], ids=["on", "off"])
def enabled(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_is_paused_and_then_as_it_was(enabled):
    assert not planned(fails=False)
    assert gc.isenabled() == enabled
    with pytest.raises(ValueError, match="of the step"):
        planned(fails=True)
    assert gc.isenabled() == enabled
