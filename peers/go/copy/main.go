// Command copy copies files: copy io-copy | wrapped
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"underpass/peers/porter"
)

func main() {
	var move func(to, from *os.File) (int64, error)
	variant := ""
	if len(os.Args) > 1 {
		variant = os.Args[1]
	}
	switch variant {
	case "io-copy":
		// File.ReadFrom sees another file and uses copy_file_range.
		move = func(to, from *os.File) (int64, error) { return io.Copy(to, from) }
	case "wrapped":
		// Behind a struct that only writes it does not.
		move = func(to, from *os.File) (int64, error) {
			return io.Copy(struct{ io.Writer }{to}, from)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: copy io-copy | wrapped")
		os.Exit(2)
	}
	porter.Run("go-"+variant, func(job []string) (all int64, err error) {
		if len(job) != 4 || job[0] != "copy" {
			return 0, porter.ErrNotAJob
		}
		times, err := strconv.Atoi(job[3])
		for ; err == nil && times > 0; times-- {
			var moved int64
			moved, err = copyFile(job[1], job[2], move)
			all += moved
		}
		return all, err
	})
}

func copyFile(
	from, to string,
	move func(to, from *os.File) (int64, error),
) (moved int64, err error) {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	source, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	sink, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return 0, err
	}
	moved, err = move(sink, source)
	if closed := sink.Close(); err == nil {
		err = closed
	}
	return moved, err
}
