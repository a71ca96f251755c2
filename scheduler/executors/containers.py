"""Run the command of an attempt in a container, with the folders and GPUs of the job.

The container has the name of the attempt, so that it can be ended by that, whoever its processes
belong to. Standard library only, as the runner imports it.

Sources: podman-run(1), docker-run(1), apptainer-exec(1), and the Container Device Interface.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudeck.scheduler.protocol.containers import DETACHING, split_container

REMOVE_S = 10.0
"""Seconds for which the removal of a container is waited for."""
_PASSED = ("CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT")
_INITS = ("/usr/libexec/podman/catatonit", "/usr/bin/catatonit", "/usr/libexec/catatonit/catatonit")
"""Where Podman finds the first process of a container, which passes signals on."""


def container_name(attempt: str) -> str:
    """Return the name of an attempt's container."""
    return f"gpudeck-{attempt}"


def container_command(launch: Mapping[str, Any], uid: int, gid: int) -> list[str]:
    """Return the command that runs the job's command in its container.

    Args:
        launch: What the runner was told about the attempt.
        uid: The user of the job.
        gid: The user's group.
    """
    engine, image = split_container(launch["container"])
    folders = [launch["cwd"], launch["folder"], *launch.get("mounts", ())]
    if engine == "apptainer":
        binds = [word for folder in folders for word in ("--bind", _mount(folder))]
        gpus = ["--nv"] if launch["env"].get("CUDA_VISIBLE_DEVICES") else []
        return [engine, "exec", *gpus, *binds, "--pwd", launch["cwd"], image, *launch["argv"]]
    words = [engine, "run", "--rm", "--name", container_name(launch["attempt"])]
    words += ["--network", "host", "--ipc", "host", "--log-driver", "none"]
    words += ["--workdir", launch["cwd"], *_user(engine, uid, gid), *_limits(engine, launch)]
    for folder in folders:
        words += ["--volume", _mount(folder)]
    for name in launch["env"]:
        if name.startswith("GPUDECK_") or name in (*_PASSED, *launch.get("container_env", ())):
            words += ["--env", name]  # by its name: the value is on no command line
    uuids = [u for u in launch["env"].get("CUDA_VISIBLE_DEVICES", "").split(",") if u]
    return [*words, *_gpus(engine, uuids), image, *launch["argv"]]


def removal_command(container: str, attempt: str) -> list[str]:
    """Return the command that ends whatever is left of an attempt's container, and removes it from
    the engine's list; no words where nothing has to be removed.

    Args:
        container: ENGINE:IMAGE; empty for a job without a container.
        attempt: The attempt.
    """
    engine, _ = split_container(container)
    if engine not in DETACHING:
        return []
    at_once = ("--time", "0") if engine == "podman" else ()  # Docker kills at once anyway
    return [engine, "rm", "--force", *at_once, container_name(attempt)]


def removal_options(
    env: Mapping[str, str], user: tuple[int, int, tuple[int, ...]] | None
) -> dict[str, Any]:
    """Return how that command is started.

    Args:
        env: The environment in which the engine is called.
        user: The job's user, group and further groups; None: those of this process.
    """
    uid, gid, groups = (None, None, None) if user is None else user
    return {
        "env": dict(env), "cwd": "/", "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL, "user": uid, "group": gid, "extra_groups": groups,
    }  # fmt: skip


def remove_container(words: Sequence[str], options: Mapping[str, Any]) -> None:
    """Run a `removal_command`, if there is one, and wait for its end up to REMOVE_S."""
    try:
        if words:
            subprocess.run(words, timeout=REMOVE_S, check=False, **options)
    except (OSError, subprocess.SubprocessError):
        pass  # the engine is gone or hangs; what still uses a GPU is seen by the driver


def _mount(folder: str) -> str:
    path, _, mode = folder.partition(":")
    return f"{path}:{path}:{mode}" if mode else f"{path}:{path}"


def _user(engine: str, uid: int, gid: int) -> Sequence[str]:
    """Return what makes the container's processes those of the job's user."""
    if engine == "docker":
        return ("--init", "--user", f"{uid}:{gid}")
    init = ("--init",) if any(Path(file).exists() for file in _INITS) else ()
    # SELinux lets a container see neither the user's folders nor GPUs unless it is told to
    plain = (*init, "--security-opt", "label=disable")
    return plain if uid == 0 else (*plain, "--userns", "keep-id")


def _limits(engine: str, launch: Mapping[str, Any]) -> Sequence[str]:
    """Return what limits the container as the job is limited."""
    if engine == "podman":
        # it stays in the cgroup of the job, which has the limits
        return ("--cgroups", "disabled") if launch.get("cgroup") else ()
    memory, cpus = launch.get("host_memory", 0), launch.get("cpus", 0.0)
    words = ["--memory", str(memory), "--memory-swap", str(memory)] if memory else []
    return [*words, "--cpus", f"{cpus:g}"] if cpus else words


def _gpus(engine: str, uuids: Sequence[str]) -> Sequence[str]:
    """Return what gives the container these GPUs, and no others."""
    if not uuids:
        return ()
    if engine == "docker":
        return ("--gpus", f'"device={",".join(uuids)}"')  # quoted, as a comma separates options
    return [word for uuid in uuids for word in ("--device", f"nvidia.com/gpu={uuid}")]
