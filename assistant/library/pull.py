"""Fetch a model in a child process, report its progress, and add the model to the list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from gpudeck.assistant.library import model_list
from gpudeck.assistant.library.describe import Model
from gpudeck.assistant.library.hub import Fetched, FetchFailed, FetchProgress, read_messages
from gpudeck.assistant.library.hub_search import NAME
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

_URL = re.compile(r"https?://[^/]+/")


class Pull:
    """Fetch one model: `run` in one thread, `cancel` from another."""

    def __init__(self, name: str, most: int = sys.maxsize) -> None:
        """Prepare a fetch of OWNER/NAME, or of the address of its page. Raises UserError for
        anything else.

        Args:
            name: What is fetched.
            most: The bytes that the user agreed to; a larger model is refused.
        """
        self.name = _URL.sub("", name.strip()).removesuffix("/").removesuffix("/tree/main")
        if not NAME.fullmatch(self.name):
            raise UserError(
                phrase(
                    "name a model on Hugging Face as OWNER/NAME, such as fla-hub/rwkv7-1.5B-world; "
                    "got {value}",
                    value=repr(name.strip()),
                )
            )
        self.cancelled, self._most = False, most
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def folder(self) -> Path:
        """Return the folder that the model is fetched into."""
        return model_list.folder_of(self.name)

    def run(self, on_progress: Callable[[FetchProgress], None]) -> Model | None:
        """Fetch the model and add it to the list; return None if it was cancelled.

        What was fetched before is not fetched again. Raises UserError.
        """
        paths.ensure(model_list.folder())
        failed: Message = ""
        fetched = False
        with self._started() as process:
            assert process.stdout is not None
            for message in read_messages(process.stdout):
                match message:
                    case FetchProgress():
                        on_progress(message)
                    case FetchFailed(message=reason):
                        failed = reason
                    case Fetched():
                        fetched = True
        if self.cancelled:
            return None
        if not fetched:
            raise UserError(
                failed
                or phrase(
                    "fetching {name} ended with an error; see {file}",
                    name=self.name,
                    file=str(self.log_file),
                )
            )
        return model_list.add(self.folder)

    def cancel(self) -> None:
        """Stop now. What was fetched stays, and the next fetch continues from it."""
        with self._lock:
            self.cancelled = True
            if self._process is not None:
                self._process.kill()

    @property
    def exit_status(self) -> int | None:
        """Return the exit status of the process; None before it ended."""
        return None if self._process is None else self._process.returncode

    @property
    def log_file(self) -> Path:
        """Return the log of the process."""
        return model_list.folder() / "pull.log"

    def _started(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "0",
        }
        log = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, paths.PRIVATE_FILE)
        try:
            with self._lock:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        "-m",
                        "gpudeck.assistant.library.hub",
                        self.name,
                        str(self.folder),
                        str(self._most),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                )
                if self.cancelled:
                    self._process.kill()
                return self._process
        finally:
            os.close(log)
