"""Read the GPUs of a machine for a GPU Deck on another one.

The text of this file is sent over ssh and runs there: nothing is installed, and nothing is written.
It needs Python 3.6 and its standard library only. It prints a line of JSON for each moment, after
MARK, and ends when its standard input is closed.
"""

import ctypes
import glob
import json
import os
import platform
import pwd
import select
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

MARK = "gpudeck1 "
INTERVAL_S = 2.0
NO_MEMORY = 2**64 - 1
"""What NVML returns for the memory of a process that it does not know."""
SMI = (
    "index,uuid,name,utilization.gpu,utilization.memory,memory.used,memory.total,memory.free,"
    "temperature.gpu,power.draw,enforced.power.limit,power.min_limit,power.max_limit,"
    "clocks.sm,clocks.mem,fan.speed,driver_version"
)
SMI_FIELDS = (
    ("util", 1.0), ("mem_util", 1.0), ("mem_used", 2.0**20), ("mem_total", 2.0**20),
    ("mem_free", 2.0**20), ("temp", 1.0), ("power", 1.0), ("power_limit", 1.0),
    ("power_limit_min", 1.0), ("power_limit_max", 1.0), ("clock_sm", 1.0), ("clock_mem", 1.0),
    ("fan", 1.0),
)  # fmt: skip
"""The fields of a reading for the columns from the fourth on, and the unit of each."""


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Utilization(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class NvmlError(Exception):
    """A call of NVML that failed."""


class Nvml:
    """The NVIDIA GPUs, through the driver's own library."""

    how = "NVML"

    def __init__(self) -> None:
        try:
            self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as e:
            raise NvmlError(str(e))
        self.call("nvmlInit_v2")
        self.gpus = []  # type: List[Tuple[Any, Dict[str, Any]]]
        for index in range(self.number("nvmlDeviceGetCount_v2", ctypes.c_uint)):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            found = {
                "id": self.text("nvmlDeviceGetUUID", handle),
                "index": index,
                "name": self.text("nvmlDeviceGetName", handle),
                "kind": "nvidia",
                "facts": {"driver": self.text("nvmlSystemGetDriverVersion")},
            }
            self.gpus.append((handle, found))

    def call(self, name: str, *arguments: Any) -> None:
        """Make one call. Raises NvmlError."""
        try:
            status = getattr(self.lib, name)(*arguments)
        except AttributeError:
            raise NvmlError(name + " is not in this driver")
        if status:
            self.lib.nvmlErrorString.restype = ctypes.c_char_p
            raise NvmlError(self.lib.nvmlErrorString(status).decode(errors="replace"))

    def number(self, name: str, kind: Any, *arguments: Any) -> Any:
        """Return the number that a call writes."""
        found = kind()
        self.call(name, *(arguments + (ctypes.byref(found),)))
        return found.value

    def text(self, name: str, *arguments: Any) -> str:
        """Return the text that a call writes."""
        buffer = ctypes.create_string_buffer(96)
        self.call(name, *(arguments + (buffer, ctypes.c_uint(len(buffer)))))
        return buffer.value.decode(errors="replace")

    def read(self) -> List[Dict[str, Any]]:
        """Return one reading of each GPU."""
        return [self.read_one(handle, device) for handle, device in self.gpus]

    def read_one(self, handle: Any, device: Dict[str, Any]) -> Dict[str, Any]:
        """Return one reading of a GPU: what fails is absent, with the driver's reason."""
        values = {}  # type: Dict[str, float]
        absent = {}  # type: Dict[str, str]
        for fields, read in (
            (("mem_used", "mem_total", "mem_free"), self.memory),
            (("util", "mem_util"), self.rates),
            (("temp",), self.query("nvmlDeviceGetTemperature", 1.0, 0)),
            (("power",), self.query("nvmlDeviceGetPowerUsage", 1e-3)),
            (("power_limit",), self.query("nvmlDeviceGetEnforcedPowerLimit", 1e-3)),
            (("power_limit_min", "power_limit_max"), self.limits),
            (("clock_sm",), self.query("nvmlDeviceGetClockInfo", 1.0, 1)),
            (("clock_mem",), self.query("nvmlDeviceGetClockInfo", 1.0, 2)),
            (("fan",), self.query("nvmlDeviceGetFanSpeed", 1.0)),
        ):  # type: Tuple[Tuple[str, ...], Any]
            try:
                found = read(handle)
            except NvmlError as e:
                absent.update(dict.fromkeys(fields, "NVML: " + str(e)))
            else:
                values.update({field: float(found[i]) for i, field in enumerate(fields)})
        return dict(device, values=values, absent=absent, processes=self.processes(handle))

    def query(self, name: str, unit: float, *kind: int) -> Callable[[Any], Tuple[float, ...]]:
        """Return a function that asks for one number."""
        asked = [ctypes.c_uint(number) for number in kind]
        return lambda handle: (unit * self.number(name, ctypes.c_uint, handle, *asked),)

    def memory(self, handle: Any) -> Tuple[float, ...]:
        found = Memory()
        try:
            self.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(found))
        except NvmlError as e:
            if str(e) != "Not Supported":
                raise
            return machine_memory()  # GB10 and its kin share it with the CPU
        return found.used, found.total, found.free

    def rates(self, handle: Any) -> Tuple[float, ...]:
        found = Utilization()
        self.call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(found))
        return found.gpu, found.memory

    def limits(self, handle: Any) -> Tuple[float, ...]:
        low, high = ctypes.c_uint(), ctypes.c_uint()
        name = "nvmlDeviceGetPowerManagementLimitConstraints"
        self.call(name, handle, ctypes.byref(low), ctypes.byref(high))
        return low.value / 1e3, high.value / 1e3

    def processes(self, handle: Any) -> List[List[Any]]:
        count = ctypes.c_uint(128)
        found = (ProcessInfo * count.value)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found)
        except NvmlError:
            return []
        return [
            [p.pid] + owner(p.pid) + [None if p.memory == NO_MEMORY else float(p.memory)]
            for p in found[: count.value]
        ]


