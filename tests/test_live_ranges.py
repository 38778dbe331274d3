"""Buffers over time: which of them the outputs' buffers serve, beside the plainest way to say it."""

from hypothesis import given
from hypothesis import strategies as st

from stablehlo_mem.analysis.live_ranges import Slot, Timeline

SPANS = st.tuples(st.integers(0, 30), st.integers(0, 12))


def plainly(slots: list[Slot], outputs: list[tuple[int, int]]) -> list[Slot]:
    """The largest first, each to the smallest buffer that is free while it is alive."""
    rooms = [(nbytes, until, list[Slot]()) for nbytes, until in sorted(outputs)]
    left: list[Slot] = []
    for slot in sorted(slots, key=lambda slot: -slot.nbytes):
        for nbytes, until, held in rooms:
            apart = all(other.last < slot.first or slot.last < other.first for other in held)
            if nbytes >= slot.nbytes and slot.last < until and apart:
                held.append(slot)
                break
        else:
            left.append(slot)
    return left


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), SPANS), max_size=40),
    outputs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), max_size=8),
)
def test_outputs_serve_what_is_alive_before_they_are_written(sizes, outputs):
    timeline = Timeline()
    slots = [Slot(nbytes, [(first, (), i)], first + more) for i, (nbytes, (first, more)) in enumerate(sizes)]
    timeline.slots = slots
    expected = {id(slot) for slot in plainly(slots, outputs)}
    assert {id(slot) for slot in timeline.temporaries(outputs)} == expected
