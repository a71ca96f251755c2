"""Read PCIe and NVLink: the traffic over them, and the state of each link.

Cards with GPM count both in every interval (`gpudeck.scheduler.devices.nvidia.gpm`). For the
others, the driver's own byte counters are differenced. Where it has none for PCIe, it measures a
rate on request, which takes 20 ms, so only every few seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pynvml as nv

from gpudeck.language.text import Message
from gpudeck.scheduler.devices.nvidia.errors import RETRY_S, lasting, optional, refusal
from gpudeck.scheduler.devices.nvidia.queries import SLOW_S, field_value
from gpudeck.scheduler.protocol.absence import Absence, Unavailable
from gpudeck.scheduler.protocol.devices import Part

_ALL_LINKS = 2**32 - 1
"""The scope of a field that sums over all links."""


class ByteCounter(NamedTuple):
    """Identify a count of bytes that NVML keeps for a link."""

    id: int
    scope: int
    scale: float
    """Bytes per unit."""


PCIE = {
    "pcie_rx": ByteCounter(nv.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1.0),
    "pcie_tx": ByteCounter(nv.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1.0),
}
NVLINK = {
    "nvlink_rx": ByteCounter(nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, 1024.0),
    "nvlink_tx": ByteCounter(nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS, 1024.0),
}
_TOTAL_ERRORS = (
    nv.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    nv.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    nv.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    nv.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)
_LINK_ERRORS = (
    nv.NVML_NVLINK_ERROR_DL_REPLAY,
    nv.NVML_NVLINK_ERROR_DL_RECOVERY,
    nv.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    nv.NVML_NVLINK_ERROR_DL_CRC_DATA,
)


class ByteRates:
    """Compute bytes a second from counters that only go up."""

    def __init__(self, handle: Any, counters: dict[str, ByteCounter]) -> None:
        self._handle, self._counters = handle, counters
        self._before: dict[str, tuple[float, float]] = {}

    def read(self, now: float, values: dict[str, float], absent: dict[str, Absence]) -> None:
        """Add the means since the last call.

        Args:
            now: Seconds of a monotonic clock.
            values: Receives the rates.
            absent: Receives the causes of missing rates.
        """
        queries = [(c.id, c.scope) for c in self._counters.values()]
        try:
            answers = nv.nvmlDeviceGetFieldValues(self._handle, queries)
        except nv.NVMLError as e:
            absent.update(dict.fromkeys(self._counters, refusal(e)))
            return
        for (field, counter), answer in zip(self._counters.items(), answers, strict=True):
            try:
                count = field_value(answer) * counter.scale
            except nv.NVMLError as e:
                absent[field] = refusal(e)
                continue
            before, self._before[field] = self._before.get(field), (now, count)
            if before is None or count < before[1] or now <= before[0]:
                absent[field] = Unavailable("first reading")  # or the counter wrapped
            else:
                values[field] = (count - before[1]) / (now - before[0])


class PcieMeter:
    """Measure the PCIe throughput of a card without GPM."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._rates = ByteRates(handle, PCIE)
        self._has_counters = True
        self._next = 0.0
        self._kept: tuple[dict[str, float], dict[str, Absence], Message] = ({}, {}, "")

    def read(
        self,
        now: float,
        values: dict[str, float],
        absent: dict[str, Absence],
        methods: dict[str, Message],
    ) -> None:
        """Add the rates, measured anew where that is affordable, and how they were measured."""
        if now >= self._next:
            self._kept = self._measure(now)
        found, missing, method = self._kept
        values.update(found)
        absent.update(missing)
        methods.update(dict.fromkeys(found, method))

    def _measure(self, now: float) -> tuple[dict[str, float], dict[str, Absence], str]:
        values: dict[str, float] = {}
        absent: dict[str, Absence] = {}
        if self._has_counters:
            self._rates.read(now, values, absent)
            self._has_counters = not absent or Unavailable("first reading") in absent.values()
            if self._has_counters:
                return values, absent, "the driver's byte counters, over the interval"
        self._next = now + SLOW_S
        values, absent = {}, {}
        for field, kind in (
            ("pcie_rx", nv.NVML_PCIE_UTIL_RX_BYTES),
            ("pcie_tx", nv.NVML_PCIE_UTIL_TX_BYTES),
        ):
            try:
                values[field] = nv.nvmlDeviceGetPcieThroughput(self._handle, kind) * 1024.0
            except nv.NVMLError as e:
                absent[field] = refusal(e)
                self._next = now + (RETRY_S if lasting(e) else SLOW_S)
        return values, absent, f"measured by the driver over 20 ms, every {SLOW_S:.0f} s"


