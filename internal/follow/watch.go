// SPDX-License-Identifier: MIT

package follow

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/source"
)

// fileSource is the name of the local file in Reload.Source.
const fileSource = "file"

// watched is the local file: one more source, with a goroutine that waits for it to change.
//
// Rejected: notification by the kernel. It costs a dependency, some file systems do not have
// it, and it needs code for every way to replace a file. A ConfigMap, for example, changes by
// swapping a symbolic link two directories up. Reading the file sees all of these.
//
// Rejected: track.Follow. It waits for longer and longer when a source is unavailable, and a change
// of the local file must take effect within two seconds.
type watched struct {
	name   string
	source source.Source
	cancel context.CancelFunc // of the goroutine; nil: there was none yet
	done   sync.WaitGroup     // of the goroutine
}

func openFile(name string) (source.Source, error) {
	files := config.Vocabulary{Sources: source.Kinds()}
	_, s, err := files.OpenSource(source.Options{
		URL: &url.URL{Scheme: "file", Path: filepath.ToSlash(name)}, Largest: bounds.MaxFile,
	})
	return s, err
}

// end stops the goroutine, so that no step of it comes any more.
func (w *watched) end() {
	if w.cancel != nil {
		w.cancel()
		w.done.Wait()
	}
}

// watch calls changed whenever the contents of the file are no longer text, or the file can no
// longer be read, until end. err is why the last reading failed, or nil.
func (w *watched) watch(ctx context.Context, text []byte, err error, changed func(ctx context.Context, text []byte, err error)) {
	ctx, w.cancel = context.WithCancel(ctx)
	seen, lost := source.Document{Text: text, Exists: err == nil}, err != nil
	w.done.Go(func() {
		for {
			d, err := w.next(ctx, seen)
			if ctx.Err() != nil {
				return
			}
			if err != nil && !lost || err == nil && (lost || !bytes.Equal(d.Text, seen.Text)) {
				changed(ctx, d.Text, err)
			}
			seen, lost = d, err != nil
		}
	})
}

// next waits until the file may no longer be as seen, and reads it. A file that does not exist
// is an error.
func (w *watched) next(ctx context.Context, seen source.Document) (source.Document, error) {
	if err := w.source.Wait(ctx, seen); err != nil {
		return source.Document{}, err
	}
	d, err := w.source.Get(ctx)
	if err == nil && !d.Exists {
		err = &fs.PathError{Op: "open", Path: w.name, Err: syscall.ENOENT}
	}
	return d, err
}

// readRegular is readFile for a file that is not the first one. Opening a pipe would wait for a
// writer, and hold up every change until then. At the start a program can read its configuration
// from a pipe.
func readRegular(name string, most int64) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: expected a file, found %v", name, info.Mode())
	}
	return readFile(name, most)
}

// readFile returns the contents of a file, or of a file that is larger than most bytes, one
// byte more than that.
func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}
