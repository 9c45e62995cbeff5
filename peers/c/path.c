/* A path of a wide-area network on one machine: path MILLISECONDS MBIT_PER_SECOND
 *
 * In the network namespace in which it runs, and which has a loopback and nothing else, 127.0.0.0/8 then
 * leads through a TUN device. What is sent comes back after half of the round-trip time, at the rate of
 * the path, in packets of an Ethernet. In front of each direction waits at most what the path holds in a
 * round trip; more is dropped. It says when it is ready, and ends with its standard input. As root. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MTU = 1500, PACKETS_MAX = 1 << 15, BATCH_MAX = 64 };
/* Routes keep the congestion control that the loopback has. Clients have an address that is not the
 * server's, which would take them for some of its own machine. */
static const char SET_UP[] = "set -e; test $(wc -l < /proc/net/dev) = 4\n"
    "control=$(ip route show table local 127.0.0.1 | grep -o 'congctl.*' || true)\n"
    "ip link set path up mtu 1500 txqueuelen 10000\n"
    "for name in accept_local route_localnet; do echo 1 > /proc/sys/net/ipv4/conf/path/$name; done\n"
    "ip route add 127.0.0.0/8 dev path src 127.0.0.2 table 9 $control; ip rule add pref 1 iif lo lookup 9\n"
    "ip rule add pref 2 lookup local; ip rule del pref 0";

struct direction {
    struct { long due; int bytes; unsigned char packet[MTU]; } queue[PACKETS_MAX];
    unsigned first, end;
    long free_at; /* when the path has taken what waits, in nanoseconds */
};
static struct direction *directions;
static char is_server[1 << 16]; /* the ports to which connections were opened */

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void take(struct direction *to, const unsigned char *packet, int bytes, long delay, double mbit)
{
    long start = to->free_at > now() ? to->free_at : now();
    if (start - now() > 2 * delay || to->end - to->first == PACKETS_MAX)
        return;
    to->free_at = start + (long)(bytes * 8e3 / mbit);
    unsigned place = to->end++ % PACKETS_MAX;
    to->queue[place].due = to->free_at + delay;
    to->queue[place].bytes = bytes;
    __builtin_memcpy(to->queue[place].packet, packet, (size_t)bytes);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return fputs("path MILLISECONDS MBIT_PER_SECOND\n", stderr), 2;
    long delay = (long)(atof(argv[1]) * 5e5);
    struct ifreq request = {.ifr_name = "path", .ifr_flags = IFF_TUN | IFF_NO_PI};
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (tun < 0 || ioctl(tun, TUNSETIFF, &request))
        return perror("path"), 1;
    if (system(SET_UP))
        return fputs("path: this network namespace has more than a loopback\n", stderr), 1;
    directions = calloc(2, sizeof *directions);
    puts("ready path 1");
    fflush(stdout);
    for (;;) {
        static unsigned char packet[MTU];
        long next = now() + 50000000, bytes = 1;
        for (int count = 0; count < BATCH_MAX && (bytes = read(tun, packet, MTU)) > 0; count++) {
            struct iphdr *ip = (struct iphdr *)packet;
            struct tcphdr *tcp = (struct tcphdr *)(packet + 4 * ip->ihl);
            if (ip->version != 4 || ip->protocol != IPPROTO_TCP)
                continue;
            is_server[tcp->dest] |= tcp->syn && !tcp->ack;
            take(&directions[(int)is_server[tcp->source]], packet, (int)bytes, delay, atof(argv[2]));
        }
        for (struct direction *to = directions; to < directions + 2; to++) {
            for (; to->first != to->end; to->first++) {
                unsigned place = to->first % PACKETS_MAX;
                if (to->queue[place].due > now()) {
                    next = to->queue[place].due < next ? to->queue[place].due : next;
                    break;
                }
                (void)!write(tun, to->queue[place].packet, (size_t)to->queue[place].bytes);
            }
        }
        long left = bytes > 0 ? 0 : next - now();
        struct timespec wait = {0, left > 0 ? left : 0};
        struct pollfd ready[] = {{.fd = tun, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
        ppoll(ready, 2, &wait, NULL);
        if (ready[1].revents)
            return 0;
    }
}