class NvLinks:
    """Read the NVLink links of one card."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._links = [
            link
            for link in range(self._count())
            if optional(nv.nvmlDeviceGetNvLinkState, handle, link) is not None
        ]
        self._rates = ByteRates(handle, NVLINK)
        counters = {
            f"{field}:{link}": ByteCounter(c.id, link, c.scale)
            for link in self._links
            for field, c in NVLINK.items()
        }
        self._link_rates = ByteRates(handle, counters)
        self._next = 0.0
        self._kept: dict[str, float] = {}

    def _count(self) -> int:
        query = [nv.NVML_FI_DEV_NVLINK_LINK_COUNT]
        try:
            return int(field_value(nv.nvmlDeviceGetFieldValues(self._handle, query)[0]))
        except nv.NVMLError as e:
            refusal(e)
            return 0

    def read(
        self, now: float, values: dict[str, float], absent: dict[str, Absence], counted: bool
    ) -> None:
        """Add traffic and state; the state is read every SLOW_S.

        Args:
            now: Seconds of a monotonic clock.
            values: Receives the fields.
            absent: Receives the causes of missing fields.
            counted: True if GPM counts the traffic already.
        """
        if not self._links:
            fields = ("nvlink_links", "nvlink_errors", *(() if counted else NVLINK))
            absent.update(dict.fromkeys(fields, Unavailable("NVLink")))
            return
        if not counted:
            self._rates.read(now, values, absent)
        if now >= self._next:
            self._next = now + SLOW_S
            self._kept = self._state()
        values.update(self._kept)
        if "nvlink_errors" not in self._kept:
            absent["nvlink_errors"] = Unavailable("NVLink errors")

    def _state(self) -> dict[str, float]:
        states = [optional(nv.nvmlDeviceGetNvLinkState, self._handle, link) for link in self._links]
        found = {"nvlink_links": float(sum(map(bool, states)))}
        answers = optional(nv.nvmlDeviceGetFieldValues, self._handle, list(_TOTAL_ERRORS)) or ()
        if errors := [field_value(a) for a in answers if a.nvmlReturn == nv.NVML_SUCCESS]:
            found["nvlink_errors"] = sum(errors)
        return found

    def parts(self, now: float) -> list[Part]:
        """Return each link with its state, version, errors, and traffic since the last call."""
        values: dict[str, float] = {}
        absent: dict[str, Absence] = {}
        if self._links:
            self._link_rates.read(now, values, absent)
        return [self._part(link, values, absent) for link in self._links]

    def _part(self, link: int, rates: dict[str, float], absent: dict[str, Absence]) -> Part:
        up = optional(nv.nvmlDeviceGetNvLinkState, self._handle, link)
        version = optional(nv.nvmlDeviceGetNvLinkVersion, self._handle, link)
        errors = [
            optional(nv.nvmlDeviceGetNvLinkErrorCounter, self._handle, link, kind)
            for kind in _LINK_ERRORS
        ]
        values = {field: rates[f"{field}:{link}"] for field in NVLINK if f"{field}:{link}" in rates}
        if any(e is not None for e in errors):
            values["nvlink_errors"] = float(sum(e for e in errors if e is not None))
        missing = {
            field: absent[f"{field}:{link}"] for field in NVLINK if f"{field}:{link}" in absent
        }
        texts = {"state": "up" if up else "down"} | ({"version": f"{version}"} if version else {})
        return Part("link", f"NVLink {link}", values, missing, texts)
