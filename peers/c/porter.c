/* Does one job for each line of standard input until it ends, and says what came of it. */
#include "porter.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

static size_t buffer_bytes = 64 << 10;
static char *buffer;

int write_all(int out, const char *from, size_t count)
{
    while (count > 0) {
        ssize_t written = write(out, from, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        from += written;
        count -= (size_t)written;
    }
    return 0;
}

off_t by_read_write(int in, int out)
{
    off_t moved = 0;
    ssize_t count;
    while ((count = read(in, buffer, buffer_bytes)) != 0) {
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 || write_all(out, buffer, (size_t)count) < 0)
            return -1;
        moved += count;
    }
    return moved;
}

off_t by_sendfile(int in, int out)
{
    off_t moved = 0;
    ssize_t count;
    while ((count = sendfile(out, in, NULL, 1 << 30)) != 0) {
        if (count < 0 && errno != EINTR)
            return -1;
        moved += count < 0 ? 0 : count;
    }
    return moved;
}

int main(int argc, char **argv)
{
    transfer *by = argc > 1 ? choose(argv[1]) : NULL;
    buffer_bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : buffer_bytes;
    if (!by || buffer_bytes == 0 || !(buffer = malloc(buffer_bytes))) {
        fprintf(stderr, "usage: %s VARIANT [BUFFER-BYTES]\n", argv[0]);
        return EXIT_FAILURE;
    }
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready c-%s cc %s\n", argv[1], __VERSION__);
    char *line = NULL;
    for (size_t capacity = 0; getline(&line, &capacity, stdin) > 0;) {
        line[strcspn(line, "\n")] = '\0';
        char *words[4], *rest = line;
        int count = 0;
        for (; rest && count < 4; count++)
            words[count] = strsep(&rest, "\t");
        off_t moved = work(by, count, words);
        if (moved < 0)
            printf("failed %s: %s\n", words[count > 1], strerror(errno));
        else
            printf("ok %lld\n", (long long)moved);
    }
}
