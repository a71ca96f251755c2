/* The driver's library at the hardware's edge, with the signatures of nvml.h: two GPUs, of which the
   second shares its memory with the CPU and has neither fan nor power limits. */
#include <string.h>

typedef void *Device;
enum { OK = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
static char devices[2];
static int of(Device device) { return (int)((char *)device - devices); }

const char *nvmlErrorString(int error) { return error == NOT_SUPPORTED ? "Not Supported" : "Failed"; }
int nvmlInit_v2(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) { *device = devices + index; return OK; }
static int text(const char *from, char *to, unsigned length) {
    if (strlen(from) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return OK;
}
int nvmlSystemGetDriverVersion(char *to, unsigned length) { return text("550.54.15", to, length); }
int nvmlDeviceGetUUID(Device d, char *to, unsigned length) { return text(of(d) ? "GPU-b" : "GPU-a", to, length); }
int nvmlDeviceGetName(Device d, char *to, unsigned length) { return text(of(d) ? "NVIDIA GB10" : "NVIDIA H100", to, length); }
int nvmlDeviceGetMemoryInfo(Device d, struct { unsigned long long total, free, used; } *found) {
    if (of(d)) return NOT_SUPPORTED;
    found->total = 80ULL << 30; found->free = 60ULL << 30; found->used = 20ULL << 30;
    return OK;
}
int nvmlDeviceGetUtilizationRates(Device d, struct { unsigned gpu, memory; } *found) {
    found->gpu = 37 + of(d); found->memory = 12;
    return OK;
}
int nvmlDeviceGetTemperature(Device d, int sensor, unsigned *found) {
    if (sensor) return NOT_SUPPORTED;
    *found = 61 + of(d);
    return OK;
}
int nvmlDeviceGetPowerUsage(Device d, unsigned *found) { *found = 250500 + of(d); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(Device d, unsigned *found) { *found = 400000; return of(d) ? NOT_SUPPORTED : OK; }
int nvmlDeviceGetPowerManagementLimitConstraints(Device d, unsigned *low, unsigned *high) {
    *low = 100000; *high = 450000;
    return of(d) ? NOT_SUPPORTED : OK;
}
int nvmlDeviceGetClockInfo(Device d, int kind, unsigned *found) { *found = kind == 1 ? 1410 : 2619; return OK; }
int nvmlDeviceGetFanSpeed(Device d, unsigned *found) { *found = 30; return of(d) ? NOT_SUPPORTED : OK; }

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned *count, Process *found) {
    if (*count < 2) return INSUFFICIENT_SIZE;
    *count = of(d) ? 0 : 2;
    if (!of(d)) {
        found[0] = (Process){1, 5ULL << 30, ~0u, ~0u};
        found[1] = (Process){2, ~0ULL, ~0u, ~0u};
    }
    return OK;
}
