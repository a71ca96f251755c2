"""Test how a grid is shown and written: heat map, comparison, roofline, files."""

import csv
import io
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel.result import BROKEN, Cell, Check, Sensors, Trials
from gpudeck.accel.workloads.catalog import find
from gpudeck.app.format.results import summarize_result
from gpudeck.app.workloads import cells as c
from gpudeck.app.workloads.comparison import compare, ratios
from gpudeck.app.workloads.form import WorkloadForm
from gpudeck.app.workloads.heat_map import QUANTITIES, heat_map, quantities
from gpudeck.app.workloads.result_export import as_csv, as_json, save_result
from gpudeck.app.workloads.roofline import attainable, roofline, ticks
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Failed
from tests.gui import snapshots
from tests.gui.snapshots import CONTENDERS, NOW, ceilings, grid, job, raw

replace = msgspec.structs.replace
GRID = grid()
BY_NAME = {q.name: q for q in QUANTITIES}


def ceiling_results():
    from gpudeck.accel.result import read

    return [read(j.result) for j in ceilings()]


def done(result):
    return job(5, Done(NOW - 9, NOW - 1, ("cpu",), raw(result)), result.workload, result.workload)


def test_the_heat_map_has_a_tile_for_every_cell():
    made = heat_map(GRID.cells, "hopper", "backward", BY_NAME["TFLOP/s"])
    assert made.rows == ("d 64", "d 64, causal", "d 128", "d 128, causal", "d 256", "d 256, causal")
    assert made.columns == ("512", "1024", "2048", "4096", "8192", "16384")
    shown = {
        (x.head_dim, x.causal, x.seq): x.tflops
        for x in GRID.cells
        if (x.contender, x.direction) == ("hopper", "backward")
    }
    texts = [[tile.text for tile in row] for row in made.cells]
    assert texts[2][5] == f"{shown[128, False, 16384]:.0f}"
    assert sum(len(row) for row in texts) == len(shown) == 36
    assert all(0 < tile.share <= 1 for row in made.cells for tile in row)


def test_all_contenders_share_one_color_scale():
    shares = {}
    for name in CONTENDERS:
        made = heat_map(GRID.cells, name, "forward", BY_NAME["TFLOP/s"])
        shares[name] = [(float(t.text), t.share) for row in made.cells for t in row if t.text]
        assert (
            made.highest == heat_map(GRID.cells, c.FASTEST, "forward", BY_NAME["TFLOP/s"]).highest
        )
    slopes = [share / value for pairs in shares.values() for value, share in pairs]
    assert max(slopes) == pytest.approx(min(slopes), rel=0.02)  # texts are rounded
    assert max(share for pairs in shares.values() for _, share in pairs) == 1


def test_the_fastest_contender_must_have_passed():
    cells = [
        x
        for x in GRID.cells
        if (x.head_dim, x.causal, x.seq, x.direction) == (64, False, 512, "forward")
    ]
    (fastest,) = c.chosen_cells(cells, c.FASTEST, "forward")
    assert fastest.tflops == max(x.tflops for x in cells if x.contender != "auto")
    wrong = [replace(x, checks=(Check("out", 1.0, 0.1),)) if x is fastest else x for x in cells]
    (second,) = c.chosen_cells(wrong, c.FASTEST, "forward")
    assert second.contender != fastest.contender and second.passed
    made = heat_map(wrong, fastest.contender, "forward", BY_NAME["TFLOP/s"])
    assert made.cells[0][0].failed and made.cells[0][0].small == "failed"


def test_refused_cells_are_empty_with_a_reason():
    made = heat_map(GRID.cells, "flash", "forward", BY_NAME["TFLOP/s"])
    (hole,) = [
        t
        for row in made.cells
        for t in row
        if not t.text and "head size 256" in t.tooltip and "causal" not in t.tooltip
    ]
    assert (hole.share, hole.failed) == (None, False) and "made-up refusal" in hole.tooltip