class Smi:
    """The NVIDIA GPUs, through nvidia-smi, where the library cannot be loaded."""

    how = "nvidia-smi"

    def __init__(self) -> None:
        self.read()

    def read(self) -> List[Dict[str, Any]]:
        """Return one reading of each GPU. Raises NvmlError."""
        command = ["nvidia-smi", "--query-gpu=" + SMI, "--format=csv,noheader,nounits"]
        try:
            out = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=10,
            )
        except (OSError, subprocess.SubprocessError) as e:
            raise NvmlError(str(e))
        text = out.stdout.decode(errors="replace").strip()
        if out.returncode:
            raise NvmlError(text[:200])
        return [smi_row(line) for line in text.splitlines()]


def smi_row(line: str) -> Dict[str, Any]:
    """Return the reading in one line of nvidia-smi. Raises NvmlError."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 4 + len(SMI_FIELDS):
        raise NvmlError("nvidia-smi printed: " + line[:100])
    values = {}  # type: Dict[str, float]
    absent = {}  # type: Dict[str, str]
    for (field, unit), cell in zip(SMI_FIELDS, cells[3:]):  # noqa: B905 - new in Python 3.10
        try:
            values[field] = float(cell) * unit
        except ValueError:
            absent[field] = "nvidia-smi: " + cell
    return {
        "id": cells[1],
        "index": int(cells[0]),
        "name": cells[2],
        "kind": "nvidia",
        "facts": {"driver": cells[-1]},
        "values": values,
        "absent": absent,
    }


class Cpu:
    """The CPU and the machine's memory, where there is no GPU."""

    how = "the kernel's counters"

    def __init__(self) -> None:
        self.before = self.times()

    def times(self) -> Tuple[float, float]:
        """Return the seconds of all cores since the start: all, and idle ones."""
        with open("/proc/stat") as f:
            ticks = [float(cell) for cell in f.readline().split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    def read(self) -> List[Dict[str, Any]]:
        """Return one reading of the CPU."""
        before, now = self.before, self.times()
        self.before = now
        used, total, free = machine_memory()
        values = {
            "mem_total": total,
            "mem_free": free,
            "mem_used": used,
            "load": os.getloadavg()[0],
            "cores": float(os.cpu_count() or 1),
        }
        if now[0] > before[0]:
            values["util"] = 100 * (1 - (now[1] - before[1]) / (now[0] - before[0]))
        return [
            {
                "id": "cpu",
                "index": 0,
                "name": cpu_name(),
                "kind": "cpu",
                "values": values,
                "absent": {},
            }
        ]


def machine_memory() -> Tuple[float, float, float]:
    """Return the machine's memory in bytes: used, in all, and free."""
    with open("/proc/meminfo") as f:
        kib = {line.split(":")[0]: int(line.split()[1]) for line in f if "kB" in line}
    total, free = kib["MemTotal"], kib.get("MemAvailable", kib["MemFree"])
    return 1024.0 * (total - free), 1024.0 * total, 1024.0 * free


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def owner(pid: int) -> List[str]:
    """Return the name and the user of a process, as far as they are visible."""
    try:
        with open("/proc/%d/comm" % pid, errors="replace") as f:
            name = f.read().strip()
        uid = os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return ["?", ""]
    try:
        return [name, pwd.getpwuid(uid).pw_name]
    except KeyError:
        return [name, str(uid)]


def sleeping(root: str = "/sys/bus/pci/devices") -> List[str]:
    """Return the PCI addresses of NVIDIA GPUs that sleep; reading this wakes none."""
    found = []
    for folder in sorted(glob.glob(root + "/*")):
        try:
            with open(folder + "/vendor") as f, open(folder + "/class") as g:
                if f.read().strip() != "0x10de" or not g.read().startswith("0x03"):
                    continue
            with open(folder + "/power/runtime_status") as f:
                if f.read().strip() == "suspended":
                    found.append(os.path.basename(folder))
        except OSError:
            continue
    return found


def asleep(address: str, index: int) -> Dict[str, Any]:
    return {
        "id": "pci-" + address,
        "index": index,
        "name": "NVIDIA GPU",
        "kind": "nvidia",
        "asleep": True,
        "values": {},
        "absent": {},
    }


def deck_socket(home: str) -> str:
    """Return the socket of the GPU Deck of this user, or an empty text."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    usual = os.environ.get("GPUDECK_HOME") or os.path.join(state, "gpudeck")
    places = [home] if home else [usual, "/var/tmp/gpudeck-%d" % os.getuid()]
    for place in places:
        path = os.path.abspath(os.path.join(os.path.expanduser(place), "daemon.sock"))
        try:
            if {os.stat(p).st_uid for p in (path, os.path.dirname(path))} == {os.getuid()}:
                return path
        except OSError:
            continue
    return ""


def open_gpus() -> Tuple[Optional[Any], str]:
    """Return a source of readings, and why there is no better one."""
    why = []
    for kind in (Nvml, Smi):
        try:
            source = kind()  # type: Any
            if source.read():
                return source, ""
            why.append(kind.how + " lists no GPU")
        except NvmlError as e:
            why.append(kind.how + ": " + str(e))
    return None, "; ".join(why)


def main(home: str = "", interval: float = INTERVAL_S) -> None:
    """Print a line for each moment until the other side is gone."""
    source, why = None, ""  # type: Optional[Any], str
    while True:
        suspended = sleeping()
        if suspended:
            source = None
            devices = [asleep(address, i) for i, address in enumerate(suspended)]
            how = "the kernel: the GPU sleeps"
        else:
            if source is None:
                source, why = open_gpus()
                source = source or Cpu()
            try:
                devices = source.read()
            except NvmlError as e:
                sys.exit("the GPUs can no longer be read: " + str(e))
            how = source.how
        line = {
            "devices": devices,
            "how": how,
            "why": why,
            "python": platform.python_version(),
            "deck": deck_socket(home),
        }
        sys.stdout.write(MARK + json.dumps(line) + "\n")
        sys.stdout.flush()
        end = time.time() + interval
        while time.time() < end:
            ready, _, _ = select.select([sys.stdin], [], [], max(end - time.time(), 0.0))
            if ready and not os.read(0, 4096):
                return


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
