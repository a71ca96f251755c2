"""Test orders for new jobs, for later, and for `it`: no word of them is lost."""

from __future__ import annotations

from datetime import datetime
from typing import cast

import pytest

from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import Understood, understand
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.reader.reading import Reader, shipped_reader
from gpudeck.assistant.tools.submit import with_flags
from tests.unit.assistant.test_follow_ups import _Labelled

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
    "submit python train.py as preemptible": ("python train.py", {"preemptible": "yes"}),
    "submit python train.py, it may be interrupted": ("python train.py", {"preemptible": "yes"}),
    "submit python train.py --amp, may be evicted": (
        "python train.py --amp", {"preemptible": "yes"}),
    "starte python train.py, unterbrechbar": ("python train.py", {"preemptible": "yes"}),
    "starte python train.py, darf unterbrochen werden": (
        "python train.py", {"preemptible": "yes"}),
    "lance python train.py, il peut être interrompu": ("python train.py", {"preemptible": "yes"}),
    "lance python train.py en mode préemptible": ("python train.py", {"preemptible": "yes"}),
    "ejecuta python train.py, se puede suspender": ("python train.py", {"preemptible": "yes"}),
    "lanza python train.py como interrumpible": ("python train.py", {"preemptible": "yes"}),
    "submit python train.py as preemptible after job 3, not before 22:00, limit 4h, 2 retries, "
    "priority 5, group nightly, name foo, 2 gpus, 24 GB each": (
        "python train.py",
        {"preemptible": "yes", "after": "3", "begin": "2026-11-25 22:00", "timeout": "4h",
         "retries": "2", "priority": "5", "group": "nightly", "name": "foo", "gpus": "2",
         "memory": "24gb"}),
    "run python a.py on the 4090": ("python a.py", {"gpu_type": "4090"}),
    "run python a.py on the RTX 4090": ("python a.py", {"gpu_type": "RTX 4090"}),
    "starte python a.py auf der RTX 4090": ("python a.py", {"gpu_type": "RTX 4090"}),
    "lance python a.py sur une A100": ("python a.py", {"gpu_type": "A100"}),
    "ejecuta python a.py en la RTX 4090": ("python a.py", {"gpu_type": "RTX 4090"}),
    "submit python a.py on 1 December at 18:00": ("python a.py", {"begin": "2026-12-01 18:00"}),
    "starte python a.py am 1.12. um 18 Uhr": ("python a.py", {"begin": "2026-12-01 18:00"}),
    "lance python a.py le 1er décembre à 18h": ("python a.py", {"begin": "2026-12-01 18:00"}),
    "lanza python a.py el 1 de diciembre a las 18": (
        "python a.py", {"begin": "2026-12-01 18:00"}),
    "submit python a.py, timelimit 8h, and if it crashes retry twice": (
        "python a.py", {"timeout": "8h", "retries": "2"}),
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
    "keep gpu 2 free until 1 December 2026": ((2,), {"until": "2026-12-01"}),
    "halte gpu 2 bis 1.12. frei": ((2,), {"until": "2026-12-01"}),
    "garde le gpu 2 libre jusqu'au 1er décembre": ((2,), {"until": "2026-12-01"}),
    "mantén libre la gpu 2 hasta el 1 de diciembre": ((2,), {"until": "2026-12-01"}),
    "book gpu 2 from 1/12/2026 18:00 until 2/12/2026 8:00": (
        (2,), {"begin": "2026-12-01 18:00", "until": "2026-12-02 08:00"}),
    "keep gpu 2 free until the 16th": ((2,), {"until": "2026-12-16"}),
    "halte gpu 2 frei bis zum 16.": ((2,), {"until": "2026-12-16"}),
    "garde le gpu 2 libre jusqu'au 16": ((2,), {"until": "2026-12-16"}),
    "mantén libre la gpu 2 hasta el 16": ((2,), {"until": "2026-12-16"}),
    "book gpu 2 del 4 al 6 de febrero": (
        (2,), {"begin": "2027-02-04", "until": "2027-02-06"}),
    "reserve gpu 1 for friday": ((1,), {"begin": "2026-11-27", "until": "2026-11-28"}),
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


