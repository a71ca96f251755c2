"""What can be done to jobs and the queue: cancel, move, hold, release, pause, resume, end a process. Each is planned, not done.

Every planner raises UserError, in one line, where it cannot be done as things are.
"""

from __future__ import annotations

from collections.abc import Sequence

from assistant import phrases
from assistant.facts.devices import label
from assistant.template.words import listed as enumerated
from assistant.tools.call import Call
from assistant.tools.find import ACTIVE, MOST, find_job, listed, meant, title
from assistant.tools.plan import Environment, Plan
from scheduler.client import Client
from scheduler.errors import NotFound, UserError
from scheduler.jobs import Job, Queued, Running, Starting, turn
from scheduler.queue.runner import TERM_GRACE_S
from scheduler.units import numbered

_TOGETHER = 50
"""Jobs that one proposal may end."""


def cancel(daemon: Client, call: Call) -> Plan:
    """One job, or all of a state."""
    if state := call.words("state"):
        return _cancel_all(daemon, state)
    job = meant(daemon, call, "cancel", ACTIVE)
    _refuse_ended(job)
    if isinstance(job.state, Running) and job.state.stopping:
        raise UserError(f"{title(job)} is being ended already")

    def act(daemon: Client, env: Environment) -> str:
        return f"Job {job.id} is being ended." if daemon.cancel(job.id).active else f"Job {job.id} was taken out of the queue."

    effect = " ".join(filter(None, (_ended(daemon, job), _progress(daemon, job), _dependents(daemon, job))))
    return Plan(
        f"Cancel {title(job)}", effect, _situation(job), act, (("Command", f"gpudeck cancel {job.id}"),), call.about(job.id), (job.id,)
    )


def _cancel_all(daemon: Client, state: str) -> Plan:
    states = {"queued": (Queued,), "running": (Starting, Running), "all": ACTIVE}.get(state)
    if states is None:
        raise UserError(f"jobs that are {state} have ended: there is nothing to cancel")
    found = [job for job in daemon.jobs(MOST, active=True) if isinstance(job.state, states)]
    if not found:
        raise UserError("no job waits or runs" if state == "all" else f"no job is {state}")
    if len(found) > _TOGETHER:
        raise UserError(f"{len(found)} jobs are more than I end at once ({_TOGETHER}). Pause the queue, or name a job")

    def act(daemon: Client, env: Environment) -> str:
        ended = [job.id for job in found if _cancelled(daemon, job.id)]
        return f"Cancelled: {numbered(ended)}." if ended else "All of them had ended already."

    waiting = sum(isinstance(job.state, Queued) for job in found)
    parts = [_counted(waiting, "waits and will never run", "wait and will never run")]
    parts.append(_counted(len(found) - waiting, f"runs and will be {_SIGNALS}", f"run and will be {_SIGNALS}"))
    effect = f"{listed(found)}. {'; '.join(filter(None, parts))}."
    effect = effect[:1].upper() + effect[1:]
    jobs = tuple(job.id for job in found)
    return Plan(f"Cancel {_jobs(len(found))}", effect, frozenset(map(_situation, found)), act, jobs=jobs)


def _cancelled(daemon: Client, job: int) -> bool:
    try:
        daemon.cancel(job)
    except UserError:
        return False  # it ended in this moment
    return True


def move(daemon: Client, call: Call) -> Plan:
    """Another place among those that wait."""
    job = meant(daemon, call, "move", (Queued,))
    if not isinstance(job.state, Queued):
        raise UserError(f"{title(job)} is {job.status}: only jobs that wait have a place in the queue")
    line = sorted((j for j in daemon.jobs(MOST, active=True) if isinstance(j.state, Queued)), key=turn)
    others = [other for other in line if other.id != job.id]
    if not others:
        raise UserError(f"{title(job)} is the only one that waits: it is next already")
    place = call.words("place") or "first"
    beside, after = _beside(daemon, call, place, others)
    at = next(i for i, other in enumerate(others) if other.id == beside.id) + after
    if [other.id for other in line].index(job.id) == at:
        raise UserError(f"{title(job)} stands there already")

    def act(daemon: Client, env: Environment) -> str:
        moved = daemon.move(job.id, after=beside.id) if after else daemon.move(job.id, before=beside.id)
        return f"Job {moved.id} stands {'after' if after else 'before'} job {beside.id} now."

    where = f"{'right after' if after else 'right before'} {title(beside)}"
    ahead = f"{_jobs(at)} would stand before it" if at else "no job would stand before it"
    rank = f" It takes priority {beside.spec.priority} instead of {job.spec.priority}." if beside.spec.priority != job.spec.priority else ""
    effect = f"{_upper(title(job))} waits; it would stand {where}: {ahead}, of {_jobs(len(line))} that wait.{rank}"
    command = f"gpudeck move {job.id} {'--after' if after else '--before'} {beside.id}"
    return Plan(f"Move {title(job)}", effect, (job.id, beside.id, after), act, (("Command", command),), call.about(job.id), (job.id,))


def _beside(daemon: Client, call: Call, place: str, others: Sequence[Job]) -> tuple[Job, bool]:
    """The job to stand beside, and whether after it."""
    if place in ("first", "last"):
        return (others[0], False) if place == "first" else (others[-1], True)
    named = call.job("other")
    if named is None:
        raise UserError(f"say which job it is to stand {place}: {listed(others)}")
    other = find_job(daemon, named)
    if other.id not in {known.id for known in others}:
        raise UserError(f"{title(other)} does not wait, or is the job itself: there is no place {place} it")
    return other, place == "after"


