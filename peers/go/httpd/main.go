// Command httpd serves a directory: httpd serve-content | plain-copy | hijack -root DIR -listen ADDR
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"runtime"
	"strconv"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: httpd serve-content | plain-copy | hijack -root DIR -listen ADDRESS")
	}
	flags := flag.NewFlagSet("httpd", flag.ExitOnError)
	root := flags.String("root", ".", "the directory to serve")
	listen := flags.String("listen", "127.0.0.1:8080", "where to listen")
	_ = flags.Parse(os.Args[2:])
	var handler http.Handler
	switch os.Args[1] {
	case "serve-content":
		handler = http.FileServer(http.Dir(*root))
	case "plain-copy":
		handler = http.HandlerFunc(files(*root).plainCopy)
	case "hijack":
		handler = http.HandlerFunc(files(*root).hijack)
	case "version":
		fmt.Println(runtime.Version())
		return
	default:
		log.Fatalf("no variant %q", os.Args[1])
	}
	log.Fatal(http.ListenAndServe(*listen, handler))
}

type files string

// open gives a regular file below the directory, and its size.
func (root files) open(name string) (http.File, int64, error) {
	file, err := http.Dir(root).Open(path.Clean("/" + name))
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = os.ErrNotExist
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// plainCopy is what is left of io.Copy once a middleware has wrapped the writer: the struct hides
// that a ResponseWriter can read from a file by sendfile.
func (root files) plainCopy(w http.ResponseWriter, r *http.Request) {
	file, size, err := root.open(r.URL.Path)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	if r.Method != http.MethodHead {
		_, _ = io.Copy(struct{ io.Writer }{w}, file)
	}
}
