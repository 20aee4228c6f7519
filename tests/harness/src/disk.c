/* A simulated disk that counts fsync, lets it fail or do nothing, and can lose power.
 *
 * Preloaded (LD_PRELOAD) into a process, it tracks the files below DISK_ROOT. Writes go to
 * the files, which the process and the kernel see. DISK_DURABLE holds a copy of every file
 * with the content that a disk would have: fsync and fdatasync copy the pages written since
 * the last call, and an fsync of a directory makes its entries durable. To simulate a power
 * loss, the test kills the process and replaces the files with the copies.
 * DISK_PROGRAM is the name of the program to track; its parents and children are not
 * tracked. A process that starts again without a power loss uses the copies of the previous
 * one, and pages that the previous one had not synced are still not durable.
 *
 * DISK_CONTROL is a file of 64-bit numbers that the test and the process share:
 *   [0] what fsync does: 0 works, 1 fails with EIO, 2 returns success and does nothing
 *   [1] calls that worked  [2] calls that failed  [3] calls that did nothing
 * An fsync that fails leaves its pages clean, as Linux does: they are not on the disk,
 * and a later fsync does not write them unless the process writes them again.
 *
 * Copies are named by number; DISK_DURABLE/entries has a symbolic link per durable name
 * (with '%' for '/'), whose target is the number. DISK_DURABLE/ready exists when the copies
 * of the files present at the start are complete. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define FILES 512
#define DESCRIPTORS 4096

enum { WORKS, FAILS, FORGETS };

struct file {
    int used, alive;
    dev_t dev;
    ino_t ino;
    unsigned char *dirty; /* one byte per page */
    size_t pages;
};

static char root[PATH_MAX], durable[PATH_MAX];
static _Atomic uint64_t *control;
static struct file files[FILES];
static struct file *open_files[DESCRIPTORS];
static char *open_directories[DESCRIPTORS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int real_open(const char *path, int flags, mode_t mode) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    return real(path, flags, mode);
}

static int real_close(int fd) { REAL(close); return real(fd); }

static ssize_t real_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    REAL(pwrite);
    return real(fd, bytes, size, at);
}

static int real_ftruncate(int fd, off_t size) { REAL(ftruncate); return real(fd, size); }
static int real_unlink(const char *path) { REAL(unlink); return real(path); }
static int real_rename(const char *from, const char *to) { REAL(rename); return real(from, to); }

static void die(const char *what) {
    perror(what);
    abort();
}

static void copy_path(char *to, int id) {
    if (snprintf(to, PATH_MAX, "%s/%d", durable, id) >= PATH_MAX) abort();
}

/* The path of the link from a durable name to its copy. */
static void entry_path(char *to, const char *path) {
    int start = snprintf(to, PATH_MAX, "%s/entries/", durable);
    const char *name = path + strlen(root) + 1;
    if (start + strlen(name) >= PATH_MAX) abort();
    strcpy(to + start, name);
    for (char *c = to + start; *c; c++)
        if (*c == '/') *c = '%';
}

static int is_tracked(const char *path) {
    size_t length = strlen(root), all = strlen(path);
    if (!length || strncmp(path, root, length) || (path[length] && path[length] != '/')) return 0;
    /* SQLite's wal-index (-shm) is shared memory and not durable. */
    return all < 4 || strcmp(path + all - 4, "-shm");
}

static struct file *find(const struct stat *at) {
    struct file *unused = NULL;
    for (int i = 0; i < FILES; i++) {
        if (files[i].alive && files[i].dev == at->st_dev && files[i].ino == at->st_ino)
            return &files[i];
        if (!unused && !files[i].used) unused = &files[i];
    }
    if (!unused) { fprintf(stderr, "disk: too many files\n"); abort(); }
    char stale[PATH_MAX];
    copy_path(stale, (int)(unused - files));
    real_unlink(stale);
    unused->used = unused->alive = 1;
    unused->dev = at->st_dev;
    unused->ino = at->st_ino;
    return unused;
}

static int id_of(const struct file *file) { return (int)(file - files); }

static void touch(struct file *file, off_t at, size_t size) {
    if (!size) return;
    size_t last = (size_t)(at + (off_t)size - 1) / PAGE;
    if (last >= file->pages) {
        size_t pages = last + 1024;
        file->dirty = realloc(file->dirty, pages);
        if (!file->dirty) abort();
        memset(file->dirty + file->pages, 0, pages - file->pages);
        file->pages = pages;
    }
    for (size_t page = (size_t)at / PAGE; page <= last; page++) file->dirty[page] = 1;
}

