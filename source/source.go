// SPDX-License-Identifier: MIT

// Package source delivers configurations from configuration centres, and follows them.
//
// A [Source] is one document in one centre: what to ask it, and how to hear that it may
// have changed. It has no state of its own to speak of and gives up easily. All that makes
// it safe to rely on a centre is in [Follow], once for all of them. A program adds a kind of
// centre by adding a [Kind] to its vocabulary.
package source

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"slices"
)

// MaxSize is the largest document, in bytes. A Source reads one byte more than that at the
// most, and whoever reads the document says that it is too large.
const MaxSize = 1 << 20

// Document is what a centre holds under a key.
type Document struct {
	Text   []byte
	Exists bool // false: the centre answers, and there is none

	// Version is what Wait needs to tell it from another; nobody else reads it.
	Version string
}

// Source is a document in a centre. Its methods are called by one goroutine at a time, and
// return soon after ctx ends, with its error.
type Source interface {
	// Get returns the document as it is now.
	Get(ctx context.Context) (Document, error)

	// Wait returns nil when the document may no longer be d: when the centre has said so,
	// when it is time to ask again, or too early. An error means that it cannot be told.
	Wait(ctx context.Context, d Document) error

	// Put replaces the document.
	Put(ctx context.Context, text []byte) error

	// Close gives back what the Source holds. No other call comes after it.
	Close() error
}

// Kind is a kind of centre.
type Kind struct {
	// Schemes are those of its URLs. The first is its name.
	Schemes []string

	// Form is what its URLs look like, for messages: "etcd://HOST:PORT/KEY".
	Form string

	// Check reports whether a URL of one of the schemes has all that is needed.
	Check func(u *url.URL) bool

	// Open returns a Source. It does not wait for the centre. The error is for Options
	// that are wrong.
	Open func(o Options) (Source, error)
}

// Options say where a document is, and who asks for it.
type Options struct {
	URL *url.URL // without user and password

	// Credentials and Token are asked whenever they are needed, so that changed ones are
	// used. Nil: none.
	Credentials func() (username, password string, err error)
	Token       func() (string, error)

	TLS *tls.Config // for schemes that use TLS, or for those that can; nil: the system's authorities, or no TLS
}

// Open returns the Source of the kind that has the URL's scheme, and the kind's name.
func Open(kinds []Kind, o Options) (kind string, s Source, err error) {
	k, ok := Named(kinds, o.URL.Scheme)
	if !ok {
		return "", nil, fmt.Errorf("this program has no source for %s", o.URL.Scheme)
	}
	s, err = k.Open(o)
	return k.Schemes[0], s, err
}

// Named returns the kind that has a scheme.
func Named(kinds []Kind, scheme string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return slices.Contains(k.Schemes, scheme) })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}
