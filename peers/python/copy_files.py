"""Copies files: copy_files.py shutil"""

import os
import shutil
import sys
from contextlib import suppress

import porter

VARIANTS = {"shutil": shutil.copyfile}


def main():
    variant = sys.argv[1]
    copy = VARIANTS[variant]

    def work(source, target, times):
        moved = 0
        for _ in range(int(times)):
            with suppress(FileNotFoundError):
                os.remove(target)
            copy(source, target)
            moved += os.path.getsize(target)
        return moved

    porter.run(f"python-{variant}", "copy", work)


if __name__ == "__main__":
    main()
