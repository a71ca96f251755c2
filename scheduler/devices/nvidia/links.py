"""PCIe and NVLink: what flows over them, and the state of each link.

Cards with GPM count both in every interval (`scheduler.devices.nvidia.gpm`). For the others the driver's own byte counters are
differenced; where it has none for PCIe, it is asked for a rate, which it takes 20 ms to measure, so only every few seconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pynvml as nv

from scheduler.devices.nvidia.errors import RETRY_S, lasting, optional, why
from scheduler.devices.nvidia.scalars import SLOW_S, field_value
from scheduler.protocol.devices import Part

_ALL_LINKS = 2**32 - 1
"""As a field's scope: the sum over all links."""


class Counter(NamedTuple):
    """A count of bytes that NVML keeps for a link."""

    id: int
    scope: int
    scale: float
    """Bytes a unit."""


PCIE = {
    "pcie_rx": Counter(nv.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1.0),
    "pcie_tx": Counter(nv.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1.0),
}
_RX, _TX = nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
NVLINK = {
    "nvlink_rx": Counter(_RX, _ALL_LINKS, 1024.0),
    "nvlink_tx": Counter(_TX, _ALL_LINKS, 1024.0),
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


class Rates:
    """Bytes a second from counters that only go up."""

    def __init__(self, handle: Any, counters: dict[str, Counter]) -> None:
        self._handle, self._counters = handle, counters
        self._before: dict[str, tuple[float, float]] = {}

    def read(self, now: float, values: dict[str, float], absent: dict[str, str]) -> None:
        """Means since the last call. `now`: seconds of a clock that nobody sets."""
        asked = [(c.id, c.scope) for c in self._counters.values()]
        try:
            answers = nv.nvmlDeviceGetFieldValues(self._handle, asked)
        except nv.NVMLError as e:
            absent.update(dict.fromkeys(self._counters, why(e)))
            return
        for (field, counter), answer in zip(self._counters.items(), answers, strict=True):
            try:
                count = field_value(answer) * counter.scale
            except nv.NVMLError as e:
                absent[field] = why(e)
                continue
            before, self._before[field] = self._before.get(field), (now, count)
            if before is None or count < before[1] or now <= before[0]:
                absent[field] = "not known before the second reading"  # or the counter wrapped
            else:
                values[field] = (count - before[1]) / (now - before[0])


class PcieMeter:
    """PCIe throughput of a card without GPM."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._rates = Rates(handle, PCIE)
        self._counts = True
        self._due = 0.0
        self._kept: tuple[dict[str, float], dict[str, str], str] = ({}, {}, "")

    def read(
        self, now: float, values: dict[str, float], absent: dict[str, str], methods: dict[str, str]
    ) -> None:
        if now >= self._due:
            self._kept = self._ask(now)
        found, missing, method = self._kept
        values.update(found)
        absent.update(missing)
        methods.update(dict.fromkeys(found, method))

    def _ask(self, now: float) -> tuple[dict[str, float], dict[str, str], str]:
        values: dict[str, float] = {}
        absent: dict[str, str] = {}
        if self._counts:
            self._rates.read(now, values, absent)
            self._counts = not absent or any(
                "second reading" in reason for reason in absent.values()
            )
            if self._counts:
                return values, absent, "the driver's byte counters, over the interval"
        self._due = now + SLOW_S
        values, absent = {}, {}
        for field, kind in (
            ("pcie_rx", nv.NVML_PCIE_UTIL_RX_BYTES),
            ("pcie_tx", nv.NVML_PCIE_UTIL_TX_BYTES),
        ):
            try:
                values[field] = nv.nvmlDeviceGetPcieThroughput(self._handle, kind) * 1024.0
            except nv.NVMLError as e:
                absent[field] = why(e)
                self._due = now + (RETRY_S if lasting(e) else SLOW_S)
        return values, absent, f"measured by the driver over 20 ms, every {SLOW_S:.0f} s"


class NvLinks:
    """The NVLink links of one card."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._links = [
            link
            for link in range(self._most())
            if optional(nv.nvmlDeviceGetNvLinkState, handle, link) is not None
        ]
        self._rates = Rates(handle, NVLINK)
        counters = {
            f"{field}:{link}": Counter(c.id, link, c.scale)
            for link in self._links
            for field, c in NVLINK.items()
        }
        self._link_rates = Rates(handle, counters)
        self._due = 0.0
        self._kept: dict[str, float] = {}

    def _most(self) -> int:
        try:
            return int(
                field_value(
                    nv.nvmlDeviceGetFieldValues(self._handle, [nv.NVML_FI_DEV_NVLINK_LINK_COUNT])[0]
                )
            )
        except nv.NVMLError as e:
            why(e)
            return 0

    def read(
        self, now: float, values: dict[str, float], absent: dict[str, str], counted: bool
    ) -> None:
        """`counted`: whether GPM tells what flows. The state of links is read every SLOW_S."""
        if not self._links:
            absent.update(
                dict.fromkeys(("nvlink_links", "nvlink_errors"), "this card has no NVLink")
            )
            if not counted:
                absent.update(dict.fromkeys(NVLINK, "this card has no NVLink"))
            return
        if not counted:
            self._rates.read(now, values, absent)
        if now >= self._due:
            self._due = now + SLOW_S
            self._kept = self._state()
        values.update(self._kept)
        if "nvlink_errors" not in self._kept:
            absent["nvlink_errors"] = "NVML counts no errors of these links"

    def _state(self) -> dict[str, float]:
        up = [
            link
            for link in self._links
            if optional(nv.nvmlDeviceGetNvLinkState, self._handle, link)
        ]
        found = {"nvlink_links": float(len(up))}
        answers = optional(nv.nvmlDeviceGetFieldValues, self._handle, list(_TOTAL_ERRORS)) or ()
        if errors := [field_value(a) for a in answers if a.nvmlReturn == nv.NVML_SUCCESS]:
            found["nvlink_errors"] = sum(errors)
        return found

    def parts(self, now: float) -> list[Part]:
        """Each link: its state, version, errors, and what flowed since the last call."""
        values: dict[str, float] = {}
        absent: dict[str, str] = {}
        if self._links:
            self._link_rates.read(now, values, absent)
        return [self._part(link, values, absent) for link in self._links]

    def _part(self, link: int, rates: dict[str, float], absent: dict[str, str]) -> Part:
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
