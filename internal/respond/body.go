// SPDX-License-Identifier: MIT

package respond

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/requestbody"
)

// MaxBodies is the size of all bodies that Bodies holds at once, in bytes.
const MaxBodies = 64 << 20

// MaxArrival is how long a body may take to arrive. The timeouts of a server may be for pauses alone. Then a client
// that sends a byte now and then could hold memory for as long as it likes, and 64 such clients all of it.
const MaxArrival = time.Minute

// Bodies reads the bodies of requests into memory, so that rules can count by them. The zero value is ready
// to use. It is safe for concurrent use.
//
// Memory grows with the bytes that clients have sent, and not with what they announce. So a flood of
// requests needs a flood of bytes to reach MaxBodies, and then other requests with such bodies are rejected
// until there is room. A request cannot wait for room: clients that send slowly could hold all of it.
type Bodies struct{ held atomic.Int64 }

// BodyError is why a request is rejected because of its body.
type BodyError struct {
	Reason string // of the metric
	Status int
	detail string
}

func (e *BodyError) Error() string { return e.detail }

func invalidBody(detail string) *BodyError {
	return &BodyError{"body", http.StatusBadRequest, detail}
}

// Mistakes of a body that do not depend on its text.
var (
	errForm      = invalidBody("The request's body can be read as a form, and a rule reads it as JSON. The Content-Type is expected to be application/json.")
	errCharset   = invalidBody("The request's body has another charset than UTF-8, and a rule reads it as JSON.")
	errCoding    = invalidBody("The request's body is compressed, and a rule reads it. It is expected without Content-Encoding.")
	errBroken    = &BodyError{"body_incomplete", http.StatusBadRequest, "The request's body is not complete."}
	errBodySize  = &BodyError{"body_length", http.StatusRequestEntityTooLarge, fmt.Sprintf("The request's body has more than %d bytes, and a rule reads it.", requestbody.MaxSize)}
	errBodyTime  = &BodyError{"body_timeout", http.StatusRequestTimeout, "The request's body did not arrive in time."}
	errBodySpace = &BodyError{"body_memory", http.StatusServiceUnavailable, "There are too many requests whose bodies are read."}
)

// BodyReasons are the reasons of all BodyErrors.
var BodyReasons = [5]string{errCoding.Reason, errBroken.Reason, errBodySize.Reason, errBodyTime.Reason, errBodySpace.Reason}

// Read answers a query about a request's body. The first call for a request reads the body, and puts one into its
// place that has the same bytes. The error is a BodyError. The request can be answered after an error, too: the next
// handler then reads the rest from the connection.
func (b *Bodies) Read(r *http.Request, q *requestbody.Query) (requestbody.Reading, error) {
	if q.Optional && !saysJSON(r.Header["Content-Type"]) {
		return requestbody.Reading{}, nil
	}
	var data []byte
	if body := b.hold(r); body != nil {
		if body.mistake != nil && q.Optional {
			return requestbody.Reading{}, nil
		}
		if body.mistake != nil {
			return requestbody.Reading{}, body.mistake
		}
		data = body.data
	}
	if isForm(r.Header["Content-Type"], data) {
		return requestbody.Reading{}, errForm
	}
	read, err := requestbody.Read(data, q)
	if err != nil {
		return requestbody.Reading{}, invalidBody("The request was refused because " + err.Error() + ".")
	}
	return read, nil
}

// Divert puts other values into the body of a request that Read has read. It reports whether it has changed the body.
func (b *Bodies) Divert(r *http.Request, values map[string]any) (changed bool) {
	b.Change(r, func(body []byte) []byte {
		body, changed = requestbody.Replace(body, values)
		return body
	})
	return changed
}