/* Copies the pages written since the last call, and the size. */
static void make_durable(struct file *file, const char *from) {
    char to[PATH_MAX], page[PAGE];
    struct stat at;
    copy_path(to, id_of(file));
    int source = real_open(from, O_RDONLY | O_CLOEXEC, 0);
    int target = real_open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (source < 0 || target < 0 || fstat(source, &at)) die("disk: copy");
    for (size_t i = 0; i < file->pages; i++) {
        if (!file->dirty[i]) continue;
        file->dirty[i] = 0;
        ssize_t size = pread(source, page, PAGE, (off_t)i * PAGE);
        if (size > 0 && real_pwrite(target, page, (size_t)size, (off_t)i * PAGE) != size)
            die("disk: copy");
    }
    if (real_ftruncate(target, at.st_size)) die("disk: size");
    real_close(source);
    real_close(target);
}

/* Makes the name of a file durable. The rename changes the link atomically. */
static void make_entry(const char *path, const struct file *file) {
    char link[PATH_MAX], temporary[PATH_MAX], old[32] = "", new[32];
    entry_path(link, path);
    snprintf(new, sizeof new, "%d", id_of(file));
    if (readlink(link, old, sizeof old - 1) >= 0 && !strcmp(old, new)) return;
    if (snprintf(temporary, PATH_MAX, "%s/new-entry", durable) >= PATH_MAX) abort();
    real_unlink(temporary);
    if (symlink(new, temporary) || real_rename(temporary, link)) die("disk: entry");
}

/* Removes the durable names of a directory whose files no longer exist. */
static void drop_entries(const char *directory) {
    char prefix[PATH_MAX], entries[PATH_MAX], live[PATH_MAX], link[PATH_MAX];
    if (snprintf(entries, PATH_MAX, "%s/entries", durable) >= PATH_MAX) abort();
    *prefix = 0;
    if (strlen(directory) > strlen(root)) {
        char path[PATH_MAX];
        entry_path(path, directory);
        snprintf(prefix, PATH_MAX, "%s%%", path + strlen(entries) + 1);
    }
    DIR *all = opendir(entries);
    if (!all) die("disk: entries");
    for (struct dirent *e; (e = readdir(all));) {
        const char *name = e->d_name + strlen(prefix);
        if (*e->d_name == '.' || strncmp(e->d_name, prefix, strlen(prefix)) || strchr(name, '%'))
            continue;
        if (snprintf(live, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX) abort();
        if (!access(live, F_OK)) continue;
        if (snprintf(link, PATH_MAX, "%s/%s", entries, e->d_name) >= PATH_MAX) abort();
        real_unlink(link);
    }
    closedir(all);
}

/* An fsync of a directory. With `deep`, at the start, it also copies the content of all
* files below. */
static void make_names_durable(const char *directory, int deep) {
    char path[PATH_MAX];
    struct stat at;
    DIR *all = opendir(directory);
    if (!all) die("disk: directory");
    for (struct dirent *e; (e = readdir(all));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (snprintf(path, PATH_MAX, "%s/%s", directory, e->d_name) >= PATH_MAX) abort();
        if (!is_tracked(path) || lstat(path, &at)) continue;
        if (S_ISDIR(at.st_mode) && deep) make_names_durable(path, deep);
        if (!S_ISREG(at.st_mode)) continue;
        struct file *file = find(&at);
        if (deep) {
            touch(file, 0, (size_t)at.st_size);
            make_durable(file, path);
        }
        make_entry(path, file);
    }
    closedir(all);
    if (!deep) drop_entries(directory);
}

/* Reuses the copies of the previous process. */
static void resume(void) {
    char entries[PATH_MAX], path[PATH_MAX], id[32];
    struct stat at;
    if (snprintf(entries, PATH_MAX, "%s/entries", durable) >= PATH_MAX) abort();
    DIR *all = opendir(entries);
    if (!all) die("disk: entries");
    for (struct dirent *e; (e = readdir(all));) {
        ssize_t length = readlinkat(dirfd(all), e->d_name, id, sizeof id - 1);
        if (length < 0) continue;
        id[length] = 0;
        struct file *file = &files[atoi(id)];
        file->used = 1;
        if (snprintf(path, PATH_MAX, "%s/%s", root, e->d_name) >= PATH_MAX) abort();
        for (char *c = path + strlen(root) + 1; *c; c++)
            if (*c == '%') *c = '/';
        if (lstat(path, &at)) continue;
        file->alive = 1;
        file->dev = at.st_dev;
        file->ino = at.st_ino;
    }
    closedir(all);
}

__attribute__((constructor)) static void start(void) {
    const char *names[] = {getenv("DISK_ROOT"), getenv("DISK_DURABLE"), getenv("DISK_CONTROL")};
    char path[PATH_MAX];
    const char *program = getenv("DISK_PROGRAM");
    if (!names[0] || !names[1] || !names[2] || !program) return;
    if (strcmp(program, program_invocation_short_name)) return;
    if (snprintf(path, PATH_MAX, "%s/ready", names[1]) >= PATH_MAX) abort();
    int fd = real_open(names[2], O_RDWR | O_CLOEXEC, 0);
    void *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || map == MAP_FAILED) die("disk: control");
    real_close(fd);
    control = map;
    if (!realpath(names[0], root) || !realpath(names[1], durable)) die("disk: directories");
    if (!access(path, F_OK)) {
        resume();
        return;
    }
    make_names_durable(root, 1);
    int ready = real_open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (ready < 0) die("disk: ready");
    real_close(ready);
}

