/* The least that a server of files can do: floor ROOT HOST PORT [corked]
 *
 * One thread, epoll, a recv for each request. A file of up to PREPARED_BYTES_MAX is read when it is
 * first asked for and leaves with its head in one send; of a larger one the head leaves by send, and the
 * content by sendfile until the socket is full. `corked` holds back packets that are not full from
 * before such a head to the last byte (TCP_CORK). Requests are GETs without a body, of which each
 * arrives whole and after the last answer; anything else closes the connection. It is a lower bound
 * for measurements and not for use: paths are opened as they are. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 16384, FILES_MAX = 8192, NAME_MAX_BYTES = 64, EVENTS_MAX = 512 };
enum { PREPARED_BYTES_MAX = 32 << 10 };

struct file {
    char name[NAME_MAX_BYTES];
    int fd;
    off_t size;
    char *answer; /* the head, and the content of a small file */
    size_t answer_bytes;
};

/* By descriptor: what a connection is being sent, and from where on. */
static struct {
    struct file *file;
    off_t at;
} sending[CONNECTIONS_MAX];
static struct file files[FILES_MAX];
static int root, is_corked;

static int open_file(struct file *file, const char *name)
{
    struct stat status;
    file->fd = openat(root, name, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &status) < 0 || !S_ISREG(status.st_mode))
        return -1;
    off_t size = file->size = status.st_size, prepared = size > PREPARED_BYTES_MAX ? 0 : size;
    file->answer = malloc(512 + (size_t)prepared);
    if (!file->answer)
        return -1;
    int head = sprintf(file->answer, "HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Length: %lld\r\n"
                       "Content-Type: application/octet-stream\r\nAccept-Ranges: bytes\r\n"
                       "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"0123456789abcdef\"\r\n"
                       "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\n", (long long)size);
    if (pread(file->fd, file->answer + head, (size_t)prepared, 0) != prepared)
        return -1;
    file->answer_bytes = (size_t)(head + prepared);
    strcpy(file->name, name);
    return 0;
}

/* The file that `GET /NAME HTTP/1.1` asks for, or NULL. */
static struct file *requested(char *request)
{
    char *name = request + strlen("GET /"), *end = strchr(name, ' ');
    if (memcmp(request, "GET /", 5) || !end || end == name || end - name >= NAME_MAX_BYTES)
        return NULL;
    *end = '\0';
    unsigned hash = 2166136261;
    for (char *at = name; at < end; at++)
        hash = (hash ^ (unsigned char)*at) * 16777619;
    for (unsigned tried = 0; tried < FILES_MAX; tried++) {
        struct file *file = &files[(hash + tried) % FILES_MAX];
        if (!file->name[0])
            return open_file(file, name) < 0 ? NULL : file;
        if (!strcmp(file->name, name))
            return file;
    }
    return NULL;
}

static void cork(int socket, int value)
{
    if (is_corked)
        setsockopt(socket, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
}

/* Sends until the content ends or the socket is full: 0, or -1 if the connection is to be closed. */
static int send_content(int socket)
{
    struct file *file = sending[socket].file;
    while (sending[socket].at < file->size) {
        size_t left = (size_t)(file->size - sending[socket].at);
        ssize_t sent = sendfile(socket, file->fd, &sending[socket].at, left);
        if (sent <= 0)
            return sent < 0 && errno == EAGAIN ? 0 : -1;
    }
    sending[socket].file = NULL;
    cork(socket, 0);
    return 0;
}

/* Answers what has arrived, and sends what is owed: 0, or -1 if the connection is to be closed. */
static int serve(int socket)
{
    static char request[16 << 10];
    if (sending[socket].file)
        return send_content(socket);
    ssize_t got = recv(socket, request, sizeof request - 1, 0);
    if (got <= 5)
        return got < 0 && errno == EAGAIN ? 0 : -1;
    request[got] = '\0';
    struct file *file = requested(request);
    if (!file)
        return -1;
    int is_prepared = file->size <= PREPARED_BYTES_MAX, more = is_prepared ? 0 : MSG_MORE;
    if (!is_prepared)
        cork(socket, 1);
    ssize_t sent = send(socket, file->answer, file->answer_bytes, MSG_NOSIGNAL | more);
    if (sent != (ssize_t)file->answer_bytes || is_prepared)
        return sent == (ssize_t)file->answer_bytes ? 0 : -1;
    sending[socket].file = file;
    sending[socket].at = 0;
    return send_content(socket);
}

static int listen_at(const char *host, const char *port)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1 ||
        bind(listener, (struct sockaddr *)&at, sizeof at) < 0)
        return -1;
    return listen(listener, 4096) < 0 ? -1 : listener;
}

int main(int argc, char **argv)
{
    is_corked = argc == 5 && !strcmp(argv[4], "corked");
    root = argc < 4 ? -1 : open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    int listener = root < 0 ? -1 : listen_at(argv[2], argv[3]), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS_MAX];
    if (listener < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0) {
        fprintf(stderr, "%s: %s\nusage: floor ROOT HOST PORT [corked]\n", argv[0], strerror(errno));
        return EXIT_FAILURE;
    }
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int socket = events[i].data.fd;
            if (socket != listener) {
                if (serve(socket) < 0)
                    close(socket);
                continue;
            }
            while ((socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
                event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
                event.data.fd = socket;
                if (socket >= CONNECTIONS_MAX || epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) < 0)
                    close(socket);
                else
                    sending[socket].file = NULL;
            }
        }
    }
}
