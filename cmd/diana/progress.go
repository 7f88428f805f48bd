// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/weblog"
)

// progress shows on a terminal how much of the logs has been read. A nil progress shows nothing.
type progress struct {
	terminal io.Writer
	next     time.Time // of the next update
	shown    bool
}

// newProgress returns a progress if w is a terminal, and otherwise nil.
func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{terminal: f, next: time.Now().Add(time.Second)}
}

// show updates the line, if it is time to.
func (p *progress) show(logs *weblog.Reader, requests int) {
	if p == nil || time.Now().Before(p.next) {
		return
	}
	p.next = time.Now().Add(200 * time.Millisecond)
	p.shown = true
	var size int64
	for _, f := range logs.Files {
		if size += f.Size; f.Size == 0 { // a pipe, whose size is unknown
			size = 0
			break
		}
	}
	of := ""
	if size > 0 {
		of = fmt.Sprintf(" of %d", size>>20)
	}
	_, _ = fmt.Fprintf(p.terminal, "\r%d%s MiB, %d requests\x1b[K", logs.Taken()>>20, of, requests)
}

// clear removes the line, so that other output can be printed.
func (p *progress) clear() {
	if p != nil && p.shown {
		p.shown = false
		_, _ = io.WriteString(p.terminal, "\r\x1b[K")
	}
}
