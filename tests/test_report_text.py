"""The report says what was decided and what it is worth, from plans built by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json

import pytest

from stablehlo_mem.ir.graph import OpId
from stablehlo_mem.pass_api.candidate import Options, Refusal, Step
from stablehlo_mem.reports.phrases import budget_error_text, headline
from stablehlo_mem.reports.text import curve_report, plain_text, render_text
from stablehlo_mem.results.decision import Decision
from stablehlo_mem.results.explanation import Explanation
from stablehlo_mem.results.memory_history import LiveValue
from stablehlo_mem.results.memory_profile import MemoryProfile
from stablehlo_mem.results.memory_time_curve import CurvePoint
from stablehlo_mem.results.plan import Cost, Figures, Plan
from stablehlo_mem.splitting.split_step import Split
from stablehlo_mem.targets.measurement import Measured, Refused
from stablehlo_mem.utils.units import format_bytes, format_flops, format_seconds

MIB = 2**20
SCORES = LiveValue("dot_general", "f32", (8, 8192, 8192), 2048 * MIB, "attention.py:12 (dot_general)")
CHUNK = LiveValue("dot_general", "f32", (8, 64, 8192), 16 * MIB, "attention.py:12 (dot_general)")
DECISION = Decision(
    pass_name="split-into-loops",
    what="split dot_general f32[8,8192,8192] along dimension 1",
    how="1 loop of 128 steps, 64 of 8192 at a time",
    location="attention.py:12 (dot_general)",
    numerics="reassociate",
    saved_bytes=4064 * MIB,
    added_seconds=0.25,
    added_flops=-1e9,
)
SPLIT = Split(path=((3, 1),), value=2, dimension=0, big_bytes=1024, chunk=64, kept=(4, 5))

REFUSAL = Refusal(
    OpId("main", 7), "sort f32[8192,8192]", 256 * MIB, 1, "needs-whole-dimension", "sort needs all of it", "knn.py:3"
)


def profile(temp: int, live: tuple[LiveValue, ...], measured: Measured | Refused | None = None) -> MemoryProfile:
    return MemoryProfile(
        argument_bytes=48 * MIB,
        output_bytes=16 * MIB,
        temp_bytes=temp,
        alias_bytes=4 * MIB,
        constant_bytes=0,
        live=live,
        point="dot_general at attention.py:12",
        measured=measured,
    )


def measured(temp: int) -> Measured:
    return Measured(
        argument_bytes=48 * MIB, output_bytes=16 * MIB, temp_bytes=temp, alias_bytes=4 * MIB, constant_bytes=0
    )


def plan(**changes: object) -> Plan:
    base = Plan(
        budget_bytes=128 * MIB,
        target=("cpu",),
        before=profile(4096 * MIB, (SCORES, SCORES), measured(4100 * MIB)),
        after=profile(32 * MIB, (CHUNK, CHUNK), measured(33 * MIB)),
        steps=(Step("split-into-loops", "0123456789abcdef", SPLIT),),
        summaries=(DECISION.summary,),
        decisions=(DECISION,),
        cost_before=Cost(1.0, 2e12),
        cost_after=Cost(1.25, 1.999e12),
        refusals=(REFUSAL,),
        compiles=2,
        fits=True,
        planning_seconds=0.41,
        compile_seconds=3.1,
        result=None,
        exported=None,
        bytecode=b"",
    )
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (17, "17 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536 * MIB, "1.5 GiB"),
        (512 * MIB, "512 MiB"),
        (2**30 - 1, "1 GiB"),
        (1000 * MIB, "1000 MiB"),
        (34 * MIB + MIB // 4, "34.2 MiB"),
        (4 * 2**40, "4 TiB"),
        (-64 * 1024, "-64 KiB"),
    ],
)
def test_format_bytes_reads_in_three_digits(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text


def test_plan_text_holds_peak_parts_decisions_values_and_effort() -> None:
    text = str(plan())
    assert text == plain_text(plan())
    assert "cpu: 4.06 GiB → 93 MiB, within the budget of 128 MiB" in text
    for part in ("arguments", "outputs", "temporaries", "constants", "aliased", "peak"):
        assert part in text
    assert "before static" in text
    assert "before measured" in text
    assert "after measured" in text
    assert "2 × 2 GiB  dot_general f32[8,8192,8192]" in text
    assert "attention.py:12 (dot_general)" in text
    assert "sort needs all of it [needs-whole-dimension]" in text
    assert "knn.py:3" in text
    assert "0.41 s of planning, 2 compiles in 3.10 s" in text


def test_decisions_say_what_where_how_and_what_it_is_worth() -> None:
    lines = [line.strip() for line in str(plan()).splitlines()]
    first = lines.index("1. split dot_general f32[8,8192,8192] along dimension 1")
    assert lines[first + 1 : first + 5] == [
        "split-into-loops, reassociated: 1 loop of 128 steps, 64 of 8192 at a time",
        "at attention.py:12 (dot_general)",
        "estimated: peak -3.97 GiB, time +250 ms, arithmetic -1 GFLOP, 63 ms a GiB",
        "Estimated time 1 s → 1.25 s (×1.25), arithmetic 2 TFLOP → 2 TFLOP (×1.00)",
    ]


def test_a_plan_without_decisions_shows_its_summaries() -> None:
    assert DECISION.summary in " ".join(str(plan(decisions=())).split())


def test_several_targets_have_a_table_of_their_own() -> None:
    one = Figures("cpu", measured(4096 * MIB), measured(32 * MIB))
    other = Figures("tpu:v5e", Refused("RESOURCE_EXHAUSTED", 19 * 2**30), measured(64 * MIB))
    text = str(plan(figures=(one, other)))
    assert "tpu:v5e  19 GiB (refused)  124 MiB" in text
    assert "by each target's compiler" not in str(plan(figures=(one,)))


def test_advice_is_given_where_the_budget_is_not_kept() -> None:
    relaxed = dataclasses.replace(REFUSAL, code="needs-relaxed")
    donated = profile(1 * MIB, (), dataclasses.replace(measured(1 * MIB), alias_bytes=0))
    text = str(plan(fits=False, refusals=(relaxed, REFUSAL), after=donated))
    assert 'Options(numerics="relaxed")' in text
    assert "donate arguments: they and the outputs are 64 MiB" in text
    assert "need a whole dimension" in text
    assert "out_shardings" not in text
    whole = profile(1 * MIB, (), dataclasses.replace(measured(1 * MIB), output_bytes=200 * MIB))
    text = " ".join(str(plan(fits=False, refusals=(REFUSAL,), after=whole, options=Options(max_seconds=0.1))).split())
    assert "give out_shardings: the results take 200 MiB of each device, as written 16 MiB" in text
    assert "allow more time than Options(max_seconds=0.1)" in text
    assert "What may help" not in str(plan(refusals=(relaxed, REFUSAL)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (1.5, "1.5 s"), (0.0204, "20.4 ms"), (-3.1e-4, "-310 µs"), (0.9999, "1 s"), (125.4, "125 s")],
)
def test_format_seconds_reads_in_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("flops", "text"), [(12, "12 FLOP"), (1.1e12, "1.1 TFLOP"), (-2.5e6, "-2.5 MFLOP")])
def test_format_flops_reads_in_three_digits(flops: float, text: str) -> None:
    assert format_flops(flops) == text


def test_plan_text_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = plain_text(plan())
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert plain_text(plan()) == text
    assert "\x1b" not in text


def test_brackets_of_values_are_not_taken_for_markup() -> None:
    note = LiveValue("add", "f32", (3,), 12, "[red]odd/path.py:1")
    assert "[red]odd/path.py:1" in plain_text(plan(before=profile(1, (note,))))


def test_a_compiler_that_refused_is_quoted_with_what_it_needed() -> None:
    refused = Refused("RESOURCE_EXHAUSTED: used 19G\n of 15.75G hbm", 19 * 2**30)
    text = plain_text(plan(before=profile(4096 * MIB, (SCORES,), refused)))
    assert "19 GiB (refused)" in text
    assert "RESOURCE_EXHAUSTED: used 19G of 15.75G hbm" in text


def test_a_plan_with_nothing_to_do_says_so() -> None:
    assert "No decision was needed." in plain_text(plan(steps=(), summaries=(), budget_bytes=8192 * MIB))


def test_only_the_largest_rows_are_shown_and_the_rest_counted() -> None:
    different = tuple(dataclasses.replace(REFUSAL, dimension=i) for i in range(10))
    assert "… and 4 more" in plain_text(plan(refusals=different))
    assert plain_text(plan(refusals=(REFUSAL,) * 10)).count("sort needs all of it") == 1


def test_no_report_begins_or_ends_with_an_empty_line() -> None:
    refused = profile(4096 * MIB, (SCORES,), Refused("RESOURCE_EXHAUSTED", 19 * 2**30))
    explanation = Explanation(
        target="cpu", profile=profile(4096 * MIB, (SCORES,)), goal_bytes=MIB, quicker=(), offers=(), refusals=(REFUSAL,)
    )
    points = render_text(curve_report([CurvePoint(MIB, 1.0, 1.0, (DECISION,))]))
    for text in (plain_text(plan(before=refused)), plain_text(refused), str(explanation), points):
        lines = text.splitlines()
        assert lines[0]
        assert lines[-1]
        assert "" not in [a or b for a, b in itertools.pairwise(lines)]


def test_profile_text_without_a_compiler_shows_the_estimate_alone() -> None:
    text = plain_text(profile(4096 * MIB, (SCORES,)))
    assert "static" in text
    assert "measured" not in text
    assert "4.06 GiB" in text
    assert "dot_general at attention.py:12" in text


def test_budget_error_text_names_figures_values_and_obstacles() -> None:
    text = budget_error_text(plan(fits=False, budget_bytes=80 * MIB))
    first = text.splitlines()[0]
    assert first == "the budget of 80 MiB cannot be kept on cpu: needed 4.06 GiB, reached 93 MiB"
    assert "temporaries 33 MiB" in text
    assert "16 MiB  dot_general f32[8,64,8192]  at attention.py:12 (dot_general)" in text
    assert "256 MiB  sort f32[8192,8192]  at knn.py:3: dimension 1: sort needs all of it" in text


def test_to_json_is_plain_data_without_the_programs() -> None:
    data = json.loads(plan().to_json())
    assert data["after"]["peak_bytes"] == 93 * MIB
    assert data["steps"][0]["params"] == {**dataclasses.asdict(SPLIT), "path": [[3, 1]], "kept": [4, 5], "places": []}
    assert data["refusals"][0]["op"] == {"function": "main", "index": 7}
    assert not {"result", "exported", "bytecode"} & data.keys()
    assert data["decisions"][0]["added_seconds"] == 0.25


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"fits": True}, "within the budget of 128 MiB"),
        ({"fits": False}, "OVER the budget of 128 MiB"),
        (
            {"fits": False, "too_slow": True, "cost_after": Cost(3.0, 2e12)},
            "within the budget of 128 MiB, TOO SLOW: 3 times the estimated time",
        ),
        (
            {"fits": True, "cost_after": Cost(1.6, 2e12)},
            "within the budget of 128 MiB, slow: 1.6 times the estimated time",
        ),
    ],
)
def test_the_headline_tells_what_is_over_from_what_is_slow(changes, verdict):
    """Also where a compiler refuses a program whose figure is below the budget."""
    assert headline(plan(**changes)).endswith(verdict)


def test_a_price_beyond_the_limit_says_what_was_reached_and_what_takes_the_time():
    text = budget_error_text(
        plan(fits=False, too_slow=True, cost_after=Cost(3.0, 2e12), affordable_peak_bytes=512 * MIB)
    )
    assert text.splitlines() == [
        "the budget of 128 MiB is kept on cpu only at 3 times the estimated time; "
        "Options(max_slowdown=2.0) allows less",
        "  peak of that plan, which is `.best`: 93 MiB",
        "  smallest peak found within the limit: 512 MiB",
        "what takes the time:",
        "  250 ms  split dot_general f32[8,8192,8192] along dimension 1  at attention.py:12 (dot_general)",
    ]