def test_only_measured_quantities_are_offered():
    assert [q.name for q in quantities(GRID.cells)] == [
        "TFLOP/s",
        "J per TFLOP",
        "Median time",
        "Spread",
        "Clock",
        "Worst error",
    ]
    bare = [replace(x, sensors=Sensors(absent="no"), checks=()) for x in GRID.cells]
    assert [q.name for q in quantities(bare)] == ["TFLOP/s", "J per TFLOP", "Median time", "Spread"]
    empty = heat_map(bare, "auto", "forward", BY_NAME["J per TFLOP"])
    assert empty.highest is None and "Compare with Power" in BY_NAME["J per TFLOP"].hint
    tried = [replace(x, trials=Trials(10, 0, 0.1, 0.2, 0.3, 0.4, 7)) for x in GRID.cells]
    assert quantities(tried)[0].name == "Worst error"
    assert heat_map(tried, "auto", "forward", quantities(tried)[0]).cells[0][0].text == "40.0"


def with_fp8():
    """Add FP8 to the grid's forward pass, faster and less exact than all others."""
    exact = [replace(x, error=1.7e-3) for x in GRID.cells]
    fp8 = [
        replace(x, contender="fp8", backend="hopper fp8", tflops=1.5 * x.tflops, error=5.1e-2)
        for x in exact
        if x.contender == "hopper" and x.direction == "forward"
    ]
    return [*exact, *fp8]


def test_fp8_stands_beside_the_others_with_its_error_and_is_never_the_fastest():
    cells = with_fp8()
    made = heat_map(cells, "fp8", "forward", BY_NAME["TFLOP/s"])
    assert {t.small for row in made.cells for t in row} == {"error 5.1 %"}
    assert max(t.share for row in made.cells for t in row) == 1
    errors = heat_map(cells, "fp8", "forward", BY_NAME["Relative error"])
    assert errors.cells[0][0].text == "5.10" and errors.unit == "% of the exact result"
    assert "relative error 5.1 %" in made.cells[0][0].tooltip
    assert not {x.contender for x in c.chosen_cells(cells, c.FASTEST, "forward")} & {"fp8"}
    assert ratios(cells) == [(r, replace(x, error=1.7e-3)) for r, x in ratios(GRID.cells)]
    told = compare(cells, c.GridRow(128, True), "forward").summary
    best = c.chosen_cells(cells, c.FASTEST, "forward")
    lead = [
        1.5 * x.tflops / y.tflops
        for x in GRID.cells
        for y in best
        if x.contender == "hopper" and x.direction == "forward" and c.problem(x) == c.problem(y)
    ]
    mean = math.exp(sum(map(math.log, lead)) / 36)
    assert (
        f"fp8 has {mean:.2f} times the speed of the best backend on average over 36 shapes" in told
    )
    assert "a relative error of up to 5.1 % instead of 0.17 %" in told
    assert "fp8" not in compare(GRID.cells, c.GridRow(128, True), "forward").summary


def test_the_ceiling_of_fp8_is_its_own():
    cells = tuple(with_fp8())
    result = replace(GRID, cells=cells)
    plain = roofline(GRID, ceiling_results(), "hopper", "forward")
    assert roofline(result, ceiling_results(), "hopper", "forward").peak == plain.peak
    fp8 = roofline(result, ceiling_results(), "fp8", "forward")
    assert fp8.peak == 1979 and "data sheet" in fp8.peak_label
    assert "Matrix product" in fp8.unmeasured, "whose data types have FP8, too"


def test_auto_is_compared_with_the_best_single_backend():
    made = compare(GRID.cells, c.GridRow(128, True), "forward")
    assert made.contenders == tuple(CONTENDERS)
    assert [g.label for g in made.groups] == ["512", "1024", "2048", "4096", "8192", "16384"]
    for group in made.groups:
        rates = {bar.contender: bar.tflops for bar in group.bars}
        ratio = rates.pop("auto") / max(rates.values())
        assert group.ratio == pytest.approx(ratio)
        assert all(bar.low <= bar.tflops <= bar.high <= made.highest for bar in group.bars)
    found = [r for r, _ in ratios(GRID.cells)]
    assert len(found) == 72
    mean = math.exp(sum(map(math.log, found)) / 72)
    assert f"{100 * mean:.1f} % of the best backend on average over 72 shapes" in made.summary
    assert f"; at worst {100 * min(found):.1f} % of its speed (" in made.summary
    for factor, lead in ((1.01, "as fast as"), (1.5, "50.0 % faster than")):
        faster = [
            replace(x, tflops=x.tflops * factor / mean) if x.contender == "auto" else x
            for x in GRID.cells
        ]
        said = f"auto is {lead} the best backend on average over 72 shapes; at worst "
        assert said in compare(faster, c.GridRow(128, True), "forward").summary
    assert "twice" not in made.summary
    doubled = [replace(x, twin=1.01 if x.seq == 512 else 0.99) for x in GRID.cells]
    twice = "; the same kernel twice: 0.993 (0.990 to 1.010)"
    assert compare(doubled, c.GridRow(128, True), "forward").summary == made.summary + twice
    without = compare(
        [x for x in GRID.cells if x.contender != "auto"], c.GridRow(128, True), "forward"
    )
    assert without.summary == "" and {g.ratio for g in without.groups} == {None}


