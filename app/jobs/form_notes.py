"""What the form of a job says below its fields. Free of Qt."""

from __future__ import annotations

from collections.abc import Mapping

from gpudeck.app.format.free_devices import free_devices, free_memory
from gpudeck.app.format.values import device_label, memory
from gpudeck.app.jobs.form import JobForm
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.language.numbers import capitalized
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot

NO_GPU = tr_noop("No GPU: the command sees none.")
Notes = dict[str, tuple[str, str]]
"""A text for each field with one, and its meaning: failed, warm or muted."""


def form_notes(
    errors: Mapping[str, str], warnings: Mapping[str, str], form: JobForm, snapshot: Snapshot | None
) -> Notes:
    """Return what is wrong with each field, else what will not be found, else what is free."""
    told = {} if form.values["where"] or snapshot is None else _free(form, snapshot)
    if form.without_gpu:
        told["gpus"] = tr(NO_GPU)
    return (
        {name: (text, "muted") for name, text in told.items()}
        | {name: (text, "warm") for name, text in warnings.items()}
        | {name: (capitalized(text), "failed") for name, text in errors.items()}
    )


def _free(form: JobForm, snapshot: Snapshot) -> dict[str, str]:
    """Return which GPUs are free, and where most memory is free for a job that shares one."""
    wanted = form.values["gpu_type"].strip()
    only = tr("Only {gpu}", gpu=wanted) if wanted else ""
    found = {"gpus": " · ".join(filter(None, (only, free_devices(snapshot).text)))}
    if form.values["memory"]:
        free = [(size, s) for s in _gpus(snapshot) if (size := free_memory(s, snapshot.jobs))]
        size, state = max(free, key=lambda pair: pair[0], default=(0.0, None))
        found["memory"] = (
            tr("Reserved on each GPU; no GPU has memory free now")
            if state is None
            else tr(
                "Reserved on each GPU; up to {size} are free now, on {gpu}",
                size=memory(size),
                gpu=device_label(state.device),
            )
        )
    return found


def has_gpus(snapshot: Snapshot) -> bool:
    """Return whether the machine has a GPU that can run jobs."""
    return bool(_gpus(snapshot))


def _gpus(snapshot: Snapshot) -> list[DeviceState]:
    states = (s for s in snapshot.devices if not s.device.host)
    return [state for state in states if state.device.kind not in ("cpu", "replay")]