static int opened(int fd) {
    char link[64], path[PATH_MAX];
    struct stat at;
    if (fd < 0 || !*root) return fd;
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = 0;
        if (is_tracked(path) && !fstat(fd, &at)) {
            if (fd >= DESCRIPTORS) abort();
            pthread_mutex_lock(&lock);
            if (S_ISDIR(at.st_mode)) open_directories[fd] = strdup(path);
            if (S_ISREG(at.st_mode)) open_files[fd] = find(&at);
            pthread_mutex_unlock(&lock);
        }
    }
    errno = saved;
    return fd;
}

static struct file *file_of(int fd) {
    return fd >= 0 && fd < DESCRIPTORS ? open_files[fd] : NULL;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return opened(real_open(path, flags, mode)); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        static int (*real)(int, const char *, int, ...); \
        if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat"); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return opened(real(at, path, flags, mode)); \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    if (*root && fd >= 0 && fd < DESCRIPTORS) {
        pthread_mutex_lock(&lock);
        open_files[fd] = NULL;
        free(open_directories[fd]);
        open_directories[fd] = NULL;
        pthread_mutex_unlock(&lock);
    }
    return real_close(fd);
}

static ssize_t wrote(int fd, off_t at, ssize_t size) {
    struct file *file = file_of(fd);
    if (file && size > 0) {
        pthread_mutex_lock(&lock);
        touch(file, at, (size_t)size);
        pthread_mutex_unlock(&lock);
    }
    return size;
}

ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(write);
    ssize_t done = real(fd, bytes, size);
    /* The file offset is behind the written bytes; a pipe has none, and is not tracked. */
    if (done > 0 && file_of(fd)) wrote(fd, lseek(fd, 0, SEEK_CUR) - done, done);
    return done;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    return wrote(fd, at, real_pwrite(fd, bytes, size, at));
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    return wrote(fd, at, real_pwrite(fd, bytes, size, at));
}

/* ftruncate needs no hook: bytes that are written again become dirty by the write. */
int unlink(const char *path) {
    struct stat at;
    if (*root && !lstat(path, &at) && S_ISREG(at.st_mode)) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < FILES; i++)
            if (files[i].alive && files[i].dev == at.st_dev && files[i].ino == at.st_ino)
                files[i].alive = 0;
        pthread_mutex_unlock(&lock);
    }
    return real_unlink(path);
}

int rename(const char *from, const char *to) {
    struct stat old, new;
    if (*root && !lstat(to, &old) && !lstat(from, &new) && old.st_ino != new.st_ino) {
        pthread_mutex_lock(&lock);
        for (int i = 0; i < FILES; i++)
            if (files[i].alive && files[i].dev == old.st_dev && files[i].ino == old.st_ino)
                files[i].alive = 0;
        pthread_mutex_unlock(&lock);
    }
    return real_rename(from, to);
}

static int synced(int fd) {
    struct file *file = file_of(fd);
    const char *directory = fd >= 0 && fd < DESCRIPTORS ? open_directories[fd] : NULL;
    char path[64];
    int result = 0;
    if (!control || (!file && !directory)) return 1;
    pthread_mutex_lock(&lock);
    uint64_t mode = atomic_load(&control[0]);
    atomic_fetch_add(&control[1 + mode], 1);
    if (mode == FAILS) {
        if (file && file->dirty) memset(file->dirty, 0, file->pages);
        errno = EIO;
        result = -1;
    } else if (mode == WORKS && file) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        make_durable(file, path);
    } else if (mode == WORKS) {
        make_names_durable(directory, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) {
    REAL(fsync);
    int result = synced(fd);
    return result == 1 ? real(fd) : result;
}

int fdatasync(int fd) {
    REAL(fdatasync);
    int result = synced(fd);
    return result == 1 ? real(fd) : result;
}
