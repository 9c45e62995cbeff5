/* Sends files over TCP: send read-write [BUFFER-BYTES] | sendfile | mmap-write */
#include "porter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whoever truncates the file meanwhile takes away the pages behind its new end. A program that
 * touches one is killed by SIGBUS. Here write() does the touching, which gives EFAULT; as soon as
 * anything else looks at the bytes (a checksum, TLS) a shrinking file ends the process. */
static off_t by_mmap_write(int in, int out)
{
    struct stat file;
    if (fstat(in, &file) < 0)
        return -1;
    if (file.st_size == 0)
        return 0;
    char *content = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, in, 0);
    if (content == MAP_FAILED)
        return -1;
    int written = write_all(out, content, (size_t)file.st_size);
    munmap(content, (size_t)file.st_size);
    return written < 0 ? -1 : file.st_size;
}

transfer *choose(const char *variant)
{
    return !strcmp(variant, "read-write")   ? by_read_write
           : !strcmp(variant, "sendfile")   ? by_sendfile
           : !strcmp(variant, "mmap-write") ? by_mmap_write
                                            : NULL;
}

/* A socket connected to ADDRESS:PORT, or -1. */
static int dial(char *address)
{
    char *colon = strrchr(address, ':');
    struct sockaddr_in to = {.sin_family = AF_INET};
    if (colon) {
        *colon = '\0';
        to.sin_port = htons((uint16_t)atoi(colon + 1));
    }
    if (!colon || inet_pton(AF_INET, address, &to.sin_addr) != 1)
        return errno = EINVAL, -1;
    int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (out >= 0 && connect(out, (struct sockaddr *)&to, sizeof to) < 0) {
        close(out);
        return -1;
    }
    return out;
}

off_t work(transfer *by, int count, char **words)
{
    if (count != 3 || strcmp(words[0], "send"))
        return errno = EINVAL, -1;
    int in = open(words[1], O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : dial(words[2]);
    off_t sent = out < 0 ? -1 : by(in, out);
    if (sent >= 0 && shutdown(out, SHUT_WR) < 0)
        sent = -1;
    /* The other side ends when it has everything. */
    for (char end[64]; sent >= 0 && read(out, end, sizeof end) > 0;)
        continue;
    int error = errno;
    close(in);
    close(out);
    errno = error;
    return sent;
}
