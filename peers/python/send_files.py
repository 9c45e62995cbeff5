"""Sends files over TCP: send_files.py sendfile | read-send"""

import socket
import sys

import porter

BUFFER_BYTES = 64 * 1024


def by_sendfile(sock, file):
    return sock.sendfile(file)


def by_read_send(sock, file):
    sent = 0
    while chunk := file.read(BUFFER_BYTES):
        sock.sendall(chunk)
        sent += len(chunk)
    return sent


VARIANTS = {"sendfile": by_sendfile, "read-send": by_read_send}


def main():
    variant = sys.argv[1]
    send = VARIANTS[variant]

    def work(path, address):
        host, port = address.rsplit(":", 1)
        with open(path, "rb") as file, socket.create_connection((host, int(port))) as sock:
            sent = send(sock, file)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(64):
                pass  # the other side ends when it has everything
            return sent

    porter.run(f"python-{variant}", "send", work)


if __name__ == "__main__":
    main()
