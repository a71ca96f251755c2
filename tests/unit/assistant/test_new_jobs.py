"""Test orders for new jobs, for later, and for `it`: no word of them is lost."""

from __future__ import annotations

from datetime import datetime

import pytest

from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import Understood, understand
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.assistant.tools.submit import with_flags

NOW = datetime(2026, 11, 25, 9, 30).timestamp()
KNOWN = Known(("train", "eval", "finetune"), ("nightly",))
NOTHING = State()
TWO_RUN = State((4, 5), (), Query("jobs", states=("running",)), "job",
                before="ask jobs states=running: what is running")  # fmt: skip


def read(request: str, state: State = NOTHING) -> Understood:
    return understand(request, KNOWN, state, NOW, shipped_reader())


SUBMITTED = {
    "queue up python eval.py after job 3 finishes": ("python eval.py", {"after": "3"}),
    "after job 3 and 4 are done, run python eval.py please": ("python eval.py", {"after": "3,4"}),
    "submit python eval.py after train": ("python eval.py", {"after": "train"}),
    "run python eval.py when job 3 finishes no matter what": (
        "python eval.py", {"after_any": "3"}),
    "starte python train.py erst wenn job 3 fertig ist": ("python train.py", {"after": "3"}),
    "lance python eval.py une fois que le job 3 est terminé": ("python eval.py", {"after": "3"}),
    "ejecuta python eval.py cuando termine el job 3": ("python eval.py", {"after": "3"}),
    "run python train.py --lr 3e-4 on 2 gpus with a 4h time limit": (
        "python train.py --lr 3e-4", {"gpus": "2", "timeout": "4h"}),
    "lance python train.py sur 2 gpus, 4h max, groupe nuit, pas avant 22h": (
        "python train.py",
        {"gpus": "2", "timeout": "4h", "group": "nuit", "begin": "2026-11-25 22:00"}),
    "starte python train.py auf 2 gpus nach job 7, höchstens 3 stunden, priorität 5": (
        "python train.py", {"gpus": "2", "after": "7", "timeout": "3h", "priority": "5"}),
    "encola python train.py en 2 gpus después del job 3, máximo 4h": (
        "python train.py", {"gpus": "2", "after": "3", "timeout": "4h"}),
    "queue python x.py in group nightly, retry up to 3 times if it fails": (
        "python x.py", {"group": "nightly", "retries": "3"}),
    "run python eval.py tomorrow at 8 with 20 GB of vram": (
        "python eval.py", {"begin": "2026-11-26 08:00", "memory": "20gb"}),
    "run python eval.py in 2 hours named quick-eval": (
        "python eval.py", {"begin": "+2h", "name": "quick-eval"}),
    "kick off ./run.sh -n 4 with 2 gpus and 24gb each": (
        "./run.sh -n 4", {"gpus": "2", "memory": "24gb"}),
    "run tokenize_events.py gpu1": (
        "tokenize_events.py", {"gpus": "1", "gpu_type": "GPU 1"}),
    "vazy lance python test_vit.py": ("python test_vit.py", {}),
    "El comando es bash run_bench.sh, una GPU, por favor no mas que 2 horas": (
        "bash run_bench.sh", {"gpus": "1", "timeout": "2h"}),
    "Submitte bitte: torchrun train.py --config moe.yaml, 2 GPUs, Timelimit 6h, Name moe-smoke, "
    "soll erst nach Job 10 loslaufen": (
        "torchrun train.py --config moe.yaml",
        {"gpus": "2", "timeout": "6h", "name": "moe-smoke", "after": "10"}),
    "run python eval.py tonight": ("python eval.py", {"begin": "2026-11-25 20:00"}),
    "run python a.py on gpu 3": ("python a.py", {"gpus": "1", "gpu_type": "GPU 3"}),
    'can you start python train.py --name "my run" at 8pm?': (
        'python train.py --name "my run"', {"begin": "2026-11-25 20:00"}),
}  # fmt: skip


@pytest.mark.parametrize(("request_text", "wanted"), SUBMITTED.items())
def test_what_is_said_about_a_new_job_is_an_option(
    request_text: str, wanted: tuple[str, dict[str, str]]
) -> None:
    command, options = wanted
    assert read(request_text).request == Order("submit", command=command, options=options)


@pytest.mark.parametrize(
    "request_text",
    [
        "queue up sh run.sh once job 3 fails",
        "run python a.py on gpus 3 and 4",
        "run python train.py and then python eval.py",
        "run python train.py && python eval.py",
        "run python eval.py by 18:00",
        "run python eval.py for 2 hours",
        "run python x.py on all gpus unless bench is running",
        "starte python x.py, aber nur wenn gpu 2 kalt ist",
        "run the gemm workload overnight",
    ],
)
def test_a_new_job_with_a_word_that_has_no_place_is_not_proposed(request_text: str) -> None:
    found = read(request_text)
    assert found.request is None and not found.choices
    assert found.refusal is not None and found.refusal.words


