"""List the defects that are planted: plausible slips, each of which a test must catch."""

from __future__ import annotations

from typing import NamedTuple


class Defect(NamedTuple):
    """Describe one change of a source file that makes it wrong."""

    what: str
    file: str
    old: str
    """It occurs once in the file."""
    new: str
    tests: tuple[str, ...]


_SOURCE = ("tests/unit/scheduler/test_nvml_source.py",)
_MORE = ("tests/unit/scheduler/test_nvml_metrics.py",)
_GPM = ("tests/unit/scheduler/test_gpm_flops.py", *_SOURCE)
_METRICS = ("tests/unit/app/test_app_metrics.py",)
_ALERTS = ("tests/unit/scheduler/test_alerts.py",)
_MONITOR = ("tests/unit/scheduler/test_monitor.py", "tests/unit/scheduler/test_flops.py")
_IDLE = ("tests/unit/scheduler/test_idle_judge.py",)
_RUNNER = ("tests/unit/scheduler/test_runner.py",)
_SAMPLING = ("tests/unit/scheduler/test_irregular_sampling.py",)
_CALIBRATION = ("tests/unit/scheduler/test_calibration.py",)
_TOUR = ("tests/unit/app/test_app_tour.py",)
_PATHS = ("tests/unit/scheduler/test_paths.py",)
_STRANGERS = ("tests/integration/test_strangers.py",)
_TRACES = ("tests/unit/scheduler/test_trace_and_replay.py",)
_CHECKER = ("tests/unit/assistant/test_checker.py",)

_SERVING = ("tests/unit/accel/serving/test_serving_engine.py",)
_LEARNING = ("tests/unit/accel/test_attention_learning.py",)

_RECURRENCES = ("tests/unit/accel/test_linear_attention.py",)
_CHUNKS = "accel/primitives/linear_attention/chunk_kernels.py"
_SCAN = "accel/primitives/linear_attention/scan_kernels.py"
_ONE_PASS = "accel/primitives/linear_attention/single_kernels.py"
_LINEAR_GRADIENTS = "accel/primitives/linear_attention/gradient_kernels.py"

_QUERIES = "scheduler/devices/nvidia/queries.py"
_CLOCKS = "scheduler/devices/nvidia/clocks.py"
_PROBE = "scheduler/devices/probe.py"
_COUNTERS = "scheduler/devices/nvidia/gpm.py"
_GPU = "scheduler/devices/nvidia/gpu.py"
_LINKS = "scheduler/devices/nvidia/links.py"
_EVENTS = "scheduler/devices/nvidia/events.py"
_PROMETHEUS = "app/cli/devices/prometheus.py"
_ENDPOINT = "app/cli/devices/metrics.py"
_TRACE = "scheduler/devices/trace.py"
_OPERANDS = "assistant/writing/checker/operands.py"
_SUMS = "assistant/writing/checker/sums.py"
_LENGTHS = "assistant/writing/checker/spoken_times.py"
_RULES = "scheduler/telemetry/alert_rules.py"
_EVALUATOR = "scheduler/telemetry/alerts.py"
_HYSTERESIS = "scheduler/telemetry/hysteresis.py"
_RATE = "scheduler/telemetry/flop_rate.py"
_STATES = "scheduler/telemetry/monitor.py"
_JUDGE = "scheduler/telemetry/idle.py"
_RUN = "scheduler/executors/runner.py"
_EXIT = "scheduler/executors/exit_writer.py"

