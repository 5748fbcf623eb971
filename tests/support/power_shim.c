/* Logs what a process writes to the files of a folder, and when it syncs them, for tests/integration/test_power_failure.py.

   Loaded with LD_PRELOAD. POWER_FOLDER: the folder. POWER_LOG: the log, of records
       kind ('W' write, 'T' truncate, 'S' sync, 'U' unlink)  u8
       length of the path  u16, of the data  u32, offset  u64
       the path, the data
   A sync's offset is the number of records that were logged when it began: what came later may not be on the disk.
   The folder itself has the path ".": its sync makes names and their removal last. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int out = -1;
static uint64_t records;

static ssize_t (*next_write)(int, const void *, size_t);

static const char *inside(const char *path) {
    const char *folder = getenv("POWER_FOLDER");
    if (!folder || strncmp(path, folder, strlen(folder))) return NULL;
    path += strlen(folder);
    return *path == '/' ? path + 1 : *path ? NULL : ".";
}

static const char *path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return inside(path);
}

static void put(const void *data, size_t size) {
    const char *rest = data;
    while (size) {
        ssize_t done = next_write(out, rest, size);
        if (done <= 0) abort();
        rest += done;
        size -= done;
    }
}

/* With the lock held. */
static void record(char kind, const char *path, uint64_t offset, const void *data, uint32_t size) {
    if (!next_write) next_write = dlsym(RTLD_NEXT, "write");
    if (out < 0) out = open(getenv("POWER_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    uint16_t length = strlen(path);
    put(&kind, 1);
    put(&length, 2);
    put(&size, 4);
    put(&offset, 8);
    put(path, length);
    if (size) put(data, size);
    records++;
}

static ssize_t logged_pwrite(const char *name, int fd, const void *data, size_t size, off64_t offset) {
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, name);
    char buffer[PATH_MAX];
    const char *path = path_of(fd, buffer);
    if (!path) return next(fd, data, size, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = next(fd, data, size, offset);
    if (done > 0) record('W', path, offset, data, done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    return logged_pwrite("pwrite64", fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return logged_pwrite("pwrite", fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size) {
    char buffer[PATH_MAX];
    if (!next_write) next_write = dlsym(RTLD_NEXT, "write");
    const char *path = path_of(fd, buffer);
    if (!path) return next_write(fd, data, size);
    pthread_mutex_lock(&lock);
    off64_t offset = lseek64(fd, 0, SEEK_CUR);
    ssize_t done = next_write(fd, data, size);
    if (done > 0) record('W', path, fcntl(fd, F_GETFL) & O_APPEND ? (uint64_t)lseek64(fd, 0, SEEK_CUR) - done : (uint64_t)offset, data, done);
    pthread_mutex_unlock(&lock);
    return done;
}

static int logged_sync(const char *name, int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, name);
    char buffer[PATH_MAX];
    const char *path = path_of(fd, buffer);
    if (!path) return next(fd);
    pthread_mutex_lock(&lock);
    uint64_t begun = records;
    pthread_mutex_unlock(&lock);
    int done = next(fd);
    pthread_mutex_lock(&lock);
    if (done == 0) record('S', path, begun, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) { return logged_sync("fsync", fd); }

int fdatasync(int fd) { return logged_sync("fdatasync", fd); }

static int logged_truncate(const char *name, int fd, off64_t size) {
    int (*next)(int, off64_t) = dlsym(RTLD_NEXT, name);
    char buffer[PATH_MAX];
    const char *path = path_of(fd, buffer);
    if (!path) return next(fd, size);
    pthread_mutex_lock(&lock);
    int done = next(fd, size);
    if (done == 0) record('T', path, size, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate64(int fd, off64_t size) { return logged_truncate("ftruncate64", fd, size); }

int ftruncate(int fd, off_t size) { return logged_truncate("ftruncate", fd, size); }

int unlink(const char *name) {
    int (*next)(const char *) = dlsym(RTLD_NEXT, "unlink");
    const char *path = inside(name);
    if (!path) return next(name);
    pthread_mutex_lock(&lock);
    int done = next(name);
    if (done == 0) record('U', path, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}
