// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/diana-limiter/diana/source"
)

// folders is the kind of a folder whose YAML files are one configuration, in the order of
// their names: a file a team, or the keys of a ConfigMap. Each file has the short form. Names
// that begin with a dot, or end in something else than .yaml or .yml, are left alone.
//
// A folder without such files is a configuration centre without a document; without the folder the
// configuration centre is unavailable.
func folders() source.Kind {
	return source.Kind{
		Schemes: []string{"dir"},
		Form:    "dir:///PATH",
		Check: func(u *url.URL) bool {
			return u.Host == "" && path.IsAbs(u.Path) && u.RawQuery == "" && u.Fragment == ""
		},
		Open: func(o source.Options) (source.Source, error) { return folder(filepath.FromSlash(o.URL.Path)), nil },
	}
}

// folder is the name of a folder. It is watched by looking, which sees every way of changing
// files on every file system.
type folder string

const lookEvery = 300 * time.Millisecond

// Get returns what has been read twice in a row, so that files that are just being written, or
// exchanged one after another, are not taken for the new configuration.
func (f folder) Get(ctx context.Context) (source.Document, error) {
	d, err := f.read()
	for err == nil {
		if err = pause(ctx); err != nil {
			break
		}
		before := d
		if d, err = f.read(); err == nil && same(before, d) {
			return d, nil
		}
	}
	return source.Document{}, err
}

// Wait returns when the folder holds something else than d.
func (f folder) Wait(ctx context.Context, d source.Document) error {
	for {
		if err := pause(ctx); err != nil {
			return err
		}
		if now, err := f.read(); err != nil || !same(now, d) {
			return err
		}
	}
}

// Put cannot be: nothing tells which part belongs in which file.
func (f folder) Put(context.Context, []byte) error {
	return fmt.Errorf("%s: its files are to be written one by one: %w", string(f), errors.ErrUnsupported)
}

// Close does nothing, because a folder has no connection.
func (f folder) Close() error { return nil }

// read joins the files as they are now. It stops when there is more than a document may have.
func (f folder) read() (source.Document, error) {
	files, err := os.ReadDir(string(f)) // in the order of their names
	if err != nil {
		return source.Document{}, err
	}
	var d source.Document
	for _, file := range files {
		name := file.Name()
		if ext := path.Ext(name); strings.HasPrefix(name, ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		text, err := readFile(filepath.Join(string(f), name), source.MaxSize+1-len(d.Text))
		if err != nil {
			return source.Document{}, err
		}
		d.Exists = true
		d.Text = join(d.Text, name, text)
		if len(d.Text) > source.MaxSize {
			break
		}
	}
	d.Text = d.Text[:min(len(d.Text), source.MaxSize+1)]
	return d, nil
}

// join appends a file as a document of its own. A comment before it has the name of the file, so
// that an operator finds the line that a message names. A file without a document adds nothing.
func join(all []byte, name string, text []byte) []byte {
	first := firstLine(text)
	if first == "" {
		return all
	}
	if len(all) > 0 && !bytes.HasSuffix(all, []byte("\n")) {
		all = append(all, '\n')
	}
	all = fmt.Appendf(all, "# %q\n", name)
	if !strings.HasPrefix(first, "---") {
		all = append(all, "---\n"...)
	}
	return append(all, text...)
}

// firstLine returns the first line of a text that is neither empty nor a comment.
func firstLine(text []byte) string {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return string(line)
		}
	}
	return ""
}

// readFile returns a file, or so many bytes of it.
func readFile(name string, most int) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return nil, fmt.Errorf("%s: expected a file, found %v", name, info.Mode())
	}
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, int64(most)))
}

func same(a, b source.Document) bool { return a.Exists == b.Exists && bytes.Equal(a.Text, b.Text) }

// pause waits until it is time to look again, or returns the error of ctx.
func pause(ctx context.Context) error {
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
