/* A stand-in for libcuda.so.1 that suspends processes as recorded on an H200 with driver 580.
 *
 * Its state is in the folder STUB_CUDA, so it survives the helper: PID.state (0 running, 1 locked,
 * 2 checkpointed, 3 failed), PID.size (GPU memory in bytes), total (of the GPU), hold.HELPER.N (bytes
 * that a helper holds while it lives), uuid (of the GPU, 32 hexadecimal digits). The file CALL.code makes a call return a code, CALL.hang makes it
 * hang once, and a call about a stopped process returns when it goes on. A restore without room returns 2, and from then on everything returns 304. */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <fcntl.h>

typedef unsigned long long u64;
static unsigned holds;

static char *path(const char *form, long a, long b) {
    static _Thread_local char text[2][512];
    static _Thread_local int turn;
    char name[128];
    snprintf(name, sizeof name, form, a, b);
    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "%s/%s", getenv("STUB_CUDA"), name);
    return text[turn];
}

static long long get(const char *file, long long otherwise) {
    FILE *f = fopen(file, "r");
    if (!f) return otherwise;
    long long value = otherwise;
    if (fscanf(f, "%lld", &value) != 1) value = otherwise;
    fclose(f);
    return value;
}

static void put(const char *file, long long value) {
    char new[600];
    snprintf(new, sizeof new, "%s.%d.new", file, gettid());
    FILE *f = fopen(new, "w");
    fprintf(f, "%lld\n", value);
    fclose(f);
    rename(new, file);
}

static int lock(void) {
    int fd = open(path("lock", 0, 0), O_RDWR | O_CREAT, 0600);
    flock(fd, LOCK_EX);
    return fd;
}

static long long find_free(void) {
    long long left = get(path("total", 0, 0), 0);
    DIR *folder = opendir(getenv("STUB_CUDA"));
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        int pid, n, used = 0;
        if (sscanf(entry->d_name, "%d.size%n", &pid, &used) == 1 && used && !entry->d_name[used]) {
            long long state = get(path("%ld.state", pid, 0), 0);
            if (state < 2 && !kill(pid, 0)) left -= get(path("%ld.size", pid, 0), 0);
        } else if (sscanf(entry->d_name, "hold.%d.%d%n", &pid, &n, &used) == 2 && used && !entry->d_name[used]) {
            if (!kill(pid, 0)) left -= get(path("hold.%ld.%ld", pid, n), 0);
        }
    }
    closedir(folder);
    return left;
}

static int is_stopped(int pid) {
    char file[64], text[512];
    snprintf(file, sizeof file, "/proc/%d/stat", pid);
    FILE *f = fopen(file, "r");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *end = strrchr(text, ')');
    return end && end[2] == 'T';
}

/* Return the injected code of a call, and hang where that is injected. */
static int inject(const char *call, int pid) {
    char name[64];
    snprintf(name, sizeof name, "%s.hang", call);
    if (!unlink(path(name, 0, 0))) for (;;) pause();
    snprintf(name, sizeof name, "%s.slow", call);
    usleep(1000 * get(path(name, 0, 0), 0));
    snprintf(name, sizeof name, "%s.%d.code", call, pid);
    long long code = get(path(name, 0, 0), 0);
    snprintf(name, sizeof name, "%s.code", call);
    return code ? code : get(path(name, 0, 0), 0);
}

static int change(const char *call, int pid, int from, int to) {
    int code = inject(call, pid);
    if (code) return code;
    if (kill(pid, 0)) return 1;
    while (is_stopped(pid)) usleep(10000);
    int fd = lock();
    long long state = get(path("%ld.state", pid, 0), 0), size = get(path("%ld.size", pid, 0), 0);
    if (state == 3) code = 304;
    else if (state != from) code = 401;
    else if (!strcmp(call, "restore") && find_free() < size) {
        code = 2;
        put(path("%ld.state", pid, 0), 3);
    } else put(path("%ld.state", pid, 0), to);
    FILE *f = fopen(path("calls", 0, 0), "a");
    fprintf(f, "%s %d %d\n", call, pid, code);
    fclose(f);
    close(fd);
    return code;
}

int cuInit(unsigned flags) { return (int)get(path("init.code", 0, 0), 0); }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorName(int code, const char **name) {
    *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 304 ? "CUDA_ERROR_OPERATING_SYSTEM"
        : code == 401 ? "CUDA_ERROR_ILLEGAL_STATE" : code == 600 ? "CUDA_ERROR_NOT_READY"
        : code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}
int cuCheckpointProcessGetState(int pid, int *state) {
    int code = inject("state", pid);
    if (code) return code;
    while (is_stopped(pid)) usleep(10000);
    if (access(path("%ld.size", pid, 0), F_OK)) return 1;
    *state = (int)get(path("%ld.state", pid, 0), 0);
    return 0;
}
int cuCheckpointProcessLock(int pid, void *arguments) { return change("lock", pid, 0, 1); }
int cuCheckpointProcessCheckpoint(int pid, void *arguments) { return change("checkpoint", pid, 1, 2); }
int cuCheckpointProcessRestore(int pid, void *arguments) { return change("restore", pid, 2, 1); }
int cuCheckpointProcessUnlock(int pid, void *arguments) { return change("unlock", pid, 1, 0); }

int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0xAB, 16);
    FILE *f = fopen(path("uuid", 0, 0), "r");
    for (unsigned i = 0, byte; f && i < 16 && fscanf(f, "%2x", &byte) == 1; i++) uuid[i] = byte;
    if (f) fclose(f);
    return 0;
}
int cuMemGetAllocationGranularity(size_t *size, const void *wanted, int option) { *size = 2 << 20; return 0; }
int cuMemCreate(u64 *handle, size_t size, const void *wanted, u64 flags) {
    int fd = lock(), code = 0;
    if (find_free() < (long long)size) code = 2;
    else {
        *handle = ++holds;
        put(path("hold.%ld.%ld", getpid(), (long)*handle), (long long)size);
    }
    close(fd);
    return code;
}
int cuMemRelease(u64 handle) { return unlink(path("hold.%ld.%ld", getpid(), (long)handle)) ? 1 : 0; }