@pytest.mark.parametrize(
    ("request_text", "verb"),
    [("free gpu 2 until 18:00", "book"), ("mach gpu 2 frei bis 18 uhr", "book"),
     ("libère le gpu 2 jusqu'à 18h", "book"), ("libera la gpu 2 hasta las 18", "free")],
)  # fmt: skip
def test_two_orders_that_keep_the_same_gpu_free_are_no_choice(request_text: str, verb: str) -> None:
    wanted = Order(verb, devices=(2,), options={"until": "2026-11-25 18:00"})
    assert read(request_text).request == wanted


@pytest.mark.parametrize(
    ("request_text", "until"),
    [("réserve le gpu 3 le 12", "2026-12-13"), ("réserve le gpu 3 jusqu'au 12", "2026-12-12")],
)
def test_a_day_is_the_end_of_a_booking_only_behind_a_word_for_an_end(
    request_text: str, until: str
) -> None:
    begin = {} if "jusqu" in request_text else {"begin": "2026-12-12"}
    wanted = Order("book", devices=(3,), options={**begin, "until": until})
    assert read(request_text).request == wanted


BOOKING = Order("book", devices=(3,),
                options={"begin": "2026-11-28 09:00", "until": "2026-11-28 12:00"})  # fmt: skip


@pytest.mark.parametrize(
    ("request_text", "field"),
    [("an hour later", "from"), ("eine Stunde später", "from"), ("une heure plus tard", "until"),
     ("for 4 hours longer", "duration"), ("2 horas más", "duration")],
)  # fmt: skip
def test_a_booking_is_never_moved_to_another_day_by_a_length_of_time(
    request_text: str, field: str
) -> None:
    letters = request_text.removeprefix("for ").removesuffix(" longer").removesuffix(" más")
    reader = cast(Reader, _Labelled("order book", spans={field: letters}))
    found = understand(request_text, KNOWN, State(order=BOOKING), NOW, reader)
    assert found.request is None and not found.choices


def test_a_booking_of_another_day_keeps_its_hours() -> None:
    reader = cast(Reader, _Labelled("order book", spans={"from": "the 12th"}))
    found = understand("on the 12th", KNOWN, State(order=BOOKING), NOW, reader)
    assert (found.request or found.choices[0]) == Order("book", devices=(3,), options={
        "begin": "2026-12-12 09:00", "until": "2026-12-12 12:00"})  # fmt: skip


@pytest.mark.parametrize(
    "request_text",
    ["drain gpu 3 and undrain gpu 4", "cancel job 7 and hold job 8", "limit sweep to 3 and "
     "nightly to 1", "limit sweep by 2", "limit sweep to one more", "cancel 7 jobs",
     "move job 7 two places up", "job 7 should have priority over 8",
     "raise the priority of job 7 by 5", "retry job 7 not with more memory",
     "cancel everything except on gpu 3", "cancel all jobs but those on gpu 5",
     "brich alle Jobs ab außer denen auf GPU 3", "cancel job 7 after 8",
     "reserve gpu 2 every monday", "reserve gpu 2 for 2 hours in 2 hours", "cancel booking 1",
     "cancel job 7 on node2"],
)  # fmt: skip
def test_an_order_is_never_for_less_or_other_than_it_says(request_text: str) -> None:
    known = Known(("train", "eval"), ("sweep", "nightly"))
    found = understand(request_text, known, State(), NOW, shipped_reader())
    assert found.request is None and not any(isinstance(one, Order) for one in found.choices)


@pytest.mark.parametrize("request_text", ["brich 13 oder 14 ab", "cancel either 13 or 14"])
def test_one_of_two_jobs_is_chosen_by_the_person(request_text: str) -> None:
    found = read(request_text)
    assert found.request is None
    assert found.choices == (Order("cancel", jobs=(14,)), Order("cancel", jobs=(13,)))


@pytest.mark.parametrize(
    ("request_text", "verb", "begin"),
    [("relance le 14 dans 2 heures", "retry", "+2h"),
     ("start job 14 in 2 hours", "edit", "+2h"),
     ("job 14 shall start on 12.12.", "edit", "2026-12-12")],
)  # fmt: skip
def test_a_job_begins_later_and_has_no_limit_of_that_length(
    request_text: str, verb: str, begin: str
) -> None:
    found = read(request_text)
    meant = found.request or found.choices[0]  # where it is not sure, the person chooses
    assert meant == Order(verb, jobs=(14,), options={"begin": begin})


def test_the_gpu_of_a_retried_job_is_no_job_that_is_left_out() -> None:
    assert read("retry job 3 but on gpu 5").request == Order(
        "retry", jobs=(3,), options={"gpu_type": "GPU 5"}
    )