def test_the_roofline_lies_on_measured_ceilings():
    gemm, copy = ceiling_results()
    made = roofline(GRID, [replace(gemm, tflops=812.0), copy], "hopper", "forward")
    assert (made.peak, made.bandwidth, made.missing) == (812.0, 2.9e12, ())
    assert made.peak_label == "matrix product 812 TFLOP/s"
    assert len(made.points) == 36
    for point in made.points:
        assert made.x[0] < point.intensity < made.x[1] and made.y[0] < point.tflops < made.y[1]
    knee = 812e12 / 2.9e12
    assert attainable(knee / 2, made) == pytest.approx(406) and attainable(10 * knee, made) == 812
    cell = next(x for x in GRID.cells if x.contender == "hopper")
    assert made.points[0].intensity == pytest.approx(cell.flops / cell.moved)


def test_no_point_lies_above_the_roof():
    fastest = max(x.tflops for x in GRID.cells)
    for contender in CONTENDERS:
        made = roofline(GRID, ceiling_results(), contender, "forward")
        assert made.peak == fastest > ceiling_results()[0].tflops
        assert made.peak_label == f"highest measured {fastest:.0f} TFLOP/s"
        assert all(point.tflops <= made.peak for point in made.points)


def test_missing_ceilings_are_named():
    gemm, copy = ceiling_results()
    others = [
        replace(gemm, params={"dtype": "float16"}),
        replace(gemm, device="another GPU"),
        replace(gemm, verdict="fail: wrong"),
    ]
    unknown = replace(GRID, device="a card")
    made = roofline(unknown, others, "auto", "forward")
    assert (made.peak, made.bandwidth) == (0.0, 0.0) and attainable(5.0, made) == math.inf
    assert made.missing == (
        "no matrix product in bfloat16 was measured on this device; run Matrix product",
        "no copy was measured on this device; run Memory copy",
    )
    copied = replace(copy, device="a card")
    assert roofline(unknown, [copied], "auto", "forward").missing == made.missing[:1]
    newer = replace(gemm, tflops=850.0)
    newest = roofline(GRID, [newer, replace(gemm, tflops=900.0), copy], "auto", "forward")
    assert newest.peak == 850.0


def test_the_data_sheet_stands_in_for_what_was_not_measured():
    _, copy = ceiling_results()
    made = roofline(GRID, [], "auto", "forward")
    assert (made.peak, made.bandwidth, made.missing) == (989, 3.35e12, ())
    assert made.peak_label == "data sheet 989 TFLOP/s"
    assert made.unmeasured == ("Matrix product", "Memory copy")
    assert made.slope_label == "data sheet 3350 GB/s"
    both = roofline(GRID, [copy], "auto", "forward")
    assert (both.peak, both.bandwidth, both.unmeasured) == (989, 2.9e12, ("Matrix product",))
    assert both.slope_label.startswith("memory ")


def one_cell(operation, dtype, tflops, device=snapshots.H100):
    cell = Cell(
        1, 1, 1, 4096, 4096, causal=False, dtype=dtype, direction="both", contender="row",
        backend="fp8", flops=6.0 * 4096**3, moved=6.0 * 4096**2, tflops=tflops,
        checks=(Check("relative error of out", 0.03, 0.06),), operation=operation,
        sizes="4096 rows, 4096 to 4096 features",
    )  # fmt: skip
    return replace(GRID, workload=operation, device=device, cells=(cell,))


