// SPDX-License-Identifier: MIT

package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrNoTerminal is the error of Ask in a process without a terminal, such as a job of a CI.
var ErrNoTerminal = errors.New("there is no terminal")

// Ask writes a question to the terminal, also if standard input and output are others, and returns the line that the
// user types. The end of the input is an empty line.
func Ask(ctx context.Context, question string) (string, error) {
	terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return "", ErrNoTerminal
	}
	defer terminal.Close()
	if _, err := fmt.Fprint(terminal, question); err != nil {
		return "", err
	}
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	go func() { // it ends with the file, or with the process
		line, err := bufio.NewReader(terminal).ReadString('\n')
		replies <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case r := <-replies:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return "", r.err
		}
		return strings.TrimSpace(r.line), nil
	}
}
