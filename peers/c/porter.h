/* What send.c and copy.c are to porter.c, which keeps the contract of ../README.md for both, and
 * what they have in common. */
#include <sys/types.h>

/* Moves what is left of `in` to `out`: how many bytes, or -1 with errno set. */
typedef off_t transfer(int in, int out);

/* The transfer of that name, or NULL. */
transfer *choose(const char *variant);

/* Does a job: how many bytes were moved, or -1 with errno set. */
off_t work(transfer *by, int count, char **words);

/* All of it, however many calls that takes: 0, or -1 with errno set. */
int write_all(int out, const char *from, size_t count);

transfer by_read_write, by_sendfile;