def test_the_roof_is_that_of_the_precision():
    layer = one_cell("precision", "fp8", 900.0)
    made = roofline(layer, ceiling_results(), "row", "both")
    assert (made.peak, made.peak_label) == (1979, "data sheet 1979 TFLOP/s")
    assert [p.tflops for p in made.points] == [900.0]
    assert "4096 rows, 4096 to 4096 features, fp8, forward and backward" in made.points[0].tooltip
    assert "relative error of out 3.00e-02 of 6.00e-02 allowed" in made.points[0].tooltip
    measured = replace(
        ceiling_results()[0], params={"size": 8192, "dtype": "fp8-row"}, tflops=1402.0
    )
    made = roofline(layer, [measured, *ceiling_results()], "row", "both")
    assert (made.peak, made.peak_label) == (1402, "matrix product 1402 TFLOP/s")
    # a matrix product is compared with the data sheet, not with itself
    product = one_cell("gemm", "bfloat16", 700.0)
    assert roofline(product, ceiling_results(), "row", "both").peak == 989
    strange = roofline(one_cell("gemm", "float16", 7.0, "a card"), [], "row", "both")
    assert strange.missing[0] == "the peak of this device in float16 is not known"


@given(st.floats(1e-6, 1e6), st.floats(1, 1e9))
def test_axis_ticks_are_round_and_within_the_axis(low, factor):
    found = ticks(low, low * factor)
    assert all(low * 0.999 <= at <= low * factor * 1.001 for at in found)
    assert len(found) <= 12


def test_csv_has_a_row_for_each_cell():
    rows = list(csv.DictReader(io.StringIO(as_csv(GRID))))
    assert len(rows) == len(GRID.cells)
    for row, cell in zip(rows, GRID.cells, strict=True):
        assert (row["contender"], row["direction"], int(row["seq"]), row["causal"]) == (
            cell.contender,
            cell.direction,
            cell.seq,
            "yes" if cell.causal else "no",
        )
        assert row["device"] == snapshots.H100 and row["torch_version"] == "2.13.0+cpu"
        if cell.backend:
            assert float(row["tflops"]) == pytest.approx(cell.tflops, rel=1e-4)
            assert float(row["median_ms"]) == pytest.approx(cell.timing.median, rel=1e-4)
            assert (float(row["sm_mhz"]), float(row["watts"]), row["passed"]) == (1755, 640, "yes")
        else:
            assert (row["tflops"], row["median_ms"], row["passed"]) == (
                "",
                "",
                "",
            ) and "refusal" in row["note"]


def test_a_result_without_cells_is_one_row():
    (row,) = csv.DictReader(io.StringIO(as_csv(snapshots.result(1))))
    assert (row["workload"], row["verdict"], row["backend"], row["seq"]) == (
        "attention",
        "pass",
        "flash",
        "1024",
    )
    assert row["causal"] == "no" and float(row["tflops"]) == 0.0852 and row["sm_mhz"] == ""


def test_csv_cells_are_safe_in_spreadsheets():
    spiked = replace(
        GRID, device='=HYPERLINK("http://x")', cells=(replace(GRID.cells[0], note="+1+1"),)
    )
    (row,) = csv.DictReader(io.StringIO(as_csv(spiked)))
    assert row["device"].startswith("'=") and row["note"] == "'+1+1"


def test_json_has_every_field():
    found = json.loads(as_json(GRID))
    assert len(found["cells"]) == len(GRID.cells) and found["cells"][0]["timing"]["p5"] > 0
    assert {"sensors", "trials", "note", "timing"} <= set(found["cells"][0])
    assert msgspec.json.decode(as_json(GRID), type=type(GRID)) == GRID


