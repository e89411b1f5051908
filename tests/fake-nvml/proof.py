"""The checks of proof.sh: calls the stand-in through nvidia-ml-py, and reads the output of gpustat and
nvitop. The expected values are those of the state file that proof.sh writes."""

import json
import os
import re
import sys
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p, cast, create_string_buffer
from pathlib import Path

import pynvml as nvml

GIB = 1 << 30
H100, RTX = "GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-bbbbbbbb-0000-0000-0000-000000000002"
scratch, (trainer, server, viewer) = Path(sys.argv[1]), map(int, sys.argv[2:])
state_file = Path(os.environ["FAKE_NVML_STATE"])


def same(what, got, expected):
    if got != expected:
        sys.exit(f"proof: {what}: got {got!r}, expected {expected!r}")


def fails(what, code, call, *args):
    """Requires that the call raises exactly this NVML error."""
    try:
        got = call(*args)
    except nvml.NVMLError as error:
        same(what, error.value, code)
    else:
        sys.exit(f"proof: {what}: got {got!r}, expected error {code}")


def symbol(name):
    """A function of the C library, for calls that nvidia-ml-py does not allow."""
    return getattr(nvml.nvmlLib, name)


def number(handle):
    return cast(handle, c_void_p).value


def rename_state(change):
    """Replaces the state as tests do: writes a file beside it, then renames it."""
    state = json.loads(state_file.read_text())
    change(state)
    fresh = state_file.with_suffix(".new")
    fresh.write_text(json.dumps(state))
    fresh.rename(state_file)


def processes(listed):
    unset = 0xFFFFFFFF
    return [(p.pid, p.usedGpuMemory, p.gpuInstanceId == p.computeInstanceId == unset) for p in listed]


