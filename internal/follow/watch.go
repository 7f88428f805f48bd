// SPDX-License-Identifier: MIT

package follow

import (
	"bytes"
	"context"
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

// fileSource is the name of the local file in Reload.Source.
const fileSource = "file"

// watched is the local file: one more source, with a goroutine that waits for it to change.
//
// Rejected: notification by the kernel. It costs a dependency, some file systems do not have
// it, and it needs code for every way to replace a file. A ConfigMap, for example, changes by
// swapping a symbolic link two directories up. Reading the file sees all of these.
//
// Rejected: source.Follow. It waits for longer and longer when a source is out of reach, and a
// change of the local file must take effect within two seconds.
type watched struct {
	source source.Source
	cancel context.CancelFunc // nil: no goroutine runs
	done   sync.WaitGroup
}

func openFile(name string) (source.Source, error) {
	return source.File().Open(source.Options{URL: &url.URL{Path: filepath.ToSlash(name)}})
}

// end stops the goroutine, so that no step of it comes any more.
func (w *watched) end() {
	if w.cancel != nil {
		w.cancel()
		w.done.Wait()
	}
}

// reload reads the local file and applies it. The goroutine starts anew, because it must
// compare the file with what was read here.
func (f *Follower) reload() error {
	f.file.end()
	text, err := readFile(f.options.File, config.MaxSize)
	f.watch(source.Document{Text: text, Exists: err == nil}, err != nil)
	return f.load(text, err)
}

// watch loads the file whenever it is no longer as seen. lost reports whether seen is a
// failure to read the file, which is reported once.
func (f *Follower) watch(seen source.Document, lost bool) {
	ctx, cancel := context.WithCancel(f.ctx)
	f.file.cancel = cancel
	f.file.done.Go(func() {
		for ctx.Err() == nil {
			d, err := f.look(ctx, seen)
			if ctx.Err() != nil {
				return
			}
			if err != nil && !lost || err == nil && (lost || !bytes.Equal(d.Text, seen.Text)) {
				f.send(ctx, step{do: func() error { return f.load(d.Text, err) }})
			}
			seen, lost = d, err != nil
		}
	})
}

// look waits until the file may have changed, and reads it. A file that does not exist is an
// error.
func (f *Follower) look(ctx context.Context, seen source.Document) (source.Document, error) {
	if err := f.file.source.Wait(ctx, seen); err != nil {
		return source.Document{}, err
	}
	d, err := f.file.source.Get(ctx)
	if err == nil && !d.Exists {
		err = &fs.PathError{Op: "open", Path: f.options.File, Err: syscall.ENOENT}
	}
	return d, err
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
