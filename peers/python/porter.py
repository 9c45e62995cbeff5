"""Keeps the contract of ../README.md: one job for each line of standard input until it ends."""

import platform
import sys


def run(name, job, work):
    """`work` takes the words of a job behind the first and gives the number of bytes moved."""
    print(f"ready {name} Python {platform.python_version()}", flush=True)
    for line in sys.stdin:
        try:
            first, *words = line.rstrip("\n").split("\t")
            if first != job:
                raise ValueError("not a job")
            answer = f"ok {work(*words)}"
        except (OSError, TypeError, ValueError) as error:
            answer = f"failed {error}"
        print(answer, flush=True)
