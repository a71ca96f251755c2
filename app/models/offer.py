"""Hold the offer of a model and its download, which several pages show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QSettings, Signal

from gpudeck.accel.serving.memory import free_host_bytes
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.models.model_list import Download
from gpudeck.app.models.requests import TakeModel, Taken
from gpudeck.app.state import State
from gpudeck.assistant.library import model_list
from gpudeck.assistant.library.recommended import Recommendation, recommend
from gpudeck.assistant.library.unfinished import unfinished_downloads
from gpudeck.extras import missing_of
from gpudeck.language.text import Message
from gpudeck.scheduler.protocol import paths

if TYPE_CHECKING:
    from gpudeck.app.link.call import Call
    from gpudeck.assistant.library.hub import FetchProgress


_SAID: dict[Taken, str] = {
    "used": tr_noop("The assistant uses this model now. Each answer says who read and who wrote."),
    "kept": tr_noop(
        "This model was downloaded and is on the list. Another one was chosen meanwhile and stays "
        "in use."
    ),
    "stopped": tr_noop("Stopped. What was downloaded is kept."),
}


class ModelOffer(QObject):
    """Offer the RWKV-7 that fits this machine while the assistant has no model."""

    changed = Signal()

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._store = QSettings(str(paths.home() / "window.ini"), QSettings.Format.IniFormat)
        self._call: Call | None = None
        self.found: Recommendation | None = None
        """The model that fits and is not here yet."""
        self.reason: Message = ""
        """Why no model fits."""
        self.begun = 0
        """Bytes of it that an interrupted download left."""
        self.download: Download | None = None
        self.said, self.failed = "", False
        """What became of the last download, and whether it failed."""

    @property
    def offered(self) -> Recommendation | None:
        """Return the model that is offered or downloaded now."""
        return self.found if self.busy or not self._has_model else None

    @property
    def _has_model(self) -> bool:
        """Return whether the assistant has a model, or could use none, or nothing is known."""
        snapshot = self._state.snapshot
        if snapshot is None or missing_of("assistant", "compute") is not None:
            return True
        return bool(snapshot.settings.model)

    @property
    def busy(self) -> bool:
        """Return whether the model is downloaded now."""
        return self._call is not None

    @property
    def declined(self) -> bool:
        """Return whether the user wants no offer, except on the page of the models."""
        return bool(self._store.value("model_offer") == "declined")

    def look(self) -> None:
        """Choose the model by the memory that is free now, unless one is downloaded."""
        snapshot = self._state.snapshot
        if snapshot is None or self.busy:
            return
        self.said, self.found, self.reason, self.begun = "", None, "", 0
        if self._has_model:
            return
        found = recommend(snapshot.devices, free_host_bytes())
        if not isinstance(found, Recommendation):
            self.reason = found
        elif not model_list.folder_of(found.model.name).exists():
            self.found = found
            self._look_for_rest(found.model.name)

    def take(self) -> None:
        """Download the model and make it the assistant's."""
        if (offered := self.offered) is None or self.busy:
            return
        model, self.said = offered.model, ""
        self._call = self._link.send(
            self,
            TakeModel(model.name, model.most_bytes, offered.device),
            self._end,
            self._fail,
            self._show_progress,
        )
        self.changed.emit()

    def stop(self) -> None:
        """Stop the download; what came is kept."""
        if self._call is not None:
            self._call.cancel()

    def decline(self) -> None:
        """Show the offer on no page but that of the models from now on."""
        self._store.setValue("model_offer", "declined")
        self.changed.emit()

    def _look_for_rest(self, name: str) -> None:
        self.begun = next((one.bytes for one in unfinished_downloads() if one.name == name), 0)

    def _show_progress(self, progress: FetchProgress) -> None:
        self.download = self.download or Download(progress)
        self.download.update(progress)
        self.changed.emit()

    def _end(self, taken: Taken) -> None:
        self._leave(tr(_SAID[taken]))

    def _fail(self, message: str) -> None:
        self._leave(message, failed=True)

    def _leave(self, said: str, *, failed: bool = False) -> None:
        self._call = self.download = None
        self.said, self.failed = said, failed
        if self.found is not None:
            self._look_for_rest(self.found.model.name)
        self.changed.emit()
