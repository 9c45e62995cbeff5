//! Moves bytes between files and sockets underneath user space.
