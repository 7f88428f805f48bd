// SPDX-License-Identifier: MIT

package diana

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/diana-limiter/diana/config"
)

// watchedFile follows the contents of a file.
//
// It looks four times a second. Rejected: notification by the kernel, which costs a
// dependency, is not there on every file system, and must be taught again for every
// way a file is replaced. A ConfigMap, for one, changes by a swap of a symbolic link
// two directories up. Looking sees them all.
//
// A text counts when it has been read twice in a row, so that one that is just being
// written is not taken for a shorter one.
type watchedFile struct {
	name string
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex // guards the rest, and orders the calls of handle
	handle func(name string, text []byte, err error) error
	text   []byte // last handled
	gone   bool   // it could not be read, which has been handled
}

const (
	watchEvery = 250 * time.Millisecond

	// A file changed so recently may change again without a new time stamp.
	watchRecent = 2 * time.Second
)

// watch calls handle whenever the file's contents are no longer text, until close.
func watch(name string, text []byte, handle func(string, []byte, error) error) *watchedFile {
	f := &watchedFile{
		name: name, handle: handle, text: text,
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go f.run()
	return f
}

func (f *watchedFile) close() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = func(string, []byte, error) error { return nil } // for a read that comes late
}

func (f *watchedFile) run() {
	defer close(f.done)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var info fs.FileInfo // of the last look
	var seen []byte      // read at the last look; nil if nothing new was
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		last := info
		var err error
		if info, err = os.Stat(f.name); err == nil && same(last, info) && seen == nil &&
			time.Since(info.ModTime()) > watchRecent {
			continue
		}
		text, err := readFile(f.name, config.MaxSize)
		switch {
		case err != nil:
			f.lost(err)
		case f.handled(text):
			seen = nil
		case seen == nil || !bytes.Equal(seen, text):
			seen = append([]byte{}, text...)
		default:
			seen = nil
			_ = f.take(text) // logged by handle
		}
	}
}

func same(a, b fs.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// handled reports whether text is what has been handled last.
func (f *watchedFile) handled(text []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = false
	return bytes.Equal(f.text, text)
}

// lost handles that the file cannot be read, once.
func (f *watchedFile) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.gone {
		f.gone = true
		_ = f.handle(f.name, nil, err)
	}
}

func (f *watchedFile) take(text []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = text
	return f.handle(f.name, text, nil)
}

// read handles the file's contents as they are now, also if they are no others.
func (f *watchedFile) read() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := readFile(f.name, config.MaxSize)
	if err == nil {
		f.text = text
	}
	return f.handle(f.name, text, err)
}

// readFile returns the contents of a file, or of one that is larger than most bytes, no
// more than it takes to see that.
func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}