def test_the_ending_of_the_file_decides_its_format(tmp_path):
    for name in ("a.csv", "a.JSON"):
        save_result(done(GRID), tmp_path / name)
    assert (tmp_path / "a.csv").read_text() == as_csv(GRID) and (
        tmp_path / "a.JSON"
    ).read_bytes() == as_json(GRID)
    with pytest.raises(UserError, match=r"must end with .csv or .json"):
        save_result(done(GRID), tmp_path / "a.txt")
    with pytest.raises(UserError, match="cannot write"):
        save_result(done(GRID), tmp_path / "missing" / "a.csv")
    with pytest.raises(UserError, match="job 4 left no result"):
        save_result(job(4, Failed(NOW, NOW, "exit", 1)), tmp_path / "b.csv")


def test_the_card_of_a_grid_and_of_trials():
    made = summarize_result(done(GRID))
    assert made.headline == ("745", "TFLOP/s at best")
    facts = dict(made.facts)
    assert facts["Grid"].startswith("428 of 432 measured, ")
    assert facts["Not measured"] == "flash: cannot do this: it is a made-up refusal (4 cells)"
    trials = replace(
        GRID,
        cells=tuple(
            replace(x, trials=Trials(9, 0, 0.1, 0.2, 0.3, 0.71, 7)) for x in GRID.cells[:2]
        ),
    )
    assert summarize_result(done(trials)).headline == ("71 %", "of the error limit")
    broken = replace(
        trials, cells=(replace(GRID.cells[0], trials=Trials(9, 9, 1.0, 1.0, 1.0, BROKEN, 7)),)
    )
    assert summarize_result(done(broken)).headline[0] == "∞"


def test_the_form_estimates_the_whole_grid():
    form = WorkloadForm(find("compare"), "nvidia")
    assert (
        form.estimate()
        == "24 shapes, up to 2.20 TFLOP a call · 256 MiB of tensors · at most 4 min 00 s of timing"
    )
    form.set("direction", "both")
    assert form.estimate().startswith("48 shapes and directions, up to 5.50 TFLOP a call")
    form.set("kv_heads", "12")
    assert form.errors() == {
        "kv_heads": "32 heads cannot share 12 key/value heads: these must divide them"
    }
    form.set("kv_heads", "0")
    form.set("backends", "flash,flsh")
    assert "got 'flsh'" in form.errors()["backends"]
    form.set("backends", "flash, math")
    assert form.submission().spec.params["backends"] == "flash, math"
    form.set("seq", "512,1k")
    assert "whole number" in form.errors()["seq"]


def test_kinds_of_another_operation_stand_in_rows_of_their_own():
    like = Cell(
        1, 2, 2, 64, 32, causal=True, dtype="float32", direction="forward", contender="auto",
        backend="torch", operation="linear_attention",
    )  # fmt: skip
    cells = tuple(
        replace(like, form=kind, contender=contender, tflops=rate)
        for kind, rate in (("gdn", 2.0), ("ssd", 3.0))
        for contender in ("auto", "torch")
    )
    made = heat_map(cells, c.FASTEST, "forward", BY_NAME["TFLOP/s"])
    assert made.rows == ("gdn, d 32", "ssd, d 32") and made.of_tokens
    assert [[cell.text for cell in row] for row in made.cells] == [["2.00"], ["3.00"]]
    bars = compare(cells, c.row_of(cells[0]), "forward").groups[0].bars
    assert [bar.tflops for bar in bars] == [2.0, 2.0]
    products = [replace(cell, operation="gemm", head_dim=0, form="fp8-row") for cell in cells[:2]]
    made = heat_map(products, "auto", "forward", BY_NAME["TFLOP/s"])
    assert made.rows == ("fp8-row",) and not made.of_tokens


def test_parameters_of_other_operations_are_not_told():
    result = replace(
        GRID, workload="compare", params={"operation": "gemm", "sizes": "64", "seq": 1}
    )
    assert summarize_result(done(result)).params == "Operation gemm, Sizes 64"
    older = replace(GRID, workload="compare", params={"seq": "64", "causal": True})
    assert summarize_result(done(older)).params == "Sequence 64, Causal yes"


def test_jobs_of_workloads_are_told_apart_by_their_operation():
    compare_ = find("compare")
    assert compare_.job_name({"operation": "attention"}) == compare_.job_name({}) == "compare"
    assert compare_.job_name({"operation": "gemm", "sizes": "64"}) == "compare gemm"
    assert find("gemm").job_name({"size": "64"}) == "gemm"
