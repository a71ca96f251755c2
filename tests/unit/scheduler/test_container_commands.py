"""What is run for a job in a container: its GPUs only, its user, and its folders."""

from __future__ import annotations

from typing import Any

import pytest

from gpudeck.scheduler.executors.containers import container_command
from gpudeck.scheduler.protocol.containers import container_problem, split_container, with_engine
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import check_limits, make_spec

ENV = {"PATH": "/bin", "HF_TOKEN": "s3cret", "SEED": "1", "GPUDECK_JOB": "7",
       "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}  # fmt: skip


def launch(container: str, **more: Any) -> dict[str, Any]:
    return {
        "container": container, "attempt": "ab12", "argv": ["python", "train.py"],
        "cwd": "/home/me/work", "folder": "/state/jobs/7", "env": ENV, **more,
    }  # fmt: skip


def test_podman_gets_each_gpu_as_a_device_and_stays_in_the_job_s_cgroup() -> None:
    words = container_command(
        launch("podman:torch", cgroup="/x", mounts=["/data:ro"], container_env=["SEED"]), 1000, 100
    )
    text = " ".join(words).replace(" --init", "")
    assert text == (
        "podman run --rm --name gpudeck-ab12 --network host --ipc host --log-driver none "
        "--workdir /home/me/work --security-opt label=disable --userns keep-id "
        "--cgroups disabled --volume /home/me/work:/home/me/work "
        "--volume /state/jobs/7:/state/jobs/7 --volume /data:/data:ro --env SEED "
        "--env GPUDECK_JOB --env CUDA_VISIBLE_DEVICES --device nvidia.com/gpu=GPU-a "
        "--device nvidia.com/gpu=GPU-b torch python train.py"
    )


def test_docker_gets_the_gpus_the_user_and_the_limits() -> None:
    words = container_command(launch("docker:torch:2", host_memory=2**30, cpus=1.5), 1000, 100)
    at = words.index("--gpus")
    assert words[at + 1] == '"device=GPU-a,GPU-b"'
    assert words[words.index("--user") + 1] == "1000:100"
    assert words[words.index("--memory") + 1] == words[words.index("--memory-swap") + 1]
    assert words[words.index("--cpus") + 1] == "1.5"
    assert words[-3:] == ["torch:2", "python", "train.py"]
    assert "s3cret" not in " ".join(words), "values are on no command line"


def test_apptainer_gets_folders_and_gpus() -> None:
    words = container_command(launch("apptainer:image.sif"), 1000, 100)
    assert words == [
        "apptainer", "exec", "--nv", "--bind", "/home/me/work:/home/me/work", "--bind",
        "/state/jobs/7:/state/jobs/7", "--pwd", "/home/me/work", "image.sif", "python", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["podman", "docker", "apptainer"])
def test_a_job_without_gpus_gets_none(engine: str) -> None:
    words = container_command(
        launch(f"{engine}:torch", env={"CUDA_VISIBLE_DEVICES": ""}), 1000, 100
    )
    assert not {"--gpus", "--device", "--nv"} & set(words)


@pytest.mark.parametrize(
    ("container", "parts"),
    [
        ("podman:a/b:1", ("podman", "a/b:1")), ("a/b:1", ("", "a/b:1")), ("a", ("", "a")),
        ("docker:", ("docker", "")), ("docker://x", ("docker", "//x")),
    ],
)  # fmt: skip
def test_the_engine_stands_before_the_image(container: str, parts: tuple[str, str]) -> None:
    assert split_container(container) == parts


@pytest.mark.parametrize(
    ("container", "folder", "why"),
    [
        ("podman:--privileged", "/x", "no name of an image"), ("podman:", "/x", "no name"),
        ("podman:a b", "/x", "no name"), ("podman:a\nb", "/x", "no name"),
        ("image", "/x", "installed"), ("podman:a", "x", "whole path"),
        ("podman:a", "/x:/etc", "colon"), ("podman:a", "/x,y", "comma"),
    ],
)  # fmt: skip
def test_what_would_become_an_option_is_refused(container: str, folder: str, why: str) -> None:
    assert why in container_problem(container, (folder,))
    spec = make_spec(["true"], {"container": container, "mounts": [folder]})
    if container != "image":
        with pytest.raises(UserError, match=why):
            check_limits(spec)


def test_the_first_engine_that_is_installed_is_named_in_the_job(tmp_path) -> None:
    assert with_engine("image", str(tmp_path)) == "image"
    (tmp_path / "docker").write_text("")
    (tmp_path / "docker").chmod(0o700)
    assert with_engine("image", str(tmp_path)) == "docker:image"
    assert with_engine("apptainer:image", str(tmp_path)) == "apptainer:image"
    assert container_problem("podman:image", ("/data:ro",)) == ""
    with pytest.raises(UserError, match="leave --mount out"):
        check_limits(make_spec(["true"], {"mounts": ["/x"]}))


def test_a_variable_for_the_container_is_added_to_the_environment() -> None:
    spec = make_spec(["true"], {"container": "podman:a", "env": {"SEED": "3"}})
    assert (spec.env["SEED"], spec.container_env) == ("3", ("SEED",))
    assert "PATH" in spec.env, "the engine is found by it"
