/* Records what a process and its children do to the files below one folder, and lets calls fail.
 *
 * Loaded by LD_PRELOAD; recording.py compiles it, sets these variables and reads the log.
 *
 *   RECORDER_FOLDER  the folder, an absolute path without symbolic links
 *   RECORDER_LOG     the log, outside of that folder: one record after the other; may be unset
 *   RECORDER_LOCK    a file of at least 4096 zero bytes, which makes all the processes take turns
 *   RECORDER_FAULTS  calls that fail, "CALL:N:ERRNO:PATTERN", several with ";" in between
 *
 * CALL is write (of any kind), fsync (or fdatasync), open, link, rename or unlink. N counts the
 * calls of this process whose path matches PATTERN, from 1; "N+" lets all the later ones fail too.
 * ERRNO is a number. A call that fails does nothing.
 *
 * A program that is loaded with this may change its faults by recorder_faults, which tells how many
 * calls have failed since the last time.
 *
 * A call and its record are one step under the lock, so the log has the order in which things
 * happened. What a mapping of a file changes is not seen.
 */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#define open hidden_open
#define open64 hidden_open64
#define openat hidden_openat
#define openat64 hidden_openat64
#include <fcntl.h>
#undef open
#undef open64
#undef openat
#undef openat64
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, WRITE, TRUNCATE, ALLOCATE, LINK, RENAME, UNLINK, MKDIR, RMDIR, SYNC, CLOSE, FAULT };

struct record {
    uint32_t call;
    uint32_t process;
    uint64_t device;
    uint64_t inode;
    int64_t offset; /* of a write or an allocation; the new size for TRUNCATE */
    uint32_t path_size;
    uint32_t other_size;
    uint64_t data_size; /* for ALLOCATE the length, and no data follows */
};

struct fault {
    char call[16];
    long number;
    int and_later;
    int error;
    char pattern[256];
    long seen;
};

static char folder[PATH_MAX];
static size_t folder_size;
static char log_path[PATH_MAX];
static pthread_mutex_t *turn;
static struct fault faults[16];
static int fault_count;
static int faults_fired;

