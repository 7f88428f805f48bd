// SPDX-License-Identifier: MIT

package source

import (
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

// File is the kind of a file that is watched. The folder it is in is the centre: without
// the file there is no document, without the folder the centre is out of reach, as it is
// when a volume is not mounted.
//
// It is watched by looking four times a second, which sees every way of replacing a file on
// every file system; so is the configuration's own file. A text counts when it has been
// read twice and nothing was written between, so that one that is just being written is not
// taken for a shorter one. So does its absence, because some replace a file by removing it
// first.
func File() Kind {
	return Kind{
		Schemes: []string{"file"},
		Form:    "file:///PATH",
		Check: func(u *url.URL) bool {
			return u.Host == "" && strings.Trim(u.Path, "/") != "" && bare(u)
		},
		Open: func(o Options) (Source, error) { return file(filepath.FromSlash(o.URL.Path)), nil },
	}
}

// bare reports whether a URL has nothing behind its path.
func bare(u *url.URL) bool { return u.RawQuery == "" && u.Fragment == "" && u.Opaque == "" }

// file is the name of a file. What a file system does not answer cannot be interrupted, so
// on one that hangs the methods do not return when their context ends.
type file string

const (
	lookEvery = 250 * time.Millisecond

	// A file changed so recently may change again without a new time stamp.
	recent = 2 * time.Second
)

func (f file) Get(ctx context.Context) (Document, error) {
	var d Document
	var info fs.FileInfo // of before d was read; nil if there was no file
	for looks := 0; ; looks++ {
		if looks > 0 && !sleep(ctx, lookEvery) {
			return Document{}, ctx.Err()
		}
		before, lastInfo := d, info
		var err error
		info, _ = os.Stat(string(f)) // read says why not
		if d, err = f.read(); err != nil {
			return Document{}, err
		}
		after, _ := os.Stat(string(f))
		if looks > 0 && same(before, d) && alike(lastInfo, after) {
			return d, nil
		}
	}
}

func (f file) Wait(ctx context.Context, d Document) error {
	var info fs.FileInfo // of the last look
	for {
		if !sleep(ctx, lookEvery) {
			return ctx.Err()
		}
		last := info
		info, _ = os.Stat(string(f))
		if info != nil && alike(last, info) && time.Since(info.ModTime()) > recent {
			continue
		}
		if now, err := f.read(); err != nil || !same(now, d) {
			return err
		}
	}
}

// alike reports whether two looks have found the same, or no file.
func alike(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// read returns what is in the file now.
func (f file) read() (Document, error) {
	info, err := os.Stat(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(string(f)))
		return Document{}, err
	}
	if err == nil && !info.Mode().IsRegular() { // to open a pipe is to wait for who writes into it
		err = fmt.Errorf("%s: expected a file, found %v", string(f), info.Mode())
	}
	if err != nil {
		return Document{}, err
	}
	r, err := os.Open(string(f))
	if err != nil {
		return Document{}, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	return Document{Text: text, Exists: err == nil}, err
}

// Put writes a file beside the one to replace, and gives it that one's name and mode. If the
// name is a symbolic link's, the link stays and what it leads to is replaced.
func (f file) Put(ctx context.Context, text []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name, mode := string(f), fs.FileMode(0o644)
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
		err = w.Chmod(mode) // also what the process' mask takes away
	}
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Sync() // else a crash could leave the new name with nothing in it
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

func (f file) Close() error { return nil }
