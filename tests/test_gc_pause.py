"""The collector is paused in a step and runs rarely in a search, and is as it was after them."""

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


@pytest.fixture(params=[(700, 10, 10), (0, 10, 10), (10**6, 5, 5)], ids=["often", "never", "rarely"])
def thresholds(request):
    before = gc.get_threshold()
    gc.set_threshold(*request.param)
    yield request.param
    gc.set_threshold(*before)


@gc_pause.rare()
def searched(fails: bool) -> tuple[int, ...]:
    if fails:
        raise ValueError("of the search")
    return gc.get_threshold()


def test_runs_no_more_often_in_a_search_and_then_as_before(thresholds):
    within = searched(fails=False)
    assert within == ((100_000, 10, 10) if thresholds == (700, 10, 10) else thresholds)
    assert gc.get_threshold() == thresholds
    with pytest.raises(ValueError, match="of the search"):
        searched(fails=True)
    assert gc.get_threshold() == thresholds