static void die(const char *what) {
    fprintf(stderr, "recorder: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) die(name);
    return found;
}

#define REAL(result, name, ...)                                   \
    static result (*real)(__VA_ARGS__);                           \
    if (!real) real = (result (*)(__VA_ARGS__))next(name)

static void read_faults(const char *text) {
    char copy[4096], *rest = copy, *one;
    snprintf(copy, sizeof copy, "%s", text);
    while ((one = strsep(&rest, ";"))) {
        struct fault *fault = &faults[fault_count];
        char plus = 0;
        if (!*one) continue;
        if (fault_count == 16) die("too many faults");
        if (sscanf(one, "%15[a-z]:%ld:%d:%255s", fault->call, &fault->number, &fault->error,
                   fault->pattern) != 4) {
            if (sscanf(one, "%15[a-z]:%ld%c:%d:%255s", fault->call, &fault->number, &plus,
                       &fault->error, fault->pattern) != 5 || plus != '+')
                die("RECORDER_FAULTS");
        }
        fault->and_later = plus == '+';
        fault_count++;
    }
}

/* Lies before the mutex, so that the first of several processes makes it. */
struct shared {
    uint32_t made;
    pthread_mutex_t mutex;
};

__attribute__((constructor)) static void start(void) {
    const char *text = getenv("RECORDER_FOLDER"), *lock = getenv("RECORDER_LOCK");
    if (!text || !lock) return;
    int descriptor = syscall(SYS_openat, AT_FDCWD, lock, O_RDWR | O_CLOEXEC, 0);
    if (descriptor < 0) die(lock);
    struct shared *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (shared == MAP_FAILED) die("mmap");
    syscall(SYS_close, descriptor);
    uint32_t none = 0;
    if (__atomic_compare_exchange_n(&shared->made, &none, 1, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
        pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&shared->mutex, &kind);
        __atomic_store_n(&shared->made, 2, __ATOMIC_SEQ_CST);
    }
    while (__atomic_load_n(&shared->made, __ATOMIC_SEQ_CST) != 2) usleep(100);
    turn = &shared->mutex;
    if ((text = getenv("RECORDER_LOG"))) snprintf(log_path, sizeof log_path, "%s", text);
    if ((text = getenv("RECORDER_FAULTS"))) read_faults(text);
    snprintf(folder, sizeof folder, "%s", getenv("RECORDER_FOLDER"));
    folder_size = strlen(folder);
}

int recorder_faults(const char *text) {
    int fired = faults_fired;
    fault_count = faults_fired = 0;
    memset(faults, 0, sizeof faults);
    read_faults(text);
    return fired;
}

/* A process that was killed while it had the lock had no half record: one write appends each. */
static void take_turn(void) {
    if (pthread_mutex_lock(turn) == EOWNERDEAD) pthread_mutex_consistent(turn);
}

static void end_turn(void) {
    int error = errno;
    pthread_mutex_unlock(turn);
    errno = error;
}

static int is_inside(const char *path) {
    return folder_size && !strncmp(path, folder, folder_size) && path[folder_size] == '/' &&
           strcmp(path, log_path);
}

/* Put the absolute path of a name into *path*, which has PATH_MAX bytes; false if not inside. */
static int path_of_name(int directory, const char *name, char *path) {
    char given[PATH_MAX], parent[PATH_MAX], start[PATH_MAX] = "";
    if (!folder_size || !name) return 0;
    if (*name != '/') {
        if (directory == AT_FDCWD) {
            if (syscall(SYS_getcwd, start, sizeof start - 1) < 0) return 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
            ssize_t size = readlink(link, start, sizeof start - 1);
            if (size < 0) return 0;
            start[size] = 0;
        }
    }
    if (snprintf(given, sizeof given, "%s/%s", start, name) >= (int)sizeof given) return 0;
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/') given[--length] = 0;
    char *last = strrchr(given, '/');
    *last = 0;
    int error = errno;
    char *found = realpath(*given ? given : "/", parent);
    errno = error;
    if (!found) return 0;
    if (snprintf(path, PATH_MAX, "%s/%s", strcmp(parent, "/") ? parent : "", last + 1) >= PATH_MAX)
        return 0;
    return is_inside(path);
}

/* The same for a descriptor; the folder itself counts too, since it can be synced. */
static int path_of_file(int descriptor, char *path) {
    char link[64];
    if (!folder_size) return 0;
    int error = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    errno = error;
    if (size < 0) return 0;
    path[size] = 0;
    return is_inside(path) || !strcmp(path, folder);
}

static void append(uint32_t call, const struct stat *file, int64_t offset, const char *path,
                   const char *other, const struct iovec *data, int parts, uint64_t size) {
    if (!*log_path) return;
    int error = errno;
    uint64_t left = data ? size : 0;
    struct record record = {call, (uint32_t)getpid(), file ? file->st_dev : 0,
                            file ? file->st_ino : 0, offset, (uint32_t)strlen(path),
                            other ? (uint32_t)strlen(other) : 0, size};
    size_t all = sizeof record + record.path_size + record.other_size + left;
    char *whole = malloc(all), *end = whole;
    if (!whole) die("malloc");
    end = mempcpy(end, &record, sizeof record);
    end = mempcpy(end, path, record.path_size);
    if (other) end = mempcpy(end, other, record.other_size);
    for (int part = 0; part < parts && left; part++) {
        size_t some = data[part].iov_len < left ? data[part].iov_len : left;
        end = mempcpy(end, data[part].iov_base, some);
        left -= some;
    }
    int descriptor =
        syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) die(log_path);
    if (syscall(SYS_write, descriptor, whole, all) != (long)all) die("write to the log");
    syscall(SYS_close, descriptor);
    free(whole);
    errno = error;
}

