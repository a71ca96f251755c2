/* Let system calls on the folders of jobs fail in the daemon and in runners.

   Preloaded into the daemon, which passes it on to its runners. One plan, shared by all processes
   in a mapped file, says which access fails; file_faults.py writes it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOWHERE -1
#define MAX_FDS 4096

struct plan {               /* file_faults.Plan writes the same */
    int role;               /* whose accesses fail: 1 the daemon, 2 a runner; 0 nobody's */
    int error;              /* errno */
    int lasting;            /* 1: every later access to that job's folder fails, too */
    int countdown;          /* the access fails at which this becomes 0 */
    int struck;             /* how many accesses failed */
    int job;                /* job of the first one; 0 for a folder that all jobs share */
    int accesses[3];        /* by role, for the choice of the next countdown */
    char call[92];          /* name of the first call that failed */
    char folders[2][1024];  /* the folders that are watched: of the jobs, and of their attempts */
    char files[1024];       /* how the names of files that are watched begin; empty for none */
};

static struct plan *plan;
static int role;
static pid_t self;          /* a child shares our memory until it executes its program */
static int cwd_job = NOWHERE;
static int fd_job[MAX_FDS]; /* job + 2 of an open file; 0: none of ours */

__attribute__((constructor)) static void begin(void)
{
    char words[4096] = {0};
    const char *file = getenv("FAULTS_PLAN");
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, words, sizeof words - 1);
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < size; i++)
        if (!words[i])
            words[i] = ' ';
    int found = strstr(words, "scheduler.daemon") ? 1 : strstr(words, "/runner.py") ? 2 : 0;
    if (!found || !file || (fd = open(file, O_RDWR | O_CLOEXEC)) < 0)
        return;
    struct plan *map = mmap(NULL, sizeof *map, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED)
        plan = map, role = found, self = getpid();
}

static int job_of_fd(int fd)
{
    return plan && fd >= 0 && fd < MAX_FDS && fd_job[fd] ? fd_job[fd] - 2 : NOWHERE;
}

static int job_of(int folder, const char *path)
{
    if (!plan || !path)
        return NOWHERE;
    if (path[0] != '/')
        return folder == AT_FDCWD ? cwd_job : job_of_fd(folder);
    if (plan->files[0] && !strncmp(path, plan->files, strlen(plan->files)))
        return 0;
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(plan->folders[i]);
        if (length && !strncmp(path, plan->folders[i], length) &&
            (path[length] == '/' || !path[length]))
            return i == 0 && path[length] ? atoi(path + length + 1) : 0;
    }
    return NOWHERE;
}

