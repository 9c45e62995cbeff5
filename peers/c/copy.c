/* Copies files: copy read-write [BUFFER-BYTES] | sendfile | copy_file_range */
#define _GNU_SOURCE
#include "porter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static off_t by_copy_file_range(int in, int out)
{
    off_t moved = 0;
    ssize_t count;
    while ((count = copy_file_range(in, NULL, out, NULL, 1 << 30, 0)) != 0) {
        if (count < 0 && errno != EINTR)
            return -1;
        moved += count < 0 ? 0 : count;
    }
    return moved;
}

transfer *choose(const char *variant)
{
    return !strcmp(variant, "read-write")        ? by_read_write
           : !strcmp(variant, "sendfile")        ? by_sendfile
           : !strcmp(variant, "copy_file_range") ? by_copy_file_range
                                                 : NULL;
}

static off_t copy(transfer *by, const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    off_t moved = out < 0 ? -1 : by(in, out);
    int error = errno;
    /* What was written late may fail as late as here. */
    if (out >= 0 && close(out) < 0 && moved >= 0) {
        moved = -1;
        error = errno;
    }
    close(in);
    errno = error;
    return moved;
}

off_t work(transfer *by, int count, char **words)
{
    if (count != 4 || strcmp(words[0], "copy"))
        return errno = EINVAL, -1;
    off_t all = 0;
    for (long times = atol(words[3]); times > 0; times--) {
        if (unlink(words[2]) < 0 && errno != ENOENT)
            return -1;
        off_t moved = copy(by, words[1], words[2]);
        if (moved < 0)
            return -1;
        all += moved;
    }
    return all;
}