static void append_file(uint32_t call, int descriptor, int64_t offset, const char *path,
                        uint64_t size) {
    struct stat file;
    if (fstat(descriptor, &file)) die("fstat");
    append(call, &file, offset, path, NULL, NULL, 0, size);
}

/* Tell whether this call is to fail, and set errno then. */
static int fails(const char *call, const char *path) {
    for (int number = 0; number < fault_count; number++) {
        struct fault *fault = &faults[number];
        if (strcmp(fault->call, call) || fnmatch(fault->pattern, path, 0)) continue;
        fault->seen++;
        if (fault->seen == fault->number || (fault->and_later && fault->seen > fault->number)) {
            faults_fired++;
            append(FAULT, NULL, fault->error, path, call, NULL, 0, 0);
            errno = fault->error;
            return 1;
        }
    }
    return 0;
}

/* ---- opening and closing ------------------------------------------------------------------ */

static int open_recorded(int directory, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    struct stat file;
    if (!path_of_name(directory, name, path)) /* O_TMPFILE names a folder: nothing has a name then */
        return syscall(SYS_openat, directory, name, flags, mode);
    take_turn();
    int error = errno;
    int was_there = !fstatat(AT_FDCWD, path, &file, AT_SYMLINK_NOFOLLOW);
    errno = error;
    int unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    int result = fails("open", path) ? -1 : (int)syscall(SYS_openat, directory, name, flags, mode);
    if (result >= 0 && !unnamed) {
        if (!was_there && flags & O_CREAT) append_file(CREATE, result, 0, path, 0);
        else if (flags & O_TRUNC) append_file(TRUNCATE, result, 0, path, 0);
    }
    end_turn();
    return result;
}

#define MODE(flags)                                                        \
    mode_t mode = 0;                                                       \
    if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {       \
        va_list rest;                                                      \
        va_start(rest, flags);                                             \
        mode = (mode_t)va_arg(rest, int);                                  \
        va_end(rest);                                                      \
    }

