import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.accel.workloads.catalog import WORKLOADS, find
from gpudeck.app.settings.form import SETTINGS, change, text_of
from gpudeck.app.workloads.form import WorkloadForm
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.verbs.control import Configure


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.name)
@pytest.mark.parametrize("kind", ["cpu", "nvidia", "replay"])
def test_the_defaults_can_be_sent(workload, kind):
    form = WorkloadForm(workload, kind)
    assert form.errors() == {}
    assert form.estimate()
    request = form.submission()
    assert request.spec.params == {p.name: p.default_for(kind) for p in workload.params}
    assert request.spec.argv[1:4] == ("-P", "-m", workload.module)
    gpus = 2 if (workload.name, kind) == ("distributed", "nvidia") else 1
    assert (request.spec.gpus, request.spec.workload) == (gpus, workload.name)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seq", "", "whole number"),
        ("seq", "12.5", "whole number"),
        ("seq", "0", "from 1 to"),
        ("seq", "99999999", "from 1 to"),
        ("seconds", "nan", "a number"),
        ("dtype", "float8", "one of bfloat16"),
        ("kv_heads", "3", "must divide"),
    ],
)
def test_errors_are_reported_for_their_field(name, value, message):
    form = WorkloadForm(find("attention"), "nvidia")
    form.set(name, value)
    assert list(form.errors()) == [name]
    assert message in form.errors()[name]
    assert form.estimate() is None
    with pytest.raises(ValueError, match=r"whole|number|one of|divide"):
        form.submission()


@given(st.text())
def test_no_text_breaks_the_form(text):
    form = WorkloadForm(find("attention"), "cpu")
    for name in form.values:
        form.set(name, text)
    assert form.errors() or form.estimate()


@pytest.mark.parametrize("dtype", find("gemm").params[1].choices)
def test_matrices_of_every_type_have_their_size(dtype):
    form = WorkloadForm(find("gemm"), "nvidia")
    form.set("dtype", dtype)
    size = "256" if dtype.startswith("fp8-") else "768" if dtype == "float32" else "384"
    assert form.estimate() == f"1.10 TFLOP a call · {size} MiB of matrices"


def test_the_estimate_agrees_with_the_workload():
    form = WorkloadForm(find("attention"), "nvidia")
    assert form.estimate() == "2.20 TFLOP a call · 256 MiB of tensors"
    form.set("causal", "yes")
    assert form.estimate().startswith("1.10 TFLOP")
    form.set("kv_heads", "4")
    assert "160 MiB of tensors" in form.estimate()
    form.set("backend", "math")
    assert form.estimate().endswith("8.0 GiB of scores")


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_the_form_shows_the_current_value(setting):
    settings = Settings()
    assert change(settings, setting, text_of(settings, setting)) is None


def test_every_setting_is_in_the_form():
    elsewhere = {"clusters", "hosts", "limits", "reservations"}
    assert {s.name for s in SETTINGS} == set(Settings.__struct_fields__) - elsewhere, (
        "those are named by: gpudeck cluster add"
    )


def test_a_change_is_one_request():
    by_name = {s.name: s for s in SETTINGS}
    assert change(Settings(), by_name["telemetry_hz"], " 5 ") == Configure({"telemetry_hz": 5.0})
    assert change(Settings(), by_name["theme"], "dark") == Configure({"theme": "dark"})


@pytest.mark.parametrize(
    ("name", "text"),
    [("telemetry_hz", "fast"), ("telemetry_hz", "11"), ("idle_dwell_s", "-1"), ("theme", "pink")],
)
def test_a_wrong_setting_is_explained(name, text):
    setting = next(s for s in SETTINGS if s.name == name)
    with pytest.raises(UserError, match=r"number|setting"):
        change(Settings(), setting, text)