def test_the_time_of_a_command_is_its_own() -> None:
    found = read("run python x.py --time 4h --after 3").request
    assert found == Order("submit", command="python x.py --time 4h --after 3")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [("--lr 1e-5", "python x.py --lr 1e-5 --amp -b 4"), ("--amp", "python x.py --lr 3 --amp -b 4"),
     ("--lr=1e-5", "python x.py --lr 1e-5 --amp -b 4"), ("-b 8", "python x.py --lr 3 --amp -b 8"),
     ("--seed 3 --fp8", "python x.py --lr 3 --amp -b 4 --seed 3 --fp8")],
)  # fmt: skip
def test_a_flag_of_a_command_gets_another_value(changes: str, wanted: str) -> None:
    command = ["python", "x.py", "--lr", "3", "--amp", "-b", "4"]
    assert with_flags(command, changes) == tuple(wanted.split())
    assert with_flags(["a", "--lr=3"], "--lr 5") == ("a", "--lr=5")


def test_a_job_is_run_again_with_changes() -> None:
    found = read("retry job 7 but with 24 GB and 2 gpus").request
    assert found == Order("retry", jobs=(7,), options={"gpus": "2", "memory": "24gb"})
    assert read("retry 3").request == Order("retry", jobs=(3,))


@pytest.mark.parametrize("request_text", ["cancel it", "brich ihn ab", "annule-le", "cancélalo"])
def test_it_after_several_jobs_asks_which_one(request_text: str) -> None:
    found = read(request_text, TWO_RUN)
    assert found.request is None
    assert found.choices == (Order("cancel", jobs=(4,)), Order("cancel", jobs=(5,)))


def test_them_after_several_jobs_are_all_of_them() -> None:
    assert read("cancel both", TWO_RUN).request == Order("cancel", jobs=(4, 5))


BOOKED = {
    "keep the gpu free from 20:00 to 23:00": (
        (), {"begin": "2026-11-25 20:00", "until": "2026-11-25 23:00"}),
    "halte die karte 3 frei von 20 bis 23 uhr": (
        (3,), {"begin": "2026-11-25 20:00", "until": "2026-11-25 23:00"}),
    "réserve la carte 2 jusqu'à 18h": ((2,), {"until": "2026-11-25 18:00"}),
    "keep gpus 1 and 2 free for 2 hours": ((1, 2), {"until": "+2h"}),
}  # fmt: skip


@pytest.mark.parametrize(("request_text", "wanted"), BOOKED.items())
def test_a_gpu_is_kept_free_for_a_time(
    request_text: str, wanted: tuple[tuple[int, ...], dict[str, str]]
) -> None:
    devices, options = wanted
    found = read(request_text)
    offered = found.request or found.choices[0]  # where it is not sure, the person chooses
    assert offered == Order("book", devices=devices, options=options)


@pytest.mark.parametrize(
    "request_text",
    ["stop all jobs at 20:00", "brich alle jobs um 20 uhr ab", "cancel job 3 at 8pm"],
)
def test_an_order_for_another_time_is_refused(request_text: str) -> None:
    found = read(request_text)
    assert found.request is None and not found.choices
    assert found.refusal is not None and found.refusal.problem == "time"


@pytest.mark.parametrize(
    "request_text",
    ["tell me when job 8 fails", "let me know when train is done",
     "préviens-moi quand 8 se termine",
     "sag bescheid wenn job 8 fertig ist", "avísame cuando termine el 8"],
)  # fmt: skip
def test_news_of_what_happens_later_is_refused(request_text: str) -> None:
    assert read(request_text).declined == "order notify"


def test_a_question_about_the_end_of_a_job_is_none_of_news() -> None:
    assert read("tell me when job 8 will be done").request == Query("jobs", "estimate", jobs=(8,))


@pytest.mark.parametrize(
    "request_text",
    [
        "please do not start python train.py on 2 gpus",
        "I would never run python train.py on gpu 1",
        "starte python train.py nicht",
        "bitte starte python train.py auf keinen Fall",
        "ne lance pas python train.py sur 2 gpus",
        "no ejecutes python train.py",
        "do not book gpu 1 tomorrow from 9 to 12",
        "nicht gpu 1 reservieren morgen 9-12",
        "ne réserve pas le gpu 1 demain de 9 à 12h",
        "no reserves la gpu 1 mañana de 9 a 12",
        "do not set the temperature alert to 80",
        "do not limit group nightly to 2 jobs",
        "don't free gpu 1",
    ],
)
def test_what_is_forbidden_is_not_proposed(request_text: str) -> None:
    found = read(request_text)
    assert found.request is None and not found.choices
