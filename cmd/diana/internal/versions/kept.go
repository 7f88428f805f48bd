// SPDX-License-Identifier: MIT

package versions

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
	"github.com/diana-limiter/diana/source"
)

const (
	// mostVersions is how many versions are kept.
	mostVersions = 20

	// mostTries is how often a change of the versions is tried while other writers change them.
	mostTries = 10

	// foundComment is the comment of a version that was not pushed by this package.
	foundComment = "found: written by another program"
)

// largest returns the size of the largest document of versions of a kind of source. Consul refuses values above
// 512 KiB unless its settings allow more. ZooKeeper counts the whole request.
func largest(kind string) int {
	if kind == "consul" {
		return 512<<10 - 4<<10
	}
	return source.MaxSize - 4<<10
}

// Version is one version of a remote configuration.
type Version struct {
	Number  int       `json:"number"` // counts from 1
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Comment string    `json:"comment"`
	Bytes   int       `json:"bytes"`
	Active  bool      `json:"active"`         // set by List
	Gzip    []byte    `json:"gzip,omitempty"` // the text; no answer of the API has it
}

// Text returns the text of the version.
func (v Version) Text() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(v.Gzip))
	if err != nil {
		return nil, fmt.Errorf("version %d cannot be read: %w", v.Number, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, bounds.MaxConfig+1))
	if err != nil {
		return nil, fmt.Errorf("version %d cannot be read: %w", v.Number, err)
	}
	if textVersion(text) != v.Version {
		return nil, fmt.Errorf("version %d cannot be read: its text is another one", v.Number)
	}
	return text, nil
}

func newVersion(text []byte, by, comment string) Version {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(text) // a Buffer returns no error
	_ = w.Close()
	return Version{
		Version: textVersion(text), At: time.Now().UTC().Truncate(time.Second),
		By: by, Comment: comment, Bytes: len(text), Gzip: packed.Bytes(),
	}
}

// history is the document: versions, oldest first.
type history struct {
	Versions []Version `json:"versions"`
}

// add adds a version with the next number.
func (h *history) add(v Version) Version {
	v.Number = 1
	if n := len(h.Versions); n > 0 {
		v.Number = h.Versions[n-1].Number + 1
	}
	h.Versions = append(h.Versions, v)
	return v
}

// newest reports whether the newest version is that of a document.
func (h *history) newest(d source.Document) bool {
	n := len(h.Versions)
	return n > 0 && h.Versions[n-1].Version == VersionOf(d)
}

// encode returns the document without its oldest versions, as far as it would be too large.
func (h *history) encode(most int) ([]byte, error) {
	h.Versions = h.Versions[max(0, len(h.Versions)-mostVersions):]
	for {
		text, err := json.Marshal(h)
		if err != nil || len(text) <= most {
			return text, err
		}
		if len(h.Versions) <= 1 {
			return nil, fmt.Errorf("the document is too large to keep a version of it: expected %d bytes at most after compression, found %d", most, len(text))
		}
		h.Versions = h.Versions[1:]
	}
}

// history reads the versions.
func (r *Remote) history(ctx context.Context) (*history, source.Document, error) {
	d, err := r.get(ctx, r.versions, Suffix)
	if err != nil {
		return nil, d, err
	}
	h := new(history)
	if d.Exists && len(d.Text) > 0 {
		if json.Unmarshal(d.Text, h) != nil { // its error quotes the text
			return nil, d, fmt.Errorf("%s%s: expected the versions that Diana keeps there; delete this document to begin again", r.Where, Suffix)
		}
	}
	return h, d, nil
}

var errBusy = errors.New("other writers change the versions all the time, try again later")

// change replaces the versions by those that do leaves.
func (r *Remote) change(ctx context.Context, do func(*history)) error {
	for range mostTries {
		h, old, err := r.history(ctx)
		if err != nil {
			return err
		}
		do(h)
		text, err := h.encode(r.largest)
		if err != nil {
			return err
		}
		if old.Exists && bytes.Equal(old.Text, text) {
			return nil
		}
		switch swapped, err := r.swap(ctx, r.versions, Suffix, old, text); {
		case err != nil:
			return err
		case swapped:
			return nil
		}
	}
	return fmt.Errorf("%s: %w", r.Where, errBusy)
}

// add adds the version of a change, and before it that of the present document if it is not the newest. It returns
// the versions that it has added, or the newest one if there is nothing to add.
func (r *Remote) add(ctx context.Context, present source.Document, c Change) (added []Version, err error) {
	err = r.change(ctx, func(h *history) {
		added = nil
		if present.Exists && !h.newest(present) {
			added = append(added, h.add(newVersion(present.Text, "", foundComment)))
		}
		switch {
		case !present.Exists || !bytes.Equal(present.Text, c.Text):
			added = append(added, h.add(newVersion(c.Text, c.By, c.Comment)))
		case added == nil:
			added = h.Versions[len(h.Versions)-1:]
		}
	})
	return added, err
}

// remove takes out versions that are not in force. Another writer may have seen one of them as the newest, and
// added the present document a second time; of equal neighbours the first stays.
func (r *Remote) remove(ctx context.Context, versions []Version) error {
	return r.change(ctx, func(h *history) {
		h.Versions = slices.DeleteFunc(h.Versions, func(v Version) bool {
			return slices.ContainsFunc(versions, func(out Version) bool {
				return v.Number == out.Number && v.Version == out.Version && v.At.Equal(out.At)
			})
		})
		h.Versions = slices.CompactFunc(h.Versions, func(a, b Version) bool { return a.Version == b.Version })
	})
}