// Change changes the body of a request that Read has read.
func (b *Bodies) Change(r *http.Request, change func(body []byte) []byte) {
	body := b.of(r)
	if body == nil || body.mistake != nil || body.begun() || len(body.data) == 0 {
		return
	}
	before := len(body.data)
	body.replace(change(body.data))
	if len(body.data) == before || r.ContentLength < 0 {
		return
	}
	r.ContentLength = int64(len(body.data))
	if len(r.Header["Content-Length"]) > 0 {
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
}

// Release frees the memory of a body that Read has put into a request. The body cannot be read any more.
// It does nothing for another body.
func (b *Bodies) Release(held io.ReadCloser) {
	if body, ok := held.(*body); ok && body.of == b {
		body.end()
	}
}

// IsHeld reports whether a body is one that is in memory.
func IsHeld(of io.ReadCloser) bool {
	_, held := of.(*body)
	return held
}

// Changed returns a body that Change has changed, as the next handler reads it. It returns nil for any other body.
func Changed(held io.ReadCloser) []byte {
	if body, ok := held.(*body); ok && body.changed {
		return body.data
	}
	return nil
}

// of returns the body of a request that b has read, or nil.
func (b *Bodies) of(r *http.Request) *body {
	held, _ := r.Body.(*body)
	if held == nil || held.of != b {
		return nil
	}
	return held
}

// hold reads the body of a request, unless it is held already. It returns nil if there is none.
func (b *Bodies) hold(r *http.Request) *body {
	if held := b.of(r); held != nil && !held.begun() {
		return held
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	held := &body{of: b, rest: r.Body}
	if held.mistake = mistakeBefore(r); held.mistake != nil {
		// net/http must still know the body: it does not wait for one that the client sends on demand (Expect).
		return held
	}
	held.mistake = held.fill(r)
	if len(held.data) == 0 {
		held.releaseLocked() // nobody will read it
	}
	r.Body = held
	return held
}

// body is the body of a request that is in memory as a whole, or up to where a mistake was found.
type body struct {
	of      *Bodies
	rest    io.ReadCloser
	mistake *BodyError

	mu      sync.Mutex // because a transport may read on after the handler has returned
	data    []byte     // not yet released
	changed bool       // data is not what the client has sent
	at      int        // the index in data of the next byte to read
	ended   error      // what follows data; nil: rest
}

// firstSize is how much memory is reserved for a body before it arrives.
const firstSize = 16 << 10

// mistakeBefore returns why a body cannot be read, as far as its header tells.
func mistakeBefore(r *http.Request) *BodyError {
	for _, coding := range r.Header["Content-Encoding"] {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return errCoding
		}
	}
	if slices.ContainsFunc(r.Header["Content-Type"], hasOtherCharset) {
		return errCharset
	}
	if r.ContentLength > requestbody.MaxSize {
		return errBodySize
	}
	return nil
}

// fill reads the body. It returns why it cannot be read.
func (b *body) fill(r *http.Request) *BodyError {
	size := firstSize
	if r.ContentLength >= 0 {
		size = min(int(r.ContentLength)+1, size) // so that the end is found without growing
	}
	for began := time.Now(); ; {
		if len(b.data) == cap(b.data) {
			if !b.grow(size) {
				return errBodySpace
			}
			size *= 2
		}
		n, err := b.rest.Read(b.data[len(b.data):cap(b.data)])
		b.data = b.data[:len(b.data)+n]
		if len(b.data) > requestbody.MaxSize {
			if err != nil {
				b.ended = err
			}
			return errBodySize
		}
		if err != nil {
			b.ended = err
			return mistakeOf(err)
		}
		if time.Since(began) > MaxArrival {
			return errBodyTime
		}
	}
}

// hasOtherCharset reports whether a Content-Type names another charset than UTF-8, in which a server could read
// another text. JSON is UTF-8, but some servers decode what the client names.
func hasOtherCharset(contentType string) bool {
	if !strings.Contains(strings.ToLower(contentType), "charset") {
		return false
	}
	_, values, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(values["charset"])
	return err != nil || charset != "utf-8" && charset != "utf8" && charset != "us-ascii"
}

// isForm reports whether a server could read a JSON text as a form with values, because its Content-Type says so:
// {"model":"cheap","x":"&model=dear&"} is both. A JSON text without these marks is one name without a value.
func isForm(contentTypes []string, text []byte) bool {
	return slices.ContainsFunc(contentTypes, func(s string) bool {
		name, _, _ := strings.Cut(s, ";")
		return strings.EqualFold(httptext.Trim(name), "application/x-www-form-urlencoded")
	}) && bytes.ContainsAny(text, "&;") && bytes.IndexByte(text, '=') >= 0
}

// saysJSON reports whether a Content-Type can be that of a JSON text.
func saysJSON(contentTypes []string) bool {
	return len(contentTypes) == 0 || slices.ContainsFunc(contentTypes, func(s string) bool { return strings.Contains(strings.ToLower(s), "json") })
}

// mistakeOf returns the mistake that an error of Read means, or nil at the end.
func mistakeOf(err error) *BodyError {
	var tooLarge *http.MaxBytesError // of a filter in front
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded): // of the connection; a context has another error
		return errBodyTime
	case errors.As(err, &tooLarge):
		return errBodySize
	}
	return errBroken
}

// grow makes room for size bytes, or for the largest body and one more byte. It reports whether there is
// memory for that.
func (b *body) grow(size int) bool {
	size = min(max(size, 2*cap(b.data)), requestbody.MaxSize+1)
	more := int64(size - cap(b.data))
	if b.of.held.Add(more) > MaxBodies {
		b.of.held.Add(-more)
		return false
	}
	b.data = append(make([]byte, 0, size), b.data...)
	return true
}

// replace replaces the data by a text that is hardly longer.
func (b *body) replace(data []byte) {
	b.changed = b.changed || !bytes.Equal(data, b.data)
	b.of.held.Add(int64(cap(data) - cap(b.data)))
	b.data = data
}

// begun reports whether the next handler has begun to read.
func (b *body) begun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at > 0
}

// Read returns the bytes that are held, and then what follows them.
func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	if len(b.data) > 0 {
		n = copy(p, b.data[b.at:])
		b.at += n
		if b.at == len(b.data) {
			b.releaseLocked()
		}
	} else {
		err = b.ended
	}
	direct := b.rest != nil && n == 0 && err == nil && len(p) > 0
	b.mu.Unlock()
	if direct {
		return b.rest.Read(p)
	}
	return n, err
}

// Close frees the memory, and closes the body that was read.
func (b *body) Close() error {
	b.end()
	return b.rest.Close()
}

func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = http.ErrBodyReadAfterClose
	b.releaseLocked()
}

func (b *body) releaseLocked() {
	b.of.held.Add(-int64(cap(b.data)))
	b.data = nil
}