TAKEN_BACK = {
    "drain GPU 0. Oops, I meant drain GPU 1": Order("drain", devices=(1,)),
    "drain gpu 0. Ups, ich meinte drain gpu 1": Order("drain", devices=(1,)),
    "vide le gpu 0. Oups, je voulais dire le gpu 1": Order("free", devices=(1,)),
    "cancel job 7; wait, cancel job 8": Order("cancel", jobs=(8,)),
    "cancel job 7, no wait, 8": Order("cancel", jobs=(8,)),
    "cancel 7, no 8": Order("cancel", jobs=(8,)),
    "annule le job 7. Pardon, annule le job 8": Order("cancel", jobs=(8,)),
}


@pytest.mark.parametrize(("request_text", "meant"), TAKEN_BACK.items())
def test_an_order_that_is_taken_back_is_never_for_both_targets(
    request_text: str, meant: Order
) -> None:
    found = read(request_text)
    assert found.request is None and found.choices[0] == meant
    assert all(len((*one.jobs, *one.devices)) == 1 for one in found.choices
               if isinstance(one, Order))  # fmt: skip


@pytest.mark.parametrize(
    "request_text",
    ["brich job 7 ab; halt, brich job 8 ab", "cancela el job 7; espera, cancela el job 8",
     "hold job 7 until 18:00, no, 19:00", "retry 7 with 40 GB and 8 with 20 GB"],
)  # fmt: skip
def test_two_orders_or_two_values_of_one_are_refused(request_text: str) -> None:
    found = read(request_text)
    assert found.request is None and found.refusal is not None and not found.choices


@pytest.mark.parametrize(
    "request_text",
    ["cancel 7 and 8", "brich 7 und 8 ab", "annule le 7 et le 8", "cancela el 7 y el 8",
     "cancel job 7, and job 8, too", "cancel jobs 7 to 8"],
)  # fmt: skip
def test_a_list_of_jobs_is_one_order(request_text: str) -> None:
    assert read(request_text).request == Order("cancel", jobs=(7, 8))


@pytest.mark.parametrize(
    ("request_text", "name"),
    [("kill the process python3.11 on GPU 0", "python3.11"),
     ("beende den prozess python3.11 auf gpu 0", "python3.11"),
     ("tue le processus python3.11 sur le gpu 0", "python3.11"),
     ("mata el proceso python3.11 en la gpu 0", "python3.11"),
     ("kill process train_v2.1 on gpu 0", "train_v2.1")],
)  # fmt: skip
def test_a_process_is_named_with_its_dots_and_digits(request_text: str, name: str) -> None:
    found = read(request_text)
    offered = found.request or found.choices[0]  # where it is not sure, the person chooses
    assert offered == Order("kill", devices=(0,), text=name)


@pytest.mark.parametrize("request_text", ["run " + "/" * 200, "submit `...`", "lance -- //"])
def test_a_command_has_a_letter_or_a_digit(request_text: str) -> None:
    found = read(request_text)
    assert not isinstance(found.request, Order) and not found.choices


@pytest.mark.parametrize(
    "request_text",
    ["bump 12 so it goes right after 10", "zieh 12 direkt hinter 10",
     "passe le 12 juste après le 10", "pon el 12 justo después del 10"],
)  # fmt: skip
def test_a_place_right_after_another_job_is_one(request_text: str) -> None:
    found = read(request_text)
    offered = found.request or found.choices[0]  # where it is not sure, the person chooses
    assert offered == Order("move", jobs=(12,), place="after", beside=10)


@pytest.mark.parametrize(
    "request_text",
    ["cancel job 7 if possible", "brich 7 ab wenn möglich", "annule le 7 si possible",
     "cancela el 7 si se puede", "cancel job 7, if you can"],
)  # fmt: skip
def test_a_courtesy_is_no_condition(request_text: str) -> None:
    assert read(request_text).request == Order("cancel", jobs=(7,))


@pytest.mark.parametrize(
    "request_text",
    ["cancel job 7 if it's ok with ben", "cancel job 7 if you can't reach me",
     "annule le 7 s'il échoue", "brich 7 ab wenn es geht schief"],
)  # fmt: skip
def test_a_condition_that_begins_like_a_courtesy_is_one(request_text: str) -> None:
    found = read(request_text)
    assert found.request is None and not found.choices


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
