package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
)

// hijack takes the connection from net/http at its first request, and answers that one and all
// that follow on it: a head by one write, then the file by io.Copy to the TCPConn, which is
// sendfile with nothing in between.
func (root files) hijack(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	for err == nil && root.answer(conn, r) == nil && isKept(r) {
		r, err = http.ReadRequest(buffered.Reader)
	}
}

// isKept tells whether another request may follow. One with a body would have to be read to its
// end first, and nobody who wants a file sends one.
func isKept(r *http.Request) bool {
	return !r.Close && r.ProtoAtLeast(1, 1) && r.ContentLength == 0
}

func (root files) answer(conn net.Conn, r *http.Request) error {
	connection := ""
	if !isKept(r) {
		connection = "Connection: close\r\n"
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		_, err := fmt.Fprintf(conn, "HTTP/1.1 405 Method Not Allowed\r\n"+
			"Allow: GET, HEAD\r\nContent-Length: 0\r\n%s\r\n", connection)
		return err
	}
	file, size, err := root.open(r.URL.Path)
	if err != nil {
		_, err = fmt.Fprintf(conn,
			"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n%s\r\n", connection)
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"+
		"Content-Length: %d\r\n%s\r\n", size, connection)
	if err != nil || r.Method == http.MethodHead {
		return err
	}
	sent, err := io.Copy(conn, file)
	if err == nil && sent < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}