def values():
    same("driver", nvml.nvmlSystemGetDriverVersion(), "580.65.06")
    same("NVML", nvml.nvmlSystemGetNVMLVersion(), "13.580.65.06")
    same("CUDA", nvml.nvmlSystemGetCudaDriverVersion(), 13000)
    same("count", nvml.nvmlDeviceGetCount(), 2)
    h100, rtx = (nvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    same("name", nvml.nvmlDeviceGetName(h100), "NVIDIA H100 80GB HBM3")
    same("uuid", nvml.nvmlDeviceGetUUID(rtx), RTX)
    same("by uuid", number(nvml.nvmlDeviceGetHandleByUUID(RTX)), number(rtx))
    same("by bus", number(nvml.nvmlDeviceGetHandleByPciBusId(b"0000:1c:00.0")), number(rtx))
    same("index, minor", (nvml.nvmlDeviceGetIndex(rtx), nvml.nvmlDeviceGetMinorNumber(rtx)), (1, 1))
    pci = nvml.nvmlDeviceGetPciInfo(h100)
    same("pci", (pci.busId, pci.busIdLegacy, pci.bus), ("00000000:1B:00.0", "0000:1B:00.0", 0x1B))

    v1 = nvml.nvmlDeviceGetMemoryInfo(h100)
    v2 = nvml.nvmlDeviceGetMemoryInfo(h100, version=nvml.nvmlMemory_v2)
    same("memory v1", (v1.total, v1.used, v1.free), (80 * GIB, 60 * GIB + GIB // 2, 19 * GIB + GIB // 2))
    same("memory v2", (v2.reserved, v2.used, v2.free), (GIB // 2, 60 * GIB, 19 * GIB + GIB // 2))
    fails("memory v3", 25, nvml.nvmlDeviceGetMemoryInfo, h100, 0x03000028)

    rates = nvml.nvmlDeviceGetUtilizationRates(h100)
    same("utilization", (rates.gpu, rates.memory), (98, 40))
    same("temperature", nvml.nvmlDeviceGetTemperature(h100, nvml.NVML_TEMPERATURE_GPU), 71)
    same("temperature V", nvml.nvmlDeviceGetTemperatureV(h100, nvml.NVML_TEMPERATURE_GPU), 71)
    same("power", nvml.nvmlDeviceGetPowerUsage(h100), 688000)
    same("limit", nvml.nvmlDeviceGetEnforcedPowerLimit(h100), 700000)
    same("fan", nvml.nvmlDeviceGetFanSpeed(rtx), 33)
    fails("no fan", 3, nvml.nvmlDeviceGetFanSpeed, h100)
    uncorrected = (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC)
    same("ecc", nvml.nvmlDeviceGetTotalEccErrors(h100, *uncorrected), 3)
    fails("no ecc", 3, nvml.nvmlDeviceGetTotalEccErrors, rtx, *uncorrected)
    same("mig", nvml.nvmlDeviceGetMigMode(h100), [0, 0])
    fails("no mig", 3, nvml.nvmlDeviceGetMigMode, rtx)
    same("clock", nvml.nvmlDeviceGetMaxClockInfo(h100, nvml.NVML_CLOCK_SM), 1980)
    fails("a sensor without a value", 3, nvml.nvmlDeviceGetTemperatureThreshold, h100, 0)

    both = [(trainer, 40 * GIB, True), (server, 20 * GIB, True)]
    same("compute v2", processes(nvml.nvmlDeviceGetComputeRunningProcesses_v2(h100)), both)
    same("compute v3", processes(nvml.nvmlDeviceGetComputeRunningProcesses_v3(h100)), both)
    same("graphics", processes(nvml.nvmlDeviceGetGraphicsRunningProcesses(h100)), [])
    same("compute+graphics", processes(nvml.nvmlDeviceGetGraphicsRunningProcesses(rtx)), [(viewer, None, True)])
    samples = nvml.nvmlDeviceGetProcessUtilization(h100, 0)
    same("samples", [(s.pid, s.smUtil, s.memUtil) for s in samples], [(trainer, 97, 38), (server, 1, 0)])
    fails("no newer sample", 6, nvml.nvmlDeviceGetProcessUtilization, h100, samples[0].timeStamp + 10**9)
    fails("no sample", 6, nvml.nvmlDeviceGetProcessUtilization, rtx, 0)
    return h100, rtx


def health(h100, rtx):
    """Field values with their types and codes, rows, pages, throttling and PCIe."""
    fields = nvml.nvmlDeviceGetFieldValues(h100, [4, 82, 142, 143, 144, 145, 186, 230, 9999])
    told = [(f.nvmlReturn, f.valueType) for f in fields]
    whole, long = (0, nvml.NVML_VALUE_TYPE_UNSIGNED_INT), (0, nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
    same("field codes and types", told[:3] + told[4:8], [long] + [whole] * 6)
    same("a field that fails alone", [fields[3].nvmlReturn, fields[8].nvmlReturn], [999, 3])
    same("field 4", fields[0].value.ullVal, 3)
    same("fields", [fields[at].value.uiVal for at in (1, 2, 4, 5, 6, 7)], [66, 2, 1, 0, 688000, 2])
    same("a field it does not have", nvml.nvmlDeviceGetFieldValues(rtx, [82])[0].nvmlReturn, 3)
    same("rows", nvml.nvmlDeviceGetRemappedRows(h100), (2, 0, 1, 0))
    fails("no rows", 3, nvml.nvmlDeviceGetRemappedRows, rtx)
    same("pages", [len(nvml.nvmlDeviceGetRetiredPages(rtx, cause)) for cause in (0, 1)], [3, 0])
    pages = nvml.nvmlDeviceGetRetiredPages_v2(rtx, 0)
    same("pages v2", [page["address"] for page in pages], nvml.nvmlDeviceGetRetiredPages(rtx, 0))
    same("pages pending", nvml.nvmlDeviceGetRetiredPagesPendingStatus(rtx), 1)
    fails("no pages", 3, nvml.nvmlDeviceGetRetiredPages, h100, 0)
    slowed = nvml.nvmlClocksThrottleReasonHwThermalSlowdown | nvml.nvmlClocksThrottleReasonHwSlowdown
    same("throttled", nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h100), slowed)
    same("throttled, new name", nvml.nvmlDeviceGetCurrentClocksEventReasons(h100), slowed)
    link = nvml.nvmlDeviceGetCurrPcieLinkGeneration(rtx), nvml.nvmlDeviceGetCurrPcieLinkWidth(rtx)
    best = nvml.nvmlDeviceGetMaxPcieLinkGeneration(rtx), nvml.nvmlDeviceGetMaxPcieLinkWidth(rtx)
    same("link", (link, best), ((1, 8), (4, 16)))


def divided(h100):
    """The H100 cut into MIG devices: two compute instances share GPU instance 2; index 4 is 9/0."""
    whole = json.loads(state_file.read_text())
    part = {"multiprocessors": 60, "copy_engines": 3, "decoders": 2, "jpegs": 4, "gpu_slices": 3}
    cuts = [
        {"gpu_instance": 2, "compute_instance": 0, "memory": {"total": 40448 << 20}, "attributes": part},
        {"gpu_instance": 2, "compute_instance": 1, "uuid": "MIG-cccccccc"},
        {"gpu_instance": 9, "compute_instance": 0, "index": 4},
    ]

    def cut(state):
        state["gpus"][0].update(mig=True, instances=cuts)
        for process, (gi, ci) in zip(state["gpus"][0]["processes"], [(2, 0), (2, 1)]):
            process.update(gpu_instance=gi, compute_instance=ci)

    rename_state(cut)
    same("mig on", nvml.nvmlDeviceGetMigMode(h100), [1, 1])
    fails("utilization of a divided GPU", 3, nvml.nvmlDeviceGetUtilizationRates, h100)
    fails("samples of a divided GPU", 3, nvml.nvmlDeviceGetProcessUtilization, h100, 0)
    at = nvml.nvmlDeviceGetMigDeviceHandleByIndex
    fails("a hole", 6, at, h100, 2)
    fails("past the last", 2, at, h100, nvml.nvmlDeviceGetMaxMigDeviceCount(h100))
    migs = [at(h100, index) for index in (0, 1, 4)]
    ids = [(nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig)) for mig in migs]
    same("instances", ids, [(2, 0), (2, 1), (9, 0)])
    kinds = [nvml.nvmlDeviceIsMigDeviceHandle(device).value for device in (h100, migs[0])]
    same("is MIG", kinds, [0, 1])
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(migs[2])
    same("parent", number(parent), number(h100))
    same("by MIG uuid", number(nvml.nvmlDeviceGetHandleByUUID("MIG-cccccccc")), number(migs[1]))
    same("MIG name", nvml.nvmlDeviceGetName(migs[2]), "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    memory = [nvml.nvmlDeviceGetMemoryInfo(mig, version=nvml.nvmlMemory_v2) for mig in migs]
    seen = [(m.total >> 20, m.used) for m in memory]
    same("memory by GPU instance", seen, [(40448, 60 * GIB), (40448, 60 * GIB), (9984, 0)])
    a = nvml.nvmlDeviceGetAttributes_v2(migs[0])
    seen = a.multiprocessorCount, a.sharedCopyEngineCount, a.sharedDecoderCount, a.sharedEncoderCount
    same("attributes", seen, (60, 3, 2, 0))
    seen = a.sharedJpegCount, a.sharedOfaCount, a.gpuInstanceSliceCount, a.computeInstanceSliceCount
    same("attributes, rest", (*seen, a.memorySizeMB), (4, 0, 3, 1, 40448))
    listed = [[(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in
               nvml.nvmlDeviceGetComputeRunningProcesses_v3(device)] for device in (h100, *migs)]
    one, two = (trainer, 2, 0), (server, 2, 1)
    same("lists", listed, [[one, two], [one], [two], []])
    fails("a sensor of an instance", 3, nvml.nvmlDeviceGetTemperature, migs[0], 0)
    fails("an instance id of a whole GPU", 3, nvml.nvmlDeviceGetGpuInstanceId, h100)
    rename_state(lambda state: state["gpus"][0].update(mig_mode_raw=7, instances=cuts[1:]))
    same("an unknown mode", nvml.nvmlDeviceGetMigMode(h100), [7, 7])
    fails("an instance that is gone", 2, nvml.nvmlDeviceGetName, migs[0])
    rename_state(lambda state: state.update(whole))


def protocol(h100):
    """Behaviour on which careful C programs rely, and which must not crash careless ones."""
    listing = symbol("nvmlDeviceGetComputeRunningProcesses")
    count = c_uint(1)
    room = (c_ulonglong * 4)(*[0xAA] * 4)
    same("list too small", (listing(h100, byref(count), room), count.value, room[0]), (7, 2, 0xAA))
    same("list", listing(h100, byref(count), room), 0)
    pids = [word & 0xFFFFFFFF for word in room[::2]]  # the rest of the word is padding
    same("v1 layout", (pids, room[1::2]), ([trainer, server], [40 * GIB, 20 * GIB]))
    same("no count", listing(h100, None, room), 2)
    name = create_string_buffer(8)
    same("text too small", symbol("nvmlDeviceGetName")(h100, name, c_uint(8)), 7)
    same("text to NULL", symbol("nvmlDeviceGetName")(h100, None, c_uint(8)), 2)
    for handle in (None, c_void_p(1), c_void_p(number(h100) + 2)):
        same("an unknown handle", symbol("nvmlDeviceGetIndex")(handle, byref(count)), 2)
    fails("index out of range", 2, nvml.nvmlDeviceGetHandleByIndex, 2)
    fails("an unknown uuid", 6, nvml.nvmlDeviceGetHandleByUUID, "GPU-none")
    wording = symbol("nvmlErrorString")
    wording.restype = c_char_p
    same("wording", (wording(15), wording(12345)), (b"GPU is lost", b"Unknown Error"))


def events(h100, rtx):
    events = nvml.nvmlEventSetCreate()
    old = {"id": 1, "gpu": 0, "type": nvml.nvmlEventTypeXidCriticalError, "data": 13}
    rename_state(lambda state: state.update(events=[old]))
    nvml.nvmlDeviceRegisterEvents(h100, nvml.nvmlDeviceGetSupportedEventTypes(h100), events)
    fails("no event since", 10, nvml.nvmlEventSetWait_v2, events, 20)
    elsewhere = {**old, "id": 2, "gpu": 1}
    new = {**old, "id": 3, "data": 79, "gpu_instance": 2, "compute_instance": 1}
    rename_state(lambda state: state.update(events=[old, elsewhere, new, {**old, "id": 4}]))
    first, second = (nvml.nvmlEventSetWait_v2(events, 0) for _ in range(2))
    seen = first.eventType, first.eventData, first.gpuInstanceId, first.computeInstanceId
    same("event", seen, (8, 79, 2, 1))
    same("event device", [number(e.device) for e in (first, second)], [number(h100)] * 2)
    seen = second.eventData, second.gpuInstanceId, second.computeInstanceId
    same("event of no instance", seen, (13, 0xFFFFFFFF, 0xFFFFFFFF))
    fails("returned once", 10, nvml.nvmlEventSetWait_v2, events, 20)
    fails("an unsupported event", 3, nvml.nvmlDeviceRegisterEvents, rtx, 1 << 40, events)
    rename_state(lambda state: state.update(event_wait_error=15))
    fails("wait", 15, nvml.nvmlEventSetWait_v2, events, 20)
    rename_state(lambda state: state.update(event_wait_error=0, events=[]))
    nvml.nvmlEventSetFree(events)
    fails("a set that was freed", 2, nvml.nvmlEventSetWait_v2, events, 20)


def changes(h100, rtx):
    """The library follows changes of the state, and handles stay with their GPU."""
    rename_state(lambda state: state["gpus"].reverse())
    same("index after reordering", nvml.nvmlDeviceGetIndex(h100), 1)
    rename_state(lambda state: state["gpus"][0].update(lost=True))
    fails("lost", 15, nvml.nvmlDeviceGetTemperature, rtx, 0)
    fails("lost, by index", 15, nvml.nvmlDeviceGetHandleByIndex, 0)
    same("the other one", nvml.nvmlDeviceGetTemperature(h100, 0), 71)
    rename_state(lambda state: state["gpus"][1].update(errors={"nvmlDeviceGetPowerUsage": 16}))
    fails("named fault", 16, nvml.nvmlDeviceGetPowerUsage, h100)
    rename_state(lambda state: state["gpus"].pop(0))
    fails("gone", 15, nvml.nvmlDeviceGetName, rtx)
    rename_state(lambda state: state.update(nonsense=1))
    same("last good state", nvml.nvmlDeviceGetCount(), 1)


def sessions(h100):
    """nvmlInit is counted; before the first and after the last no function works."""
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    same("one user left", nvml.nvmlDeviceGetIndex(h100), 0)
    nvml.nvmlShutdown()
    fails("no user left", 1, nvml.nvmlDeviceGetIndex, h100)
    fails("shutdown too many", 1, nvml.nvmlShutdown)
    fails("invalid at init", 999, nvml.nvmlInit)
    rename_state(lambda state: (state.pop("nonsense"), state.update(init_error=18)))
    fails("init error", 18, nvml.nvmlInit)
    del os.environ["FAKE_NVML_STATE"]
    fails("no state file", 9, nvml.nvmlInit)


def gpustat():
    gpus = json.loads((scratch / "gpustat.json").read_text())["gpus"]
    keys = ["uuid", "temperature.gpu", "fan.speed", "utilization.gpu", "power.draw", "memory.used", "memory.total"]
    seen = [[gpu[key] for key in keys] for gpu in gpus]
    same("gpustat", seen, [[H100, 71, None, 98, 688, 61440, 81920], [RTX, 44, 33, 7, 60, 1024, 24564]])
    same("gpustat, a fault is not a 0", [gpu["utilization.enc"] for gpu in gpus], [0, None])
    used = [{p["pid"]: p["gpu_memory_usage"] for p in gpu["processes"]} for gpu in gpus]
    same("gpustat processes", used, [{trainer: 40960, server: 20480}, {viewer: None}])


def nvitop():
    text = (scratch / "nvitop.txt").read_text()
    for line in [
        r"Driver Version: 580\.65\.06 +CUDA Driver Version: 13\.0",
        r"0 +H100 80GB HBM3 +Off . 00000000:1B:00\.0 Off . Disabled +3 ",
        r"N/A +71C +P0 +688W / 700W . +60\.00GiB / 80\.00GiB . +98% ",
        r"1 +GeForce RTX 4090 +Off . 00000000:1C:00\.0 Off . +N/A +N/A ",
        r"33% +44C +P0 +60W / 450W . +1024MiB / 23\.99GiB . +7% ",
        rf"0 +{trainer} C .* 40\.00GiB +97 +38 .* sleep 600",
        rf"0 +{server} C .* 20\.00GiB +1 +0 .* sleep 601",
        rf"1 +{viewer} X .* N/A +N/A +N/A .* sleep 602",
    ]:
        if not re.search(line, text):
            sys.exit(f"proof: nvitop did not print {line!r}")


gpustat()
nvitop()
nvml.nvmlInit()
h100, rtx = values()
health(h100, rtx)
divided(h100)
protocol(h100)
events(h100, rtx)
changes(h100, rtx)
sessions(h100)
print("proof: nvidia-ml-py, gpustat and nvitop report the machine of the state file")