int open(const char *name, int flags, ...) {
    MODE(flags)
    return open_recorded(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    MODE(flags)
    return open_recorded(AT_FDCWD, name, flags, mode);
}
int openat(int directory, const char *name, int flags, ...) {
    MODE(flags)
    return open_recorded(directory, name, flags, mode);
}
int openat64(int directory, const char *name, int flags, ...) {
    MODE(flags)
    return open_recorded(directory, name, flags, mode);
}
int __open_2(const char *name, int flags) { return open_recorded(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return open_recorded(AT_FDCWD, name, flags, 0); }
int creat(const char *name, mode_t mode) {
    return open_recorded(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int creat64(const char *name, mode_t mode) { return creat(name, mode); }

int close(int descriptor) {
    char path[PATH_MAX];
    REAL(int, "close", int);
    if (!path_of_file(descriptor, path)) return real(descriptor);
    take_turn();
    append_file(CLOSE, descriptor, 0, path, 0);
    int result = real(descriptor);
    end_turn();
    return result;
}

/* ---- content ------------------------------------------------------------------------------ */

/* *offset* is -1 for a write at the descriptor's own position. */
static ssize_t write_recorded(int descriptor, const struct iovec *data, int parts, off_t offset,
                              const char *path) {
    struct stat file;
    take_turn();
    ssize_t size = -1;
    if (!fails("write", path))
        size = offset < 0 ? syscall(SYS_writev, descriptor, data, parts)
                          : syscall(SYS_pwritev, descriptor, data, parts, offset, 0);
    if (size >= 0) {
        if (fstat(descriptor, &file)) die("fstat");
        if (offset < 0) offset = lseek(descriptor, 0, SEEK_CUR) - size;
        append(WRITE, &file, offset, path, NULL, data, parts, (uint64_t)size);
    }
    end_turn();
    return size;
}

ssize_t write(int descriptor, const void *data, size_t size) {
    char path[PATH_MAX];
    if (!path_of_file(descriptor, path)) {
        REAL(ssize_t, "write", int, const void *, size_t);
        return real(descriptor, data, size);
    }
    struct iovec part = {(void *)data, size};
    return write_recorded(descriptor, &part, 1, -1, path);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t offset) {
    char path[PATH_MAX];
    if (!path_of_file(descriptor, path)) {
        REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
        return real(descriptor, data, size, offset);
    }
    struct iovec part = {(void *)data, size};
    return write_recorded(descriptor, &part, 1, offset, path);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) {
    return pwrite64(descriptor, data, size, offset);
}
ssize_t writev(int descriptor, const struct iovec *data, int parts) {
    char path[PATH_MAX];
    if (!path_of_file(descriptor, path)) {
        REAL(ssize_t, "writev", int, const struct iovec *, int);
        return real(descriptor, data, parts);
    }
    return write_recorded(descriptor, data, parts, -1, path);
}
ssize_t pwritev64(int descriptor, const struct iovec *data, int parts, off64_t offset) {
    char path[PATH_MAX];
    if (!path_of_file(descriptor, path)) {
        REAL(ssize_t, "pwritev64", int, const struct iovec *, int, off64_t);
        return real(descriptor, data, parts, offset);
    }
    return write_recorded(descriptor, data, parts, offset, path);
}
ssize_t pwritev(int descriptor, const struct iovec *data, int parts, off_t offset) {
    return pwritev64(descriptor, data, parts, offset);
}

/* The kernel copies by itself here; who asks is told to read and write instead. */
ssize_t sendfile64(int target, int source, off64_t *offset, size_t size) {
    char path[PATH_MAX];
    REAL(ssize_t, "sendfile64", int, int, off64_t *, size_t);
    if (!path_of_file(target, path)) return real(target, source, offset, size);
    errno = EINVAL;
    return -1;
}
ssize_t sendfile(int target, int source, off_t *offset, size_t size) {
    return sendfile64(target, source, offset, size);
}
ssize_t copy_file_range(int source, off64_t *from, int target, off64_t *to, size_t size,
                        unsigned flags) {
    char path[PATH_MAX];
    if (!path_of_file(target, path))
        return syscall(SYS_copy_file_range, source, from, target, to, size, flags);
    errno = EXDEV;
    return -1;
}

int ftruncate64(int descriptor, off64_t size) {
    char path[PATH_MAX];
    REAL(int, "ftruncate64", int, off64_t);
    if (!path_of_file(descriptor, path)) return real(descriptor, size);
    take_turn();
    int result = real(descriptor, size);
    if (!result) append_file(TRUNCATE, descriptor, size, path, 0);
    end_turn();
    return result;
}
int ftruncate(int descriptor, off_t size) { return ftruncate64(descriptor, size); }

static int truncate_recorded(const char *name, off64_t size) {
    int descriptor = open_recorded(AT_FDCWD, name, O_WRONLY | O_CLOEXEC, 0);
    if (descriptor < 0) return -1;
    int result = ftruncate64(descriptor, size);
    syscall(SYS_close, descriptor);
    return result;
}
int truncate64(const char *name, off64_t size) { return truncate_recorded(name, size); }
int truncate(const char *name, off_t size) { return truncate_recorded(name, size); }

int fallocate64(int descriptor, int mode, off64_t offset, off64_t size) {
    char path[PATH_MAX];
    if (!path_of_file(descriptor, path))
        return syscall(SYS_fallocate, descriptor, mode, offset, size);
    if (mode) { /* punching holes and the like: nobody here does, so it is not understood */
        errno = EOPNOTSUPP;
        return -1;
    }
    take_turn();
    int result = syscall(SYS_fallocate, descriptor, mode, offset, size);
    if (!result) append_file(ALLOCATE, descriptor, offset, path, (uint64_t)size);
    end_turn();
    return result;
}
int fallocate(int descriptor, int mode, off_t offset, off_t size) {
    return fallocate64(descriptor, mode, offset, size);
}
int posix_fallocate64(int descriptor, off64_t offset, off64_t size) {
    int before = errno, error = fallocate64(descriptor, 0, offset, size) ? errno : 0;
    errno = before;
    return error;
}
int posix_fallocate(int descriptor, off_t offset, off_t size) {
    return posix_fallocate64(descriptor, offset, size);
}

/* ---- syncing ------------------------------------------------------------------------------ */

static int sync_recorded(int descriptor, int (*real)(int)) {
    char path[PATH_MAX];
    if (!path_of_file(descriptor, path)) return real(descriptor);
    take_turn();
    int result = fails("fsync", path) ? -1 : real(descriptor);
    if (!result) append_file(SYNC, descriptor, 0, path, 0);
    end_turn();
    return result;
}
int fsync(int descriptor) {
    REAL(int, "fsync", int);
    return sync_recorded(descriptor, real);
}
int fdatasync(int descriptor) {
    REAL(int, "fdatasync", int);
    return sync_recorded(descriptor, real);
}

/* ---- names -------------------------------------------------------------------------------- */

static void append_name(uint32_t call, const char *path, const char *other) {
    struct stat file;
    memset(&file, 0, sizeof file);
    fstatat(AT_FDCWD, other ? other : path, &file, AT_SYMLINK_NOFOLLOW);
    append(call, &file, 0, path, other, NULL, 0, 0);
}

int linkat(int from, const char *name, int to, const char *other, int flags) {
    char path[PATH_MAX], target[PATH_MAX];
    if (!path_of_name(to, other, target)) return syscall(SYS_linkat, from, name, to, other, flags);
    if (!path_of_name(from, name, path)) *path = 0; /* from outside, or by /proc: known by inode */
    take_turn();
    int result = fails("link", target) ? -1 : (int)syscall(SYS_linkat, from, name, to, other, flags);
    if (!result) append_name(LINK, path, target);
    end_turn();
    return result;
}
int link(const char *name, const char *other) {
    return linkat(AT_FDCWD, name, AT_FDCWD, other, 0);
}

int renameat2(int from, const char *name, int to, const char *other, unsigned flags) {
    char path[PATH_MAX], target[PATH_MAX];
    int leaves = path_of_name(from, name, path), enters = path_of_name(to, other, target);
    if (!leaves && !enters) return syscall(SYS_renameat2, from, name, to, other, flags);
    if (leaves != enters) { /* into the folder or out of it: whoever does that must copy */
        errno = EXDEV;
        return -1;
    }
    take_turn();
    int result =
        fails("rename", target) ? -1 : (int)syscall(SYS_renameat2, from, name, to, other, flags);
    if (!result) append_name(RENAME, path, target);
    end_turn();
    return result;
}
int renameat(int from, const char *name, int to, const char *other) {
    return renameat2(from, name, to, other, 0);
}
int rename(const char *name, const char *other) {
    return renameat2(AT_FDCWD, name, AT_FDCWD, other, 0);
}

int unlinkat(int directory, const char *name, int flags) {
    char path[PATH_MAX];
    if (!path_of_name(directory, name, path)) return syscall(SYS_unlinkat, directory, name, flags);
    take_turn();
    int result = fails("unlink", path) ? -1 : (int)syscall(SYS_unlinkat, directory, name, flags);
    if (!result) append(flags & AT_REMOVEDIR ? RMDIR : UNLINK, NULL, 0, path, NULL, NULL, 0, 0);
    end_turn();
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int directory, const char *name, mode_t mode) {
    char path[PATH_MAX];
    if (!path_of_name(directory, name, path)) return syscall(SYS_mkdirat, directory, name, mode);
    take_turn();
    int result = syscall(SYS_mkdirat, directory, name, mode);
    if (!result) append_name(MKDIR, path, NULL);
    end_turn();
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
