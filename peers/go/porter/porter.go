// Package porter keeps the contract of ../../README.md.
package porter

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// ErrNotAJob is for a line that the program does not know.
var ErrNotAJob = errors.New("not a job")

// Run does one job for each line of standard input until it ends, and says what came of it.
func Run(name string, work func(job []string) (int64, error)) {
	fmt.Printf("ready %s %s\n", name, runtime.Version())
	jobs := bufio.NewScanner(os.Stdin)
	for jobs.Scan() {
		moved, err := work(strings.Split(jobs.Text(), "\t"))
		if err != nil {
			fmt.Printf("failed %v\n", err)
		} else {
			fmt.Printf("ok %d\n", moved)
		}
	}
}
