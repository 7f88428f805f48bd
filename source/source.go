// SPDX-License-Identifier: MIT

// Package source reads remote configurations from configuration centres, and follows them.
//
// A [Source] is one document in one configuration centre. It reads the document, and waits until
// the document may have changed. It is simple: it keeps almost no state, and does not retry,
// because Diana retries, times out and detects changes, for all sources alike. A program adds a
// kind of configuration centre by adding a [Kind] to its vocabulary.
package source

import (
	"context"
	"crypto/tls"
	"net/url"
)

// MaxSize is the size of the largest valid document, in bytes, unless [Options] says another one. A Source returns at most one
// byte more of a larger document, so that its reader can reject it as too large.
const MaxSize = 1 << 20

// Document is what a configuration centre holds under a key.
type Document struct {
	Text   []byte
	Exists bool // false: the configuration centre has answered that it has no document

	// Version tells Wait which document this is. Only the Source that set it reads it.
	Version string
}

// Source is a document in a configuration centre. One goroutine at a time calls its methods. They
// return soon after ctx ends, with the error of ctx.
//
// A Source may also have the method
//
//	Swap(ctx context.Context, old Document, text []byte) (swapped bool, err error)
//
// It replaces the document by text if the document is still old, which Get has returned, and
// reports whether it did. Of several writers that know the same document, Swap reports true to one.
// It compares the texts, so a document that was changed and changed back is still old. After an
// error, the document is either of the two. The methods of a Source of this module compare and
// replace in one step of the configuration centre. If a configuration centre cannot do so, the error
// is errors.ErrUnsupported and the document is unchanged. Such a Source, and one without the method,
// is changed by Put alone.
type Source interface {
	// Get returns the document as it is now.
	Get(ctx context.Context) (Document, error)

	// Wait returns nil when the document may no longer be d: when the configuration centre has
	// reported a change, or when it is time to call Get again. It may return early. An error means
	// that Wait could not find out.
	Wait(ctx context.Context, d Document) error

	// Put replaces the document.
	Put(ctx context.Context, text []byte) error

	// Close releases the connections of the Source. It is the last call.
	Close() error
}

// Kind is a kind of configuration centre.
type Kind struct {
	// Schemes are the schemes of its URLs. The first is the name of the kind.
	Schemes []string

	// Form shows in messages what its URLs look like: "etcd://HOST:PORT/KEY".
	Form string

	// Check reports whether a URL of one of the schemes is complete. Nil: each one is.
	Check func(u *url.URL) bool

	// Open returns a Source. It does no network I/O. It returns an error if the Options are
	// wrong.
	Open func(o Options) (Source, error)
}

// Options say where a document is, and with which credentials to read it.
type Options struct {
	URL *url.URL // without user and password

	// Largest is the size of the largest valid document, in bytes. Zero means MaxSize, and so does
	// every value for a source that is not a local file.
	Largest int64

	// Credentials and Token are called for each connection or request, so that a Source uses
	// changed secrets. Nil: none.
	Credentials func() (username, password string, err error)
	Token       func() (string, error)

	// TLS is for schemes that always use TLS, and for schemes that can. Nil: the former trust
	// the authorities of the system, the latter use no TLS.
	TLS *tls.Config
}

// Kinds returns the kinds of this package: Consul, Redis, HTTP and files.
func Kinds() []Kind { return []Kind{consulKind(), redisKind(), httpKind(), fileKind()} }
