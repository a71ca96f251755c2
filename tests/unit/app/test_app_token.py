"""Test the token of an endpoint when several programs create it at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from gpudeck.app.cli.token import read_token


def test_one_of_several_programs_creates_the_token_and_none_reads_it_empty(tmp_path) -> None:
    def wanted(number: int) -> tuple[str, bool]:
        start.wait()
        return read_token(folder / "serve.token")

    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            folder, start = tmp_path / str(turn), Barrier(8)
            folder.mkdir(mode=0o700)
            found = list(pool.map(wanted, range(8)))
            assert len({token for token, _ in found}) == 1
            assert sum(made for _, made in found) == 1
            assert [file.name for file in folder.iterdir()] == ["serve.token"], (
                "nothing is left beside it"
            )
            assert (folder / "serve.token").stat().st_mode & 0o777 == 0o600
