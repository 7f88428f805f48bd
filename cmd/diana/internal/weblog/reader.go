// SPDX-License-Identifier: MIT

package weblog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
)

// Reader reads the entries of files in the order of their time.
type Reader struct {
	Files []File // in the order of Open

	names   *Names
	broken  func(Broken)
	files   []*file
	order   order
	free    []*Entry
	last    *Entry // the result of Next
	current *file  // the file with the next line, as long as its time is at most until
	until   int64
	read    int64 // bytes of text, of all files
	latest  int64 // the time of last
	taken   atomic.Int64
}

// File is the statistics of a file, as far as it has been read.
type File struct {
	Name     string `json:"name"`
	Lines    int    `json:"lines"`
	Requests int    `json:"requests"`
	Others   int    `json:"others"`          // lines without a request
	Broken   int    `json:"broken"`          // lines that could not be read
	Late     int    `json:"late"`            // requests too far from their place by time to be sorted
	Error    string `json:"error,omitempty"` // why the file could not be read to its end
	Size     int64  `json:"-"`               // 0: unknown
}

// file is an open file.
type file struct {
	*File
	index  int
	closer io.Closer
	lines  *lines
	parser parser
	head   *Entry // the next entry, not yet sorted; nil at the end
}

// Broken is a line that could not be read.
type Broken struct {
	File string
	Line int
	Why  string
}

func (b Broken) String() string { return fmt.Sprintf("%s:%d: %s", b.File, b.Line, b.Why) }

// Open opens files; "-" is stdin. The error names every file that cannot be read. names are the
// headers to read. The Reader calls broken with each line that cannot be read.
func Open(files []string, stdin io.Reader, names *Names, broken func(Broken)) (*Reader, error) {
	r := &Reader{names: names, broken: broken, Files: make([]File, len(files))}
	var errs []error
	for i, name := range files {
		f := &file{File: &r.Files[i], index: i, closer: io.NopCloser(nil)}
		f.Name = name
		f.parser.names = names
		r.files = append(r.files, f)
		from := stdin
		if name == "-" {
			f.Name = "standard input"
		} else {
			opened, err := os.Open(name)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			f.closer, from = opened, opened
			if info, err := opened.Stat(); err == nil && info.Mode().IsRegular() {
				f.Size = info.Size()
			}
		}
		var err error
		if f.lines, err = newLines(&counted{from, &r.taken}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		}
	}
	if len(errs) > 0 {
		r.Close()
		return nil, errors.Join(errs...)
	}
	for _, f := range r.files {
		r.advance(f)
	}
	r.choose()
	return r, nil
}

// Close closes the files.
func (r *Reader) Close() {
	for _, f := range r.files {
		_ = f.closer.Close() // it was not written to
	}
}

// Taken returns how many bytes of the files have been read, before decompression. It may be called
// by another goroutine.
func (r *Reader) Taken() int64 { return r.taken.Load() }

type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// Next returns the next entry, or nil at the end. It is valid until the next call. Its Start is
// never before that of the previous entry.
func (r *Reader) Next() *Entry {
	if r.last != nil {
		r.release(r.last)
		r.last = nil
	}
	for {
		e := r.order.get(r.current == nil)
		if e != nil {
			if e.Start < r.latest {
				r.Files[e.File].Late++
				e.Start = r.latest
			}
			r.latest, r.last = e.Start, e
			return e
		}
		if r.current == nil {
			return nil
		}
		r.order.put(r.current.head)
		r.advance(r.current)
		if r.current.head == nil || r.current.head.Start > r.until {
			r.choose()
		}
	}
}

// advance reads the next entry of a file.
func (r *Reader) advance(f *file) {
	f.head = nil
	for {
		before := f.lines.read
		line, long, err := f.lines.next()
		r.read += f.lines.read - before
		if err != nil {
			if !errors.Is(err, io.EOF) {
				f.Error = err.Error()
			}
			return
		}
		if f.Lines++; f.Lines == 1 {
			line = strings.TrimPrefix(line, "\uFEFF") // the byte order mark that Windows writes
		}
		e := r.entry()
		e.File, e.Line, e.read = f.index, f.Lines, r.read
		k, why := broken, "a line of over 64 KiB"
		if !long {
			k, why = f.parser.parse(line, e)
		}
		switch k {
		case request:
			f.Requests++
			f.head = e
			return
		case other:
			f.Others++
		case broken:
			f.Broken++
			r.broken(Broken{f.Name, f.Lines, why})
		}
		r.release(e)
	}
}

// entry returns an empty entry.
func (r *Reader) entry() *Entry {
	if n := len(r.free); n > 0 {
		e := r.free[n-1]
		r.free = r.free[:n-1]
		return e
	}
	return &Entry{Headers: make([]string, len(r.names.Headers))}
}

// release takes an entry back, and clears it so that it does not keep its block in memory.
func (r *Reader) release(e *Entry) {
	clear(e.Headers)
	*e = Entry{Headers: e.Headers}
	r.free = append(r.free, e)
}

// choose finds the file with the earliest entry, and the time until which that file stays so.
func (r *Reader) choose() {
	r.current = nil
	r.until = latest
	for _, f := range r.files {
		switch {
		case f.head == nil:
		case r.current == nil:
			r.current = f
		case f.head.Start < r.current.head.Start:
			r.until = r.current.head.Start
			r.current = f
		default:
			r.until = min(r.until, f.head.Start)
		}
	}
}
