"""Requests of the models page: the list of models, downloads, benchmarks, and served models."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from gpudeck.accel.serving.memory import free_host_bytes
from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Call
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.host_protocol import Event, ModelSpeed, Waiting
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.library import model_list
from gpudeck.assistant.library.chosen import chosen_model, use_if_still
from gpudeck.assistant.library.describe import Model, name_of
from gpudeck.assistant.library.hub_search import HubModel, search_hub
from gpudeck.assistant.library.unfinished import Unfinished, unfinished_downloads
from gpudeck.assistant.serve import client as serving
from gpudeck.assistant.serve.control_messages import Held, Served


class ListModels(msgspec.Struct, frozen=True):
    """List the models that were added, and the one in use."""

    used: str = ""

    def carry_out(self, call: Call) -> tuple[Model, ...]:
        """Return the models."""
        return model_list.listed_models(self.used)


class AddModel(msgspec.Struct, frozen=True):
    """Add a folder or file to the list."""

    path: str

    def carry_out(self, call: Call) -> str:
        """Return a message for the user."""
        return tr("{name} was added", name=model_list.add(self.path).name)


class RemoveModel(msgspec.Struct, frozen=True):
    """Remove a model from the list; its files stay."""

    path: str

    def carry_out(self, call: Call) -> str:
        """Return a message for the user."""
        model_list.remove(self.path)
        return tr(
            "{name} was removed from the list; its files stay in {folder}",
            name=name_of(self.path),
            folder=self.path,
        )


class SearchHub(msgspec.Struct, frozen=True):
    """Search Hugging Face for models."""

    words: str

    def carry_out(self, call: Call) -> tuple[HubModel, ...]:
        """Return the models."""
        return search_hub(self.words)


class FindUnfinished(msgspec.Struct, frozen=True):
    """Look for downloads that were not finished."""

    def carry_out(self, call: Call) -> tuple[Unfinished, ...]:
        """Return them."""
        return unfinished_downloads()


class DownloadModel(msgspec.Struct, frozen=True):
    """Download a model from Hugging Face. What was downloaded stays if it is cancelled."""

    always_replies: ClassVar[bool] = True
    name: str

    def carry_out(self, call: Call) -> str:
        """Report `gpudeck.assistant.library.hub.Progress` values; return a message for the user."""
        # rarely needed: the window starts without it
        from gpudeck.assistant.library.pull import Pull

        pull = Pull(self.name)
        call.on_cancel(pull.cancel)
        if pull.run(call.report):
            return tr("{name} was downloaded to {folder}", name=pull.name, folder=pull.folder)
        return tr("stopped; the files of {name} so far are kept", name=pull.name)


Taken = Literal["used", "kept", "stopped"]
"""A downloaded model is the assistant's, or only on the list, as another was chosen meanwhile."""


class TakeModel(msgspec.Struct, frozen=True):
    """Download a model, and make it the assistant's unless another one is chosen meanwhile. What
    was downloaded stays if it is cancelled."""

    always_replies: ClassVar[bool] = True
    name: str
    most: int
    """The bytes that the user agreed to."""
    device: Literal["cpu", "cuda"]

    def carry_out(self, call: Call) -> Taken:
        """Report `gpudeck.assistant.library.hub.Progress` values; return what became of it."""
        from gpudeck.assistant.library.pull import Pull

        pull = Pull(self.name, self.most)
        call.on_cancel(pull.cancel)
        with call.client() as client:
            before = chosen_model(client)
        if (model := pull.run(call.report)) is None:
            return "stopped"
        with call.client() as client:
            used = use_if_still(client, before, model, self.device)
        return "used" if used else "kept"


class BenchmarkModel(msgspec.Struct, frozen=True):
    """Load a model in the assistant's process and measure its speed there."""

    path: str
    device: Literal["cpu", "cuda"]

    def carry_out(self, call: Call) -> ModelSpeed | None:
        """Report what the benchmark does; return the speed, or None if it was cancelled."""
        assistant = Assistant()
        call.on_cancel(assistant.cancel)

        def on_event(event: Event) -> None:
            if isinstance(event, Waiting):
                call.report(event.reason)

        try:
            return assistant.benchmark(self.path, self.device, on_event)
        except Cancelled:
            return None


class ServedNow(msgspec.Struct, frozen=True):
    """Hold the models that are served, and the host's memory that is free, in bytes."""

    served: tuple[Served, ...] = ()
    host_free: int = 0


class FindServed(msgspec.Struct, frozen=True):
    """Look at the models that are served."""

    def carry_out(self, call: Call) -> ServedNow:
        """Return them."""
        return ServedNow(serving.served_models(), free_host_bytes())


class StartServing(msgspec.Struct, frozen=True):
    """Serve a model, under the idle lease or as a job."""

    options: Options
    held: Held

    def carry_out(self, call: Call) -> str:
        """Return a message for the user."""
        name = name_of(self.options.folder)
        if self.held == "job":
            return tr(
                "job {job} serves {name} once a GPU is free for it",
                job=serving.submit(self.options),
                name=name,
            )
        address = serving.start(self.options).address
        return tr("{name} is served at {address}", name=name, address=address)


class StopServing(msgspec.Struct, frozen=True):
    """End a served model."""

    served: Served

    def carry_out(self, call: Call) -> str:
        """Return a message for the user."""
        serving.stop(self.served.port)
        return tr("{name} is no longer served", name=self.served.name)