static int fails(int job, const char *call)
{
    if (!plan || job == NOWHERE)
        return 0;
    __atomic_add_fetch(&plan->accesses[role], 1, __ATOMIC_SEQ_CST);
    if (plan->struck && plan->lasting && plan->role && plan->job == job) {
        __atomic_add_fetch(&plan->struck, 1, __ATOMIC_SEQ_CST);
        errno = plan->error;
        return 1;
    }
    if (plan->role != role || plan->struck ||
        __atomic_sub_fetch(&plan->countdown, 1, __ATOMIC_SEQ_CST))
        return 0;
    plan->job = job;
    strncpy(plan->call, call, sizeof plan->call - 1);
    __atomic_store_n(&plan->struck, 1, __ATOMIC_SEQ_CST);
    errno = plan->error;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, int job)
{
    if (plan && fd >= 0 && fd < MAX_FDS && getpid() == self)
        fd_job[fd] = job == NOWHERE ? 0 : job + 2;
    return fd;
}

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPEN(name)                                            \
    int name(const char *path, int flags, ...)                \
    {                                                         \
        va_list more;                                         \
        va_start(more, flags);                                \
        mode_t mode = mode_of(flags, more);                   \
        va_end(more);                                         \
        int job = job_of(AT_FDCWD, path);                     \
        if (fails(job, #name))                                \
            return -1;                                        \
        return opened(REAL(name)(path, flags, mode), job);    \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                \
    int name(int folder, const char *path, int flags, ...)          \
    {                                                               \
        va_list more;                                               \
        va_start(more, flags);                                      \
        mode_t mode = mode_of(flags, more);                         \
        va_end(more);                                               \
        int job = job_of(folder, path);                             \
        if (fails(job, #name))                                      \
            return -1;                                              \
        return opened(REAL(name)(folder, path, flags, mode), job);  \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int fd)
{
    opened(fd, NOWHERE);
    return REAL(close)(fd);
}

/* Calls on a path, on a descriptor, and on a path beside a folder's descriptor. */
#define ON_PATH(type, name, params, args) \
    type name params { return fails(job_of(AT_FDCWD, path), #name) ? -1 : REAL(name) args; }
#define ON_FD(type, name, params, args) \
    type name params { return fails(job_of_fd(fd), #name) ? -1 : REAL(name) args; }
#define AT_FOLDER(type, name, params, args) \
    type name params { return fails(job_of(folder, path), #name) ? -1 : REAL(name) args; }

ON_PATH(int, stat, (const char *path, struct stat *found), (path, found))
ON_PATH(int, stat64, (const char *path, struct stat64 *found), (path, found))
ON_PATH(int, lstat, (const char *path, struct stat *found), (path, found))
ON_PATH(int, lstat64, (const char *path, struct stat64 *found), (path, found))
ON_PATH(int, mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, rmdir, (const char *path), (path))
ON_PATH(int, unlink, (const char *path), (path))
ON_PATH(int, access, (const char *path, int mode), (path, mode))
ON_PATH(int, chmod, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, rename, (const char *path, const char *to), (path, to))
ON_PATH(int, link, (const char *path, const char *to), (path, to))

AT_FOLDER(int, fstatat, (int folder, const char *path, struct stat *found, int flags),
          (folder, path, found, flags))
AT_FOLDER(int, fstatat64, (int folder, const char *path, struct stat64 *found, int flags),
          (folder, path, found, flags))
AT_FOLDER(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode))
AT_FOLDER(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
AT_FOLDER(int, faccessat, (int folder, const char *path, int mode, int flags),
          (folder, path, mode, flags))
AT_FOLDER(int, fchmodat, (int folder, const char *path, mode_t mode, int flags),
          (folder, path, mode, flags))
AT_FOLDER(int, renameat, (int folder, const char *path, int other, const char *to),
          (folder, path, other, to))

ON_FD(int, fstat, (int fd, struct stat *found), (fd, found))
ON_FD(int, fstat64, (int fd, struct stat64 *found), (fd, found))
ON_FD(ssize_t, read, (int fd, void *data, size_t size), (fd, data, size))
ON_FD(ssize_t, pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at))
ON_FD(ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at))
ON_FD(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
ON_FD(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_FD(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_FD(off_t, lseek, (int fd, off_t at, int whence), (fd, at, whence))
ON_FD(off64_t, lseek64, (int fd, off64_t at, int whence), (fd, at, whence))
ON_FD(int, fsync, (int fd), (fd))
ON_FD(int, fdatasync, (int fd), (fd))
ON_FD(int, ftruncate, (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, (int fd, off64_t size), (fd, size))
ON_FD(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
ON_FD(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
ON_FD(int, fchmod, (int fd, mode_t mode), (fd, mode))
int flock(int fd, int what);
ON_FD(int, flock, (int fd, int what), (fd, what))

int chdir(const char *path)
{
    int job = job_of(AT_FDCWD, path);
    if (fails(job, "chdir"))
        return -1;
    int done = REAL(chdir)(path);
    if (!done && path[0] == '/' && getpid() == self)
        cwd_job = job;
    return done;
}

/* A runner is started with an empty environment; this library is passed on to it. */
int execve(const char *file, char *const words[], char *const variables[])
{
    int runs = 0, count = 0;
    for (int i = 0; words[i]; i++)
        runs |= strstr(words[i], "/runner.py") != NULL;
    while (variables[count])
        count++;
    if (role != 1 || !runs)
        return REAL(execve)(file, words, variables);
    char *more[count + 3], library[2048], where[2048];
    snprintf(library, sizeof library, "LD_PRELOAD=%s", getenv("LD_PRELOAD"));
    snprintf(where, sizeof where, "FAULTS_PLAN=%s", getenv("FAULTS_PLAN"));
    memcpy(more, variables, count * sizeof *variables);
    more[count] = library, more[count + 1] = where, more[count + 2] = NULL;
    return REAL(execve)(file, words, more);
}
