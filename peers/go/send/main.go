// Command send sends files over TCP: send copy | wrapped
package main

import (
	"fmt"
	"io"
	"net"
	"os"

	"underpass/peers/porter"
)

func main() {
	var send func(*net.TCPConn, *os.File) (int64, error)
	variant := ""
	if len(os.Args) > 1 {
		variant = os.Args[1]
	}
	switch variant {
	case "copy":
		// TCPConn.ReadFrom sees a file and uses sendfile.
		send = func(to *net.TCPConn, from *os.File) (int64, error) { return io.Copy(to, from) }
	case "wrapped":
		// Behind a struct that only writes, as many a counting or logging writer is, it does not.
		send = func(to *net.TCPConn, from *os.File) (int64, error) {
			return io.Copy(struct{ io.Writer }{to}, from)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: send copy | wrapped")
		os.Exit(2)
	}
	porter.Run("go-"+variant, func(job []string) (int64, error) {
		if len(job) != 3 || job[0] != "send" {
			return 0, porter.ErrNotAJob
		}
		return sendFile(job[1], job[2], send)
	})
}

func sendFile(
	path, address string,
	send func(*net.TCPConn, *os.File) (int64, error),
) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	sent, err := send(tcp, file)
	if err != nil {
		return sent, err
	}
	if err := tcp.CloseWrite(); err != nil {
		return sent, err
	}
	// The other side ends when it has everything.
	_, err = io.Copy(io.Discard, tcp)
	return sent, err
}