def pause(daemon: Client, call: Call) -> Plan:
    """The queue; or one job, which is held."""
    if call.job() is not None:
        return _hold(daemon, call, True)
    snapshot = daemon.snapshot()
    if snapshot.paused:
        raise UserError("the queue is paused already")
    active = daemon.jobs(MOST, active=True)
    waiting = sum(isinstance(job.state, Queued) for job in active)

    def act(daemon: Client, env: Environment) -> str:
        daemon.pause(True)
        return "The queue is paused: nothing new starts."

    effect = f"Nothing new will start until the queue is resumed. {_upper(_going(len(active) - waiting, waiting))}"
    return Plan("Pause the queue", effect, "goes on", act, (("Command", "gpudeck pause"),))


def resume(daemon: Client, call: Call) -> Plan:
    """The queue; or one job that is held."""
    if call.job() is not None:
        return _hold(daemon, call, False)
    if not daemon.snapshot().paused:
        raise UserError("the queue is not paused")
    waiting = sum(isinstance(job.state, Queued) for job in daemon.jobs(MOST, active=True))

    def act(daemon: Client, env: Environment) -> str:
        daemon.pause(False)
        return "The queue goes on."

    told = f"{_jobs(waiting)} that {'waits' if waiting == 1 else 'wait'} may start" if waiting else "No job waits"
    return Plan("Resume the queue", f"{told}, as soon as there is room.", "paused", act, (("Command", "gpudeck resume"),))


def _hold(daemon: Client, call: Call, held: bool) -> Plan:
    job = meant(daemon, call, "hold" if held else "release", (Queued,))
    if not isinstance(job.state, Queued):
        raise UserError(f"{title(job)} is {job.status}: only jobs that wait can be held and released")
    if job.spec.hold == held:
        raise UserError(f"{title(job)} is {'held already' if held else 'not held'}")

    def act(daemon: Client, env: Environment) -> str:
        daemon.hold(job.id, held)
        return f"Job {job.id} is held." if held else f"Job {job.id} may start."

    effect = f"{_upper(title(job))} waits; it {'will not start until it is released' if held else 'may start as soon as there is room'}."
    verb = "pause" if held else "resume"
    details = (("Command", f"gpudeck {verb} {job.id}"),)
    return Plan(f"{'Hold' if held else 'Release'} {title(job)}", effect, (job.id, held), act, details, call.about(job.id), (job.id,))


def kill(daemon: Client, call: Call) -> Plan:
    """End a process that uses a GPU."""
    pid = call.whole("pid")
    if pid is None:
        raise UserError("say which process to end by its pid. See: gpudeck processes")
    process = next((p for detail in daemon.details() for p in detail.processes if p.pid == pid), None)
    if process is None:
        raise NotFound(f"process {pid} uses no GPU. See: gpudeck processes")
    found = process

    def act(daemon: Client, env: Environment) -> str:
        daemon.kill(found)
        return f"Process {pid} has ended."

    name = phrases.plain(found.name, 60)
    whose = f" of {phrases.plain(found.user, 40)}" if found.user else ""
    job = f" It belongs to job {found.job}, which is cancelled." if found.job is not None else ""
    effect = f"Process {pid} ({name}){whose} will be {_SIGNALS}. What it has not saved is lost.{job}"
    return Plan(f"End process {pid} ({name})", effect, (pid, found.ticks), act, (("Command", f"gpudeck kill {pid}"),))


_SIGNALS = f"sent SIGTERM, then SIGKILL after {TERM_GRACE_S:.0f} s"


def _refuse_ended(job: Job) -> None:
    if not job.active:
        raise UserError(f"{title(job)} has ended already: {job.status}")


def _ended(daemon: Client, job: Job) -> str:
    """What becomes of the job itself."""
    if isinstance(job.state, Queued):
        return f"{_upper(title(job))} waits since {phrases.clock(job.submitted)}; it will be taken out of the queue and never run."
    assert isinstance(job.state, Starting | Running)
    labels = {state.device.id: label(state.device) for state in daemon.snapshot().devices}
    where = job.spec.where or enumerated([labels.get(device, device) for device in job.state.devices])
    on = f" {'in' if job.spec.where else 'on'} {where}" if where else ""
    return f"{_upper(title(job))} is running since {phrases.clock(job.state.at)}{on}; all of its processes will be {_SIGNALS}."


def _progress(daemon: Client, job: Job) -> str:
    progress = job.state.progress if isinstance(job.state, Running) else None
    return f"It is {100 * progress.done / progress.total:.0f} % through." if progress is not None and progress.total > 0 else ""


def _dependents(daemon: Client, job: Job) -> str:
    """Those that are cancelled with it, as they wait for its success."""
    found, known = list[int](), {job.id}
    for other in sorted(daemon.jobs(MOST, active=True), key=lambda j: j.id):
        if known & set(other.spec.after):
            known.add(other.id)
            found.append(other.id)
    if not found:
        return ""
    return f"{_upper(numbered(found))} {'waits' if len(found) == 1 else 'wait'} for its success and will be cancelled, too."


def _situation(job: Job) -> tuple[object, ...]:
    """What the effect of ending it depends on."""
    state = job.state
    return (job.id, "queued" if isinstance(state, Queued) else state.attempt if isinstance(state, Starting | Running) else job.status)


def _going(running: int, waiting: int) -> str:
    runs = f"{_jobs(running)} {'runs' if running == 1 else 'run'} on" if running else "no job runs"
    return f"{runs}; {_jobs(waiting) if waiting else 'none'} {'waits' if waiting <= 1 else 'wait'}."


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}" if count else ""


def _jobs(count: int) -> str:
    return f"{count} {'job' if count == 1 else 'jobs'}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
