// SPDX-License-Identifier: MIT

// Package versions changes remote configurations so that no operator overwrites the change of another. It keeps
// the last versions, for a rollback.
//
// The files:
//
//	versions.go  the remote configuration: read, push, list
//	kept.go      the document with the last versions
//	exempt.go    a change that exempts an actor for a while
//	override.go  the edit of the text that does it
//	audit.go     who changed what
//	api.go       the routes of the administrators' listener
//	problem.go   their answers
package versions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/track"
	"github.com/diana-limiter/diana/source"
)

// Suffix is what the key of the versions has behind the key of the remote configuration.
const Suffix = ".versions"

// timeout is how long one call of a source may take.
const timeout = 10 * time.Second

// Conflict is the error of a push when the remote configuration is not the expected one.
type Conflict struct {
	Found string // its version; empty: there is no document
}

func (c Conflict) Error() string {
	if c.Found == "" {
		return "the remote configuration has been deleted meanwhile"
	}
	return "another writer has changed the remote configuration meanwhile: it has version " + c.Found
}

// Change is a push.
type Change struct {
	Text    []byte
	Expect  *string // the version that the document must have, empty for no document; nil: any
	By      string  // who pushes; may be empty
	Comment string  // may be empty
}

// Remote is a remote configuration. One goroutine at a time may use it.
type Remote struct {
	Where string // the URL without secrets

	local    *config.Config
	words    config.Vocabulary
	document source.Source
	versions source.Source
	largest  int // size of the largest document of versions, in bytes
}

// Open returns the remote configuration that local names. It does no network I/O.
func Open(words config.Vocabulary, local *config.Config) (*Remote, error) {
	if local.Remote == nil {
		return nil, refusal{http.StatusConflict, errors.New("no configuration centre is named, expected the key remote with a url")}
	}
	o, err := local.Remote.Options()
	if err != nil {
		return nil, err
	}
	kind, document, err := words.OpenSource(o)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	beside := *o.URL
	beside.Path += Suffix
	beside.RawPath = ""
	o.URL = &beside
	_, versions, err := words.OpenSource(o)
	if err != nil {
		_ = document.Close() // nobody used it
		return nil, fmt.Errorf("remote: %w", err)
	}
	return &Remote{local.Remote.Where(), local, words, document, versions, largest(kind)}, nil
}

// Close releases the connections.
func (r *Remote) Close() {
	_ = r.document.Close() // no write is pending
	_ = r.versions.Close()
}

// Local returns the configuration that names the remote one.
func (r *Remote) Local() *config.Config { return r.local }

// Get returns the document as it is now.
func (r *Remote) Get(ctx context.Context) (source.Document, error) { return r.get(ctx, r.document, "") }

func (r *Remote) get(ctx context.Context, s source.Source, suffix string) (source.Document, error) {
	d, err := track.Get(ctx, s, timeout)
	if err != nil {
		return d, fmt.Errorf("%s%s: %w", r.Where, suffix, err)
	}
	return d, nil
}

// Compose returns the local configuration with the limits of a text. Errors call the text by name.
func (r *Remote) Compose(name string, text []byte) (*config.Config, error) {
	d, err := r.words.ParseRemote(name, text)
	if err != nil {
		return nil, err
	}
	return r.local.WithRemote(d), nil
}

// VersionOf returns the version of a document, as config.Config has it; empty: there is no document.
func VersionOf(d source.Document) string {
	if !d.Exists {
		return ""
	}
	return textVersion(d.Text)
}

func textVersion(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// swapper is a source.Source that compares before it replaces the document.
type swapper interface {
	Swap(ctx context.Context, old source.Document, text []byte) (swapped bool, err error)
}

// swap replaces the document of s. Its error is errors.ErrUnsupported if s cannot compare.
func (r *Remote) swap(ctx context.Context, s source.Source, suffix string, old source.Document, text []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	able, ok := s.(swapper)
	if !ok {
		return false, fmt.Errorf("%s: changes of another writer could be lost: %w", r.Where, errors.ErrUnsupported)
	}
	swapped, err := able.Swap(ctx, old, text)
	if err != nil {
		return false, fmt.Errorf("%s%s: %w", r.Where, suffix, err)
	}
	return swapped, nil
}

// Push replaces the document by a text that the caller has validated, and returns its version. The error is a
// Conflict if the document is not the expected one, or if another writer changes it during the call. A text that
// is already there is no change, and no new version.
//
// Push first adds the version and then replaces the document. If the program ends in between, there is a version
// that never was in force. That does no harm. In the other order, a version could be missing.
func (r *Remote) Push(ctx context.Context, c Change) (Version, error) {
	old, err := r.Get(ctx)
	if err != nil {
		return Version{}, err
	}
	if c.Expect != nil && *c.Expect != VersionOf(old) {
		return Version{}, Conflict{VersionOf(old)}
	}
	added, err := r.add(ctx, old, c)
	if errors.Is(err, errBusy) { // the writers who keep the versions busy have probably changed the document
		if now, failed := r.Get(ctx); failed == nil && VersionOf(now) != VersionOf(old) {
			err = Conflict{VersionOf(now)}
		}
	}
	if err != nil {
		return Version{}, err
	}
	last := added[len(added)-1]
	if old.Exists && bytes.Equal(old.Text, c.Text) {
		return last, nil
	}
	swapped, err := r.swap(ctx, r.document, "", old, c.Text)
	if err != nil { // the document may be either, so the version stays
		return Version{}, err
	}
	if swapped {
		return last, nil
	}
	removed := r.remove(ctx, added)
	now, err := r.Get(ctx)
	if err != nil {
		return Version{}, errors.Join(removed, err)
	}
	return Version{}, errors.Join(Conflict{VersionOf(now)}, removed)
}

// Overwrite replaces the document, whatever it is, and keeps no version. It is for configuration centres that
// cannot compare.
func (r *Remote) Overwrite(ctx context.Context, text []byte) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := r.document.Put(ctx, text); err != nil {
		return fmt.Errorf("%s: %w", r.Where, err)
	}
	return nil
}

// List returns the last versions, newest first. Active is the newest with the text of the document.
func (r *Remote) List(ctx context.Context) ([]Version, error) {
	d, err := r.Get(ctx)
	if err != nil {
		return nil, err
	}
	h, _, err := r.history(ctx)
	if err != nil {
		return nil, err
	}
	list, found := []Version{}, false
	for _, v := range slices.Backward(h.Versions) {
		v.Active = !found && v.Version == VersionOf(d)
		found = found || v.Active
		list = append(list, v)
	}
	return list, nil
}

// Find returns the version of a number, as List shows it, and its text.
func (r *Remote) Find(ctx context.Context, number string) (Version, []byte, error) {
	list, err := r.List(ctx)
	if err != nil {
		return Version{}, nil, err
	}
	for _, v := range list {
		if strconv.Itoa(v.Number) == number {
			text, err := v.Text()
			return v, text, err
		}
	}
	return Version{}, nil, refusal{http.StatusNotFound, fmt.Errorf("there is no version %q, expected one of diana rollback --list", number)}
}