DEFECTS: tuple[Defect, ...] = (
    # the seven that survived an audit
    Defect(
        "the default power limit in mW",
        _QUERIES,
        "nvmlDeviceGetPowerManagementDefaultLimit(h) / 1e3",
        "nvmlDeviceGetPowerManagementDefaultLimit(h)",
        _SOURCE,
    ),
    Defect(
        "slowdown taken for shutdown temperature",
        _QUERIES,
        '("temp_shutdown",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)',
        '("temp_shutdown",), _threshold(nv.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)',
        _SOURCE,
    ),
    Defect(
        "corrected for uncorrected ECC errors",
        _QUERIES,
        '("ecc_uncorrected",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC)',
        '("ecc_uncorrected",), _ecc(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_VOLATILE_ECC)',
        _SOURCE,
    ),
    Defect(
        "remapped rows reversed",
        _QUERIES,
        "tuple(nv.nvmlDeviceGetRemappedRows(h))",
        "tuple(nv.nvmlDeviceGetRemappedRows(h))[::-1]",
        _SOURCE,
    ),
    Defect(
        "PCIe current for maximum",
        _QUERIES,
        "nv.nvmlDeviceGetMaxPcieLinkGeneration(h)",
        "nv.nvmlDeviceGetCurrPcieLinkGeneration(h)",
        _SOURCE,
    ),
    Defect(
        "energy x1000 in the metrics",
        _PROMETHEUS,
        '"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _MILLI',
        '"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", _MILLI * 1e3',
        _METRICS,
    ),
    Defect(
        "the exit record not synced",
        _EXIT,
        "        f.flush()\n        os.fsync(fd)\n",
        "        f.flush()\n",
        _RUNNER,
    ),
    # devices
    Defect(
        "memory as the first version of the struct has it",
        _QUERIES,
        "return memory.used, memory.total, memory.free, memory.reserved",
        "return memory.used + memory.reserved, memory.total, memory.free, memory.reserved",
        _SOURCE,
    ),
    Defect(
        "the two utilisations swapped",
        _QUERIES,
        "return rates.gpu, rates.memory",
        "return rates.memory, rates.gpu",
        _SOURCE,
    ),
    Defect(
        "the slowest fan",
        _QUERIES,
        "(max(nv.nvmlDeviceGetFanSpeed_v2",
        "(min(nv.nvmlDeviceGetFanSpeed_v2",
        _SOURCE,
    ),
    Defect(
        "the lowest power limit for the highest",
        _QUERIES,
        "return low / 1e3, high / 1e3",
        "return low / 1e3, low / 1e3",
        _SOURCE,
    ),
    Defect(
        "the memory's clock for the video engines'",
        _QUERIES,
        '("clock_video",), _clock(nv.NVML_CLOCK_VIDEO)',
        '("clock_video",), _clock(nv.NVML_CLOCK_MEM)',
        _SOURCE,
    ),
    Defect(
        "the graphics clock's maximum for the SM clock's",
        _QUERIES,
        '("clock_sm_max",), _max_clock(nv.NVML_CLOCK_SM)',
        '("clock_sm_max",), _max_clock(nv.NVML_CLOCK_GRAPHICS)',
        _SOURCE,
    ),
    Defect(
        "ECC errors since the start for those of the card's life",
        _QUERIES,
        "_ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_AGGREGATE_ECC)",
        "_ecc(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC)",
        _SOURCE,
    ),
    Defect(
        "the pending ECC mode for the current one",
        _QUERIES,
        "nv.nvmlDeviceGetEccMode(h)[0]",
        "nv.nvmlDeviceGetEccMode(h)[1]",
        _SOURCE,
    ),
    Defect(
        "the pending MIG mode for the current one",
        _QUERIES,
        "nv.nvmlDeviceGetMigMode(h)[0]",
        "nv.nvmlDeviceGetMigMode(h)[1]",
        _SOURCE,
    ),
    Defect(
        "the causes of retired pages swapped",
        _QUERIES,
        "_pages(nv.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)",
        "_pages(nv.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS)",
        _SOURCE,
    ),
    Defect(
        "the average power shown as instantaneous",
        _QUERIES,
        "_field(nv.NVML_FI_DEV_POWER_INSTANT, 1e-3)",
        "_field(nv.NVML_FI_DEV_POWER_AVERAGE, 1e-3)",
        _SOURCE,
    ),
    Defect(
        "energy in mJ",
        _QUERIES,
        "nv.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3",
        "nv.nvmlDeviceGetTotalEnergyConsumption(h)",
        _SOURCE,
    ),
    Defect(
        "the BAR1 window's fields swapped",
        _QUERIES,
        "return window.bar1Used, window.bar1Total",
        "return window.bar1Total, window.bar1Used",
        _SOURCE,
    ),
    Defect(
        "a counter of 64 bits read as one of 32",
        _QUERIES,
        'nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal"',
        'nv.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "uiVal"',
        _MORE,
    ),
    Defect(
        "the last sample of the clock instead of the mean",
        _CLOCKS,
        "weighted / seconds if seconds",
        "self._samples[-1][0] if seconds",
        _SOURCE,
    ),
    Defect(
        "samples of the clock before a gap count as much as the gap",
        _CLOCKS,
        "self._samples.append((mhz, self._time - before))",
        "self._samples.append((mhz, 1.0))",
        _SAMPLING,
    ),
    Defect(
        "samples in step with a load",
        _PROBE,
        "min(random.expovariate(1 / JITTER), MOST_JITTER)",
        "0.0 * MOST_JITTER",
        _SAMPLING,
    ),
    Defect(
        "a sample of the clock with every reading",
        _CLOCKS,
        "        if not self._samples:\n            self.sample()",
        "        self.sample()",
        _SAMPLING,
    ),
    Defect(
        "energy that trails by half a second",
        "scheduler/queue/usage.py",
        " + (last - first) * AVERAGED_S / 2",
        " + 0 * AVERAGED_S",
        ("tests/unit/scheduler/test_queue_usage.py",),
    ),
    Defect(
        "counters compared with the work of the wrong moment",
        "scheduler/telemetry/counter_delay.py",
        "share.start - delay, share.end - delay",
        "share.start + delay, share.end + delay",
        ("tests/unit/scheduler/test_counter_delay.py",),
    ),
    Defect(
        "the energy of a gap of which nothing is known",
        "scheduler/queue/usage.py",
        "0 < reading.time - before.time <= MAX_GAP_S",
        "0 < reading.time - before.time",
        _SAMPLING,
    ),
    Defect(
        "heat taken for power",
        _CLOCKS,
        "throttle_power=float(bool(mask & _POWER))",
        "throttle_power=float(bool(mask & _HEAT))",
        _MORE,
    ),
    Defect(
        "rest taken for throttling",
        _CLOCKS,
        "_HELD = _POWER | _HEAT | nv.nvmlClocksEventReasonHwSlowdown",
        "_HELD = _POWER | _HEAT | nv.nvmlClocksEventReasonGpuIdle",
        _MORE,
    ),
    Defect(
        "PCIe traffic in MB for MiB",
        _COUNTERS,
        "metric.value * 2**20 if field in _IN_MIB",
        "metric.value * 1e6 if field in _IN_MIB",
        _SOURCE,
    ),
    Defect(
        "PCIe directions swapped",
        _COUNTERS,
        '"pcie_tx": nv.NVML_GPM_METRIC_PCIE_TX_PER_SEC',
        '"pcie_tx": nv.NVML_GPM_METRIC_PCIE_RX_PER_SEC',
        _SOURCE,
    ),
    Defect(
        "any tensor pipe for the half-precision one",
        _COUNTERS,
        '"tensor_hmma": nv.NVML_GPM_METRIC_HMMA_TENSOR_UTIL',
        '"tensor_hmma": nv.NVML_GPM_METRIC_IMMA_TENSOR_UTIL',
        _SOURCE,
    ),
    Defect(
        "half of FP32's operations in a cycle",
        _COUNTERS,
        "FlopPerCycle(4096.0, 256.0)",
        "FlopPerCycle(4096.0, 128.0)",
        _GPM,
    ),
    Defect(
        "the memory's rate without its factor of two",
        _GPU,
        "nv.nvmlDeviceGetMemoryBusWidth(handle) / 8 * clock * 2",
        "nv.nvmlDeviceGetMemoryBusWidth(handle) / 8 * clock",
        _SOURCE,
    ),
    Defect(
        "an older card's cores divided by the wrong number",
        _GPU,
        "{7: 64, 8: 64 if capability == (8, 0) else 128}",
        "{7: 64, 8: 64}",
        _SOURCE,
    ),
    Defect(
        "NVLink's KiB taken for bytes",
        _LINKS,
        "nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, 1024.0",
        "nv.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, 1.0",
        _MORE,
    ),
    Defect(
        "a counter that wrapped gives a negative rate",
        _LINKS,
        "if before is None or count < before[1] or now <= before[0]:",
        "if before is None or now <= before[0]:",
        _MORE,
    ),
    Defect(
        "an Xid counted on every GPU",
        _EVENTS,
        'values["xid_count"] = float(self._count.get(uuid, 0))',
        'values["xid_count"] = float(sum(self._count.values()))',
        _MORE,
    ),
    # metrics
    Defect(
        "memory in MB",
        _PROMETHEUS,
        "_MIB, _MILLI, _RATIO = 2.0**-20, 1e3, 0.01",
        "_MIB, _MILLI, _RATIO = 1e-6, 1e3, 0.01",
        _METRICS,
    ),
    Defect(
        "a share in percent",
        _PROMETHEUS,
        'DcgmField("DCGM_FI_PROF_SM_ACTIVE", _RATIO)',
        'DcgmField("DCGM_FI_PROF_SM_ACTIVE")',
        _METRICS,
    ),
    Defect(
        "used for free memory",
        _PROMETHEUS,
        '"mem_free": DcgmField("DCGM_FI_DEV_FB_FREE", _MIB)',
        '"mem_reserved_": DcgmField("DCGM_FI_DEV_FB_FREE", _MIB)',
        _METRICS,
    ),
    Defect(
        "single for double bit errors",
        _PROMETHEUS,
        '"ecc_uncorrected": DcgmField("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")',
        '"ecc_uncorrected": DcgmField("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")',
        _METRICS,
    ),
    Defect(
        "a device that cannot be read answers",
        _PROMETHEUS,
        "float(state.reading is not None))",
        "float(state.device.silent is None))",
        _METRICS,
    ),
    Defect(
        "a busy device shown as idle",
        _PROMETHEUS,
        "float(isinstance(state.use, Idle))",
        "float(not isinstance(state.use, Idle))",
        _METRICS,
    ),
    # telemetry
    Defect(
        "the rate of a job over one report",
        _RATE,
        "(t0, f0), (t1, f1) = self._points[0], self._points[-1]",
        "(t0, f0), (t1, f1) = self._points[-2], self._points[-1]",
        _MONITOR,
    ),
    Defect(
        "GFLOP/s shown as TFLOP/s",
        _RATE,
        "(t1 - t0) / 1e12",
        "(t1 - t0) / 1e9",
        _MONITOR,
    ),
    Defect(
        "the FLOPs of jobs on other devices",
        _STATES,
        "if rate is None or reading.device not in held_devices(job):",
        "if rate is None:",
        _MONITOR,
    ),
    Defect(
        "a reading of a lost probe shown as current",
        _STATES,
        "        self._current = frozenset()\n\n    def add(",
        "        pass\n\n    def add(",
        _MONITOR,
    ),
    Defect(
        "the assistant's own processes taken for others",
        _STATES,
        "programs = {p.name for p in reading.processes if not p.assistant}",
        "programs = {p.name for p in reading.processes}",
        _MONITOR,
    ),
    Defect(
        "an idle device despite foreign processes",
        _JUDGE,
        "    if sample.foreign:\n        return OtherProcesses(sample.foreign)\n",
        "",
        _IDLE,
    ),
    Defect(
        "evictions add to the dwell time instead of doubling it",
        _JUDGE,
        "base_s * 2.0**recent",
        "base_s * (1 + recent)",
        _IDLE,
    ),
    # the calibration
    Defect(
        "the correction applied the wrong way round",
        _COUNTERS,
        "found / 1e12 * self._clock.ratio(activity)",
        "found / 1e12 / self._clock.ratio(activity)",
        _CALIBRATION,
    ),
    Defect(
        "the calibration of another driver",
        "scheduler/protocol/calibration.py",
        "(c.device, c.vbios, c.driver) == wanted",
        "(c.device, c.vbios) == wanted[:2]",
        _CALIBRATION,
    ),
    Defect(
        "a correction on top of the one in force",
        "scheduler/services/calibration_service.py",
        "m.tflops / before.ratio(m.activity)",
        "m.tflops",
        _CALIBRATION,
    ),
    Defect(
        "the share of the tensor pipe taken for that of tensor kernels",
        "scheduler/protocol/calibration.py",
        "active / 100 * min(tensor / active / TENSOR_HALF, 1.0)",
        "tensor / 100",
        _CALIBRATION,
    ),
    Defect(
        "an error smaller than the largest deviation",
        "scheduler/telemetry/clock_fit.py",
        "errors[band] = max(errors[band], math.ceil(100 * off))",
        "errors[band] = min(errors[band], math.ceil(100 * off))",
        _CALIBRATION,
    ),
    Defect(
        "a counted rate that keeps the error of the counters",
        _STATES,
        'if f != "tflops_error"}',
        "if f}",
        _MONITOR,
    ),
    Defect(
        "a tour that accepts any counters",
        "app/tour/results.py",
        "abs(self.ratio - 1) <= MOST_OFF",
        "self.ratio - 1 <= MOST_OFF * 10",
        _TOUR,
    ),
    # alerts
    Defect(
        "the margin to the slow-down temperature with the wrong sign",
        _RULES,
        "        return -margin\n",
        "        return margin\n",
        _ALERTS,
    ),
    Defect(
        "memory as a share, not in percent",
        _RULES,
        "return 100 * used / total",
        "return used / total",
        _ALERTS,
    ),
    Defect(
        "a power limit alarms as an unwanted slow-down",
        _RULES,
        '        mark_phrase("power brake"),',
        '        mark_phrase("power limit"),',
        _ALERTS,
    ),
    Defect(
        "failed row remapping alarms nobody",
        _RULES,
        '    "rows_failure": mark_phrase("{n} failed remapping of a memory row"),\n',
        "",
        _ALERTS,
    ),
    Defect(
        "seconds for minutes without progress",
        _EVALUATOR,
        "(now - self._progress[job.id][1]) / _MINUTE_S",
        "(now - self._progress[job.id][1])",
        _ALERTS,
    ),
    Defect(
        "memory errors since ever, not within the hour",
        _EVALUATOR,
        "return count - past[0][1]",
        "return count",
        _ALERTS,
    ),
    Defect(
        "an alert that is raised at once",
        _HYSTERESIS,
        "if now - over >= thresholds.raise_s else",
        "if now - over >= 0 else",
        _ALERTS,
    ),
    Defect(
        "an alert that wavers around its limit",
        _HYSTERESIS,
        "if level >= thresholds.clear_at:",
        "if level >= thresholds.raise_at:",
        _ALERTS,
    ),
    # runner
    Defect(
        "the folder of the exit record not synced",
        _EXIT,
        "    sync(Path())\n",
        "",
        _RUNNER,
    ),
    Defect(
        "the exit record in its place before it is written",
        _EXIT,
        'new = file.with_suffix(".new")',
        "new = file",
        _RUNNER,
    ),
    Defect(
        "errors of the command lost",
        _RUN,
        "                stderr=log,\n",
        "                stderr=subprocess.DEVNULL,\n",
        _RUNNER,
    ),
    Defect(
        "no time limit",
        _RUN,
        'end.limit(launch.get("timeout", 0.0))',
        "end.limit(0.0)",
        _RUNNER,
    ),
    Defect(
        "every job at normal priority",
        "scheduler/executors/inheritance.py",
        'Inheritance(None, min(own + nice, NICEST), {}, "")',
        'Inheritance(None, own, {}, "")',
        _RUNNER,
    ),
    Defect(
        "a replaced file whose name is not on disk",
        "scheduler/protocol/paths.py",
        "    new.replace(file)\n    sync(file.parent)\n",
        "    new.replace(file)\n",
        _PATHS,
    ),
    Defect(
        "a name that a web page chose is a host of the metrics",
        _ENDPOINT,
        "return hosts is None or name in hosts or _is_address(name)",
        "return hosts is None or name in hosts or bool(name)",
        _STRANGERS,
    ),
    Defect(
        "as many threads of the metrics as there are connections",
        _ENDPOINT,
        "MAX_CONNECTIONS = 32",
        "MAX_CONNECTIONS = 3200",
        _STRANGERS,
    ),
    Defect(
        "the error of counters for rates that a job counted",
        _TRACE,
        'if values.get("tflops") == values["tflops_gpm"]:',
        'if values.get("tflops") != values["tflops_gpm"]:',
        _TRACES,
    ),
    Defect(
        "a difference to the other device, its sign aside",
        _OPERANDS,
        'return _of_one(of, peers - devices, fields, "")',
        'return _of_one(of, devices, fields, "")',
        _CHECKER,
    ),
    Defect(
        "a sum of devices that is off by a unit",
        _SUMS,
        "most = 0.5 * step_of",
        "most = 1.5 * step_of",
        _CHECKER,
    ),
    Defect(
        "an hour and a half of an hour",
        _LENGTHS,
        'return _amount(_number(found["count"]) + 0.5, found["unit"])',
        'return _amount(_number(found["count"]), found["unit"])',
        _CHECKER,
    ),
    Defect(
        "a decay of the erasing key that belongs to the token itself",
        _CHUNKS,
        "beside_a = tl.exp(sums - w) if EXCLUSIVE else tl.exp(sums)",
        "beside_a = tl.exp(sums)",
        _RECURRENCES,
    ),
    Defect(
        "corrections that are written without their decay to the chunk's end",
        _SCAN,
        "state += product(u * left, gains, COMPUTE, PRECISION)",
        "state += product(u, gains, COMPUTE, PRECISION)",
        _RECURRENCES,
    ),
    Defect(
        "corrections loaded ahead from the wrong chunk",
        _SCAN,
        "constants_ptr, first + CHUNK, tokens,",
        "constants_ptr, first, tokens,",
        _RECURRENCES,
    ),
    Defect(
        "gradients of queries that begin with the last state's where there is no first one",
        _ONE_PASS,
        "start, blank = dlast_ptr, of_q",
        "start, blank = dlast_ptr, role < 0",
        _RECURRENCES,
    ),
    Defect(
        "the first sequence's decays for all of a batch",
        "accel/primitives/linear_attention/single_pass.py",
        "decay.shape[n] > 1 for n in (0, 1)",
        "decay.shape[n] > 1 for n in (1,)",
        _RECURRENCES,
    ),
    Defect(
        "a last chunk that decays as if it were whole",
        _ONE_PASS,
        "state *= tl.exp(decay * length)",
        "state *= tl.exp(decay * CHUNK)",
        _RECURRENCES,
    ),
    Defect(
        "the gradient of a key that forgets that it is written, too",
        _LINEAR_GRADIENTS,
        "da += db * betas(",
        "da += 0.0 * db * betas(",
        _RECURRENCES,
    ),
    Defect(
        "the gradient of decays without the state that outlives its chunk",
        _LINEAR_GRADIENTS,
        "dend = tl.where(block == 0, dend * tl.sum(tl.exp(whole), 0), 0.0)",
        "dend = tl.where(block == 0, 0.0 * dend, 0.0)",
        _RECURRENCES,
    ),
    Defect(
        "chunks whose decays are too strong to be computed at once",
        _CHUNKS,
        "mild = tl.max(furthest, 0) <= MILD",
        "mild = tl.max(furthest, 0) <= 100.0 * MILD",
        _RECURRENCES,
    ),
    Defect(
        "a prompt's state that is left transposed",
        "accel/rwkv/prompt.py",
        "state.copy_(found.state.mT)",
        "state.copy_(found.state)",
        ("tests/unit/accel/rwkv/test_rwkv_gpu.py",),
    ),
    Defect(
        "one of several owners was busy",
        "assistant/writing/checker/statements.py",
        "all(_was(of, s, claim) for s in who)",
        "any(_was(of, s, claim) for s in who)",
        _CHECKER,
    ),
    Defect(
        "a denied count is that of what is so",
        "assistant/writing/checker/amounts.py",
        "        if negated:\n",
        "        if negated and not count:\n",
        _CHECKER,
    ),
    Defect(
        "an engine that waits is not told to stop",
        "accel/serving/engine.py",
        "            stopping.set()\n            with self._lock:\n"
        "                self._lock.notify()\n",
        "            stopping.set()\n",
        _SERVING,
    ),
    Defect(
        "a penalty that makes unlikely tokens likelier",
        "accel/serving/sampler.py",
        "found / sampling.repetition, found * sampling.repetition",
        "found / sampling.repetition, found / sampling.repetition",
        _SERVING,
    ),
    Defect(
        "a lease that is over while the driver lists its process",
        "scheduler/lease/lease.py",
        "if any(process.assistant for process in self._last.processes):",
        "if not self._last.processes and self.running:",
        ("tests/unit/scheduler/test_lease.py",),
    ),
    Defect(
        "a lease that is over while its memory is taken",
        "scheduler/lease/lease.py",
        "free + others >= self._free_before - SLACK",
        "free + others >= 0",
        ("tests/unit/scheduler/test_lease.py",),
    ),
    Defect(
        "a clock that is set back delays alerts",
        "scheduler/telemetry/hysteresis.py",
        "0 <= now - state.evaluated <= gap_s",
        "now - state.evaluated <= gap_s",
        _ALERTS,
    ),
    Defect(
        "the backward pass explained with the operations of the forward pass",
        "accel/attention/dispatch.py",
        '(2.5 if direction == "backward" else 1.0)',
        "1.0",
        ("tests/unit/accel/test_attention_prediction.py",),
    ),
    Defect(
        "a lesson on the backward pass with the operations of the forward pass",
        "accel/attention/lessons.py",
        '(2.5 if direction == "backward" else 1.0)',
        "1.0",
        _LEARNING,
    ),
    Defect(
        "lessons count rounds that the host launched too late",
        "accel/runtime/brief_timing.py",
        "is_fair = rounds > 0 and host_ms <= wait",
        "is_fair = rounds > 0",
        _LEARNING,
    ),
    Defect(
        "a lesson for shapes of twice the size",
        "accel/lessons/store.py",
        "OCTAVE = 4\n",
        "OCTAVE = 0.4\n",
        _LEARNING,
    ),
    Defect(
        "layers keep the recipe that they have",
        "accel/precision/conversion.py",
        "type(layer) is nn.Linear or (isinstance(layer, Fp8Linear) and layer.recipe != recipe)",
        "type(layer) is nn.Linear",
        ("tests/unit/accel/test_precision.py",),
    ),
    Defect(
        "a request is admitted without room for its next token",
        "accel/serving/scheduler.py",
        "sequence.storage.missing(len(sequence.tokens) + 1)",
        "sequence.storage.missing(len(sequence.tokens))",
        ("tests/unit/accel/serving/test_serving_schedules.py",),
    ),
    # sixty more, chosen without a look at the tests
    Defect(
        "a place for members does not count unless it can be opened",
        "scheduler/executors/lock_places.py",
        "or os.access(place / GPUS, os.R_OK | os.W_OK):",
        "or not os.access(place / GPUS, os.R_OK | os.W_OK):",
        ("tests/unit/scheduler/test_gpu_locks.py",),
    ),
    Defect(
        "a toast stays for seconds taken as milliseconds",
        "app/widgets/toast.py",
        "self.timer.setInterval(round(1000 * seconds))",
        "self.timer.setInterval(round(seconds))",
        ("tests/gui/test_toasts.py",),
    ),
    Defect(
        "followers of followers get no environment",
        "scheduler/queue/undo.py",
        "if any(number in self._kept or number in followers for number in job.spec.after):",
        "if any(number in self._kept for number in job.spec.after):",
        ("tests/unit/scheduler/test_queue_undo.py",),
    ),
    Defect(
        "batch axes of a matmul are aligned at the left",
        "accel/inject/equation.py",
        "batch[len(batch) - (a - 2) :], batch[len(batch) - (b - 2) :]",
        "batch[: a - 2], batch[: b - 2]",
        ("tests/unit/accel/inject/test_equation.py",),
    ),
    Defect(
        "uses are counted twice",
        "accel/lessons/usage.py",
        "        for c in counts:\n            c.noted = (c.calls, c.backward)\n",
        "        for c in counts:\n            c.noted = (0, 0)\n",
        ("tests/unit/accel/test_attention_usage.py",),
    ),
    Defect(
        "a lost GPU is only a missing value",
        "scheduler/devices/nvidia/errors.py",
        "if error.value in _LOST:",
        "if error.value not in _LOST:",
        ("tests/unit/scheduler/test_nvml_source.py",),
    ),
    Defect(
        "a note may hold any number of characters",
        "scheduler/verbs/note.py",
        "if len(self.text) > MAX_NOTE:",
        "if len(self.text) < 0:",
        ("tests/integration/test_notes.py",),
    ),
    Defect(
        "lines of a log after a gap are numbered from its beginning",
        "assistant/retrieval/job_logs.py",
        "offset = part.end - len(data)",
        "offset = part.start",
        ("tests/unit/assistant/test_retrieval.py",),
    ),
    Defect(
        "last lines of the table of tiles are of no expert",
        "accel/primitives/gemm/grouped_kernels.py",
        "after[None, :] <= line[:, None]",
        "after[None, :] < line[:, None]",
        ("tests/unit/accel/test_gemm.py",),
    ),
    Defect(
        "pinned rows draw one column in the place of another",
        "app/jobs/pinned_rows.py",
        "shown = [c for c in range(model.columnCount()) if not table.isColumnHidden(c)]",
        "shown = [c for c in range(model.columnCount()) if table.isColumnHidden(c)]",
        ("tests/gui/test_jobs_table.py",),
    ),
    Defect(
        "FP8 weights are scaled by their block's mean",
        "accel/serving/linear.py",
        "scales = tiles.abs().amax(dim=(1, 3)).clamp_min(1e-30) / _FP8_MOST",
        "scales = tiles.abs().mean(dim=(1, 3)).clamp_min(1e-30) / _FP8_MOST",
        ("tests/unit/accel/serving/test_serving_families.py",),
    ),
    Defect(
        "readings are written to disk again and again",
        "scheduler/store/keeper.py",
        "self._buffers[device].saved = len(self._buffers[device])",
        "self._buffers[device].saved = 0",
        ("tests/unit/scheduler/test_history.py",),
    ),
    Defect(
        "each sequence of a batch starts from the first state",
        "accel/primitives/linear_attention/chunked.py",
        "x.state[n : n + 1]",
        "x.state[:1]",
        ("tests/unit/accel/test_linear_attention.py",),
    ),
    Defect(
        "citations name one line of several",
        "assistant/retrieval/passage.py",
        "if self.first == self.last",
        "if self.first <= self.last",
        ("tests/unit/assistant/test_retrieval.py",),
    ),
    Defect(
        "parts of keys are no multiple of a tile",
        "accel/attention/kernels/portable/forward.py",
        "chunk = cdiv(cdiv(keys, wanted), block_n) * block_n",
        "chunk = cdiv(keys, wanted)",
        ("tests/unit/accel/test_portable_attention.py",),
    ),
    Defect(
        "root's limits of niceness are off by sign",
        "scheduler/executors/inheritance.py",
        'wanted = min(max(int(inherited["nice"]), -NICEST - 1) + nice, NICEST)',
        'wanted = min(max(int(inherited["nice"]), -NICEST - 1) - nice, NICEST)',
        ("tests/integration/test_inherited.py",),
    ),
    Defect(
        "the number of open files of a job is limited twice",
        "scheduler/executors/inheritance.py",
        'if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE":',
        'if name.startswith("RLIMIT_") and name != "RLIMIT_NOFILE":',
        ("tests/integration/test_inherited.py",),
    ),
    Defect(
        "zigzag gives a rank two neighbouring pieces",
        "accel/distributed/sharding.py",
        "_joined([pieces[rank], pieces[-1 - rank]])",
        "_joined([pieces[2 * rank], pieces[2 * rank + 1]])",
        ("tests/unit/accel/distributed/test_distributed_tiles.py",),
    ),
    Defect(
        "a window's pairs are counted one short",
        "accel/attention/problem.py",
        "_sum_of_clamped(n, shift + self.right + 1, self.seq_k)",
        "_sum_of_clamped(n, shift + self.right, self.seq_k)",
        ("tests/unit/accel/test_problem.py",),
    ),
    Defect(
        "counted FLOPs of a job on another device are added",
        "scheduler/telemetry/monitor.py",
        "if rate is None or reading.device not in held_devices(job):",
        "if rate is None:",
        ("tests/unit/scheduler/test_monitor.py",),
    ),
    Defect(
        "the counters' error stands beside a counted number",
        "scheduler/telemetry/monitor.py",
        'if f != "tflops_error"',
        'if f != "tflops"',
        ("tests/unit/scheduler/test_monitor.py",),
    ),
    Defect(
        "a size may be timed above the most",
        "accel/search/declared.py",
        "0 < size.low <= size.high and size.timed > 0",
        "0 < size.low and size.timed > 0",
        ("tests/unit/accel/search/test_declared.py",),
    ),
    Defect(
        "an infinite mask is taken as finite",
        "accel/inject/fuse.py",
        "finite = not math.isinf(form.hidden[0][1])",
        "finite = math.isinf(form.hidden[0][1])",
        ("tests/unit/accel/inject/test_causal.py",),
    ),
    Defect(
        "columns that fit are dropped",
        "app/cli/devices/screen.py",
        "+ len(_GAP) * (len(kept) - 1) <= width",
        "+ len(_GAP) * (len(kept) + 9) <= width",
        ("tests/unit/app/test_app_terminal.py",),
    ),
    Defect(
        "the end of a stream carries no usage",
        "assistant/serve/replies.py",
        "        if with_usage:\n            last +=",
        "        if not with_usage:\n            last +=",
        ("tests/integration/test_serve.py",),
    ),
    Defect(
        "an unreadable file stops the scan",
        "accel/inject/rewrite.py",
        'e.line, "leave", "", e.why))\n            continue',
        'e.line, "leave", "", e.why))\n            break',
        ("tests/unit/accel/inject/test_scan.py",),
    ),
    Defect(
        "hours are told as minutes",
        "app/format/values.py",
        'if seconds >= 3600.0 else f"{seconds // 60.0:.0f} min"\n    return tr("{time} ago"',
        'if seconds >= 7200.0 else f"{seconds // 60.0:.0f} min"\n    return tr("{time} ago"',
        ("tests/unit/app/test_app_format.py",),
    ),
    Defect(
        "evictions of the future count",
        "scheduler/telemetry/idle.py",
        "at <= now for at in evictions",
        "at for at in evictions",
        ("tests/unit/scheduler/test_idle_judge.py",),
    ),
    Defect(
        "groups of findings that were open close",
        "app/cleanup/find_tree.py",
        "was_open.get(group.kind, few)",
        "few",
        ("tests/gui/test_clean_page.py",),
    ),
    Defect(
        "the reset button shows beside the default",
        "app/settings/setting_row.py",
        "self.reset.setVisible(text != self._default)",
        "self.reset.setVisible(text == self._default)",
        ("tests/gui/test_settings_page.py",),
    ),
    Defect(
        "a refreshed value replaces what is being typed",
        "app/settings/setting_row.py",
        "if self.text() == text or typing or self.error.isVisibleTo(self):",
        "if self.text() == text or self.error.isVisibleTo(self):",
        ("tests/gui/test_settings_page.py",),
    ),
    Defect(
        "weight files in other folders are opened",
        "accel/serving/files.py",
        "if Path(name).name != name or not",
        "if not",
        ("tests/unit/accel/serving/test_serving_families.py",),
    ),
    Defect(
        "half an hour is an hour",
        "assistant/intents/moments.py",
        'return "30min"',
        'return "1h"',
        ("tests/unit/assistant/test_times.py",),
    ),
    Defect(
        "a result whose verdict is known needs its state told, too",
        "assistant/writing/writer.py",
        '(fact.name.endswith(".state") and fact.subject not in measured)',
        'fact.name.endswith(".state")',
        ("tests/unit/assistant/test_template.py",),
    ),
    Defect(
        "scales of columns end one block early",
        "accel/workloads/gemm.py",
        "-(-(first + count) // step)]",
        "(first + count - 1) // step]",
        ("tests/unit/accel/test_workloads.py",),
    ),
    Defect(
        "progress is measured in seconds against minutes",
        "scheduler/telemetry/alerts.py",
        "(now - self._progress[job.id][1]) / _MINUTE_S",
        "(now - self._progress[job.id][1])",
        ("tests/unit/scheduler/test_alerts.py",),
    ),
    Defect(
        "lines are counted from zero",
        "accel/inject/scan.py",
        'line = module.source.text.count("\\n", 0, found.start()) + 1',
        'line = module.source.text.count("\\n", 0, found.start())',
        ("tests/unit/accel/inject/test_scan.py",),
    ),
    Defect(
        "reports of jobs are written later although they are off",
        "assistant/host/report_writer.py",
        "        if not self._settings.reports:\n            forget()",
        "        if self._settings.reports:\n            forget()",
        ("tests/integration/test_report_writer.py",),
    ),
    Defect(
        "a failed job of another machine offers its folder here",
        "app/jobs/failure_view.py",
        "self.folder.setVisible(not job.spec.where)",
        "self.folder.setVisible(bool(job.spec.where))",
        ("tests/gui/test_jobs_failure.py",),
    ),
)
