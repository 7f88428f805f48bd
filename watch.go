// SPDX-License-Identifier: MIT

package diana

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/source"
)

// watchedFile follows the contents of a file: it looks at them as the kind of centre does
// that is a file, see source.File.
//
// Rejected: notification by the kernel, which costs a dependency, is not there on every
// file system, and must be taught again for every way a file is replaced. A ConfigMap, for
// one, changes by a swap of a symbolic link two directories up. Looking sees them all.
type watchedFile struct {
	name string
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex // guards the rest, and orders the calls of handle
	handle func(name string, text []byte, err error) error
	text   []byte             // last handled
	gone   bool               // it could not be read, which has been handled
	again  context.CancelFunc // has run compare the file with text; nil before it does
}

// watch calls handle whenever the file's contents are no longer text, until close.
func watch(name string, text []byte, handle func(string, []byte, error) error) (*watchedFile, error) {
	looked, err := source.File().Open(source.Options{URL: &url.URL{Path: filepath.ToSlash(name)}})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &watchedFile{name: name, handle: handle, text: text, stop: stop, done: make(chan struct{})}
	go f.run(ctx, looked, source.Document{Text: text, Exists: true})
	return f, nil
}

func (f *watchedFile) close() {
	f.stop()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handle = func(string, []byte, error) error { return nil } // for a read that comes late
}

func (f *watchedFile) run(ctx context.Context, looked source.Source, d source.Document) {
	defer close(f.done)
	for {
		waiting, again := context.WithCancel(ctx)
		f.mu.Lock()
		if f.again = again; !f.gone {
			d = source.Document{Text: f.text, Exists: true} // read may have handled it meanwhile
		}
		f.mu.Unlock()
		err := looked.Wait(waiting, d)
		again()
		if err == nil {
			d, err = looked.Get(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, context.Canceled) {
			continue
		}
		if err == nil && !d.Exists {
			err = &fs.PathError{Op: "open", Path: f.name, Err: syscall.ENOENT}
		}
		f.seen(d.Text, err)
	}
}

// seen handles what is in the file, or why it cannot be read, if it is not what was handled
// last.
func (f *watchedFile) seen(text []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.gone
	if f.gone = err != nil; f.gone && was || !f.gone && bytes.Equal(f.text, text) {
		return
	}
	if err == nil {
		f.text = text
	}
	_ = f.handle(f.name, text, err) // logs it
}

// read handles the file's contents as they are now, also if they are no others.
func (f *watchedFile) read() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := readFile(f.name, config.MaxSize)
	if err == nil {
		f.text, f.gone = text, false
	}
	if f.again != nil {
		f.again()
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
