// SPDX-License-Identifier: MIT

package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// fileKind is the kind of a local file. The folder of the file is the configuration centre. If
// the file does not exist, there is no document. If the folder does not exist, the configuration
// centre is unavailable, for example because a volume is not mounted.
//
// Wait looks at the file four times a second. This sees every way to replace a file, on every
// file system. Get reads the file until two readings agree and nothing was written between
// them, so that it does not return a file that another process is still writing. It does the
// same for a file that is absent, because some programs remove a file before they replace it. It
// looks for longer at an empty file: most programs empty a file before they write it, and a
// configuration without rules would allow everything.
func fileKind() Kind {
	return Kind{
		Schemes: []string{"file"},
		Form:    "file:///PATH",
		Check: func(u *url.URL) bool {
			return u.Host == "" && strings.Trim(u.Path, "/") != "" && bare(u)
		},
		Open: func(o Options) (Source, error) {
			return file{filepath.FromSlash(o.URL.Path), cmp.Or(o.Largest, MaxSize)}, nil
		},
	}
}

// bare reports whether a URL has nothing after its path.
func bare(u *url.URL) bool { return u.RawQuery == "" && u.Fragment == "" && u.Opaque == "" }

// file is a local file. A call to a file system cannot be interrupted, so on a file system that
// hangs the methods do not return when their context ends.
type file struct {
	name    string
	largest int64 // valid document, in bytes
}

const (
	lookEvery = 250 * time.Millisecond

	// A file that was modified less than this ago may change again without a new time stamp.
	recent = 2 * time.Second

	// How many readings of an empty file must agree.
	emptyLooks = 4
)

func (f file) Get(ctx context.Context) (Document, error) {
	var d Document
	var info fs.FileInfo // from before d was read; nil: there was no file
	agreed := 0          // readings in a row, after the first one
	for looks := 0; ; looks++ {
		if looks > 0 && !sleep(ctx, lookEvery) {
			return Document{}, ctx.Err()
		}
		before, lastInfo := d, info
		var err error
		info, _ = os.Stat(f.name) // read returns the error
		if d, err = f.read(); err != nil {
			return Document{}, err
		}
		after, _ := os.Stat(f.name)
		if looks == 0 || !same(before, d) || !alike(lastInfo, after) {
			agreed = 0
			continue
		}
		if agreed++; agreed >= emptyLooks || !d.Exists || len(d.Text) > 0 {
			return d, nil
		}
	}
}

func (f file) Wait(ctx context.Context, d Document) error {
	var info fs.FileInfo // the previous one
	for {
		if !sleep(ctx, lookEvery) {
			return ctx.Err()
		}
		last := info
		info, _ = os.Stat(f.name)
		if info != nil && alike(last, info) && time.Since(info.ModTime()) > recent {
			continue
		}
		if now, err := f.read(); err != nil || !same(now, d) {
			return err
		}
	}
}

// alike reports whether two calls of Stat have found the same unchanged file, or no file.
func alike(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read returns the contents of the file now.
func (f file) read() (Document, error) {
	info, err := os.Stat(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(f.name))
		return Document{}, err
	}
	if err == nil && !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		err = fmt.Errorf("%s: expected a file, found %v", f.name, info.Mode())
	}
	if err != nil {
		return Document{}, err
	}
	r, err := os.Open(f.name)
	if err != nil {
		return Document{}, err
	}
	defer r.Close()
	var text bytes.Buffer
	text.Grow(int(min(info.Size(), f.largest)) + bytes.MinRead) // so that ReadFrom does not copy what it has
	_, err = text.ReadFrom(io.LimitReader(r, f.largest+1))
	return Document{Text: text.Bytes(), Exists: err == nil}, err
}

// Put writes a new file in the same folder, with the mode of the old file, and renames it. If
// the old name is a symbolic link, Put replaces the target of the link.
func (f file) Put(ctx context.Context, text []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name, mode := f.name, fs.FileMode(0o644)
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	info, err := os.Stat(name)
	if err == nil {
		mode = info.Mode().Perm()
	}
	fresh := name + "." + strconv.FormatUint(rand.Uint64(), 36)
	w, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if info != nil {
		err = w.Chmod(mode) // also the bits that the umask has cleared
	}
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Sync() // otherwise a crash could leave an empty file
	}
	err = errors.Join(err, w.Close())
	if err == nil {
		err = os.Rename(fresh, name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(fresh))
	}
	return err
}

// Swap compares and replaces the file while it holds a lock: it locks the file NAME.lock, which
// stays. The lock excludes other calls of Swap, on this machine. It does not exclude programs that
// write the file without the lock, such as editors.
func (f file) Swap(ctx context.Context, old Document, text []byte) (bool, error) {
	name := f.name
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	unlock, err := lock(ctx, name+".lock")
	if err != nil {
		return false, err
	}
	defer unlock()
	now, err := f.read()
	if err != nil || !same(now, old) {
		return false, err
	}
	err = f.Put(ctx, text)
	return err == nil, err
}

func (f file) Close() error { return nil }

func same(a, b Document) bool { return a.Exists == b.Exists && bytes.Equal(a.Text, b.Text) }
