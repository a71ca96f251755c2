"""A machine with one GPU, whose driver is a stand-in, and jobs that leave it and come back."""

from __future__ import annotations

from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Job, suspension_of
from tests.integration.deck import kill_daemon, ready, running
from tests.integration.test_suspend import SIZE
from tests.support import eventually

TRAINING = """
echo $SIZE > $FAKE_GPU/$$.size
echo $SIZE > $FAKE_GPU/$$
while :; do echo step; sleep 0.02; done
"""


class Machine:
    """A daemon with one GPU, whose memory the stand-in of the driver moves."""

    def __init__(self, folder: Path, deck: Client) -> None:
        self.folder, self.deck = folder, deck
        self.uuid = deck.snapshot().devices[0].device.id
        self.write("uuid", self.uuid.removeprefix("GPU-").replace("-", ""))

    def write(self, name: str, text: object) -> None:
        (self.folder / name).write_text(f"{text}\n")

    def train(self, **options: object) -> Job:
        """Start a job that holds memory of the GPU and prints a line after each step."""
        script = TRAINING.replace("$SIZE", str(SIZE))
        job = self.deck.submit(["sh", "-c", script], gpus=1, **options).job  # type: ignore[arg-type]
        running(self.deck, job)
        eventually(lambda: self.users(job))
        return job

    def users(self, job: Job) -> list[int]:
        """Return the processes of a job that NVML lists."""
        listed = (p for d in self.deck.details() for p in d.processes)
        return [process.pid for process in listed if process.job == job.id]

    def off(self, job: Job) -> bool:
        return (found := suspension_of(self.deck.job(job.id))) is not None and found.is_off

    def on(self, job: Job) -> bool:
        return suspension_of(self.deck.job(job.id)) is None

    def events(self, job: Job) -> list[str]:
        return [event.what for event in self.deck.timeline(job.id)]


def steps(job: Job) -> int:
    return (paths.job_folder(job.id) / "log").read_bytes().count(b"step")


def goes_on(job: Job) -> bool:
    before = steps(job)
    return bool(eventually(lambda: steps(job) > before))


def pid_of(machine: Machine) -> int:
    (state,) = (file for file in machine.folder.glob("*.size"))
    return int(state.stem)


def state_of(machine: Machine) -> str:
    """Return 0 where the driver has the job's memory on the GPU, and 2 where it is off."""
    file = machine.folder / f"{pid_of(machine)}.state"
    return file.read_text().strip() if file.exists() else "0"


def restart(machine: Machine) -> None:
    """Kill the daemon, and connect to the next one."""
    kill_daemon()
    machine.deck.close()
    machine.deck = ready(Client(timeout=60.0))
