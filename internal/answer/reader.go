// SPDX-License-Identifier: MIT

// Package answer reads what a response has cost while the response passes through.
//
// A [Source] names the place that says the cost. A [Reader] gets the bytes that are sent to the
// client, in pieces of any size. It keeps none of them, and its memory has a bound.
package answer

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/diana-limiter/diana/internal/httptext"
)

// Usage is what a response says it has cost. A source that is a single number has Output alone. Each
// part is 0 to MaxCount.
type Usage struct {
	Input        int64 // without the other parts of the input
	Output       int64
	Cached       int64 // the part of the input that the provider has found in its cache
	CacheWrite   int64 // the part that it has written to its cache
	CacheWrite1h int64 // the part that stays there for an hour
}

// Reader reads the costs of one response. It is not safe for concurrent use. Make one with NewReader.
type Reader struct {
	parts   []part
	bytes   int64
	content *content // nil: no source has parts

	texts      []*documents
	stream     *events   // nil: the body is JSON
	decoding   *decoding // nil: the body has no content coding
	in         input     // of decoding
	unreadable bool      // the body has a content coding that nobody can decode here
	ended      bool

	mark   int  // bytes of the byte order mark that have arrived; the number of all of them behind it
	done   int  // bytes of [DONE] at the beginning of an event; -1: it has others
	isLast bool // the stream ends within the bytes of this Write
	before int  // the bytes of this Write before the event that ends the stream
	over   bool // the stream has ended
}

// NewReader returns a Reader of some sources for a response with a header. It decodes gzip itself,
// and other content codings by decoders, which have the names of the codings in lower case. A
// program must call End.
func NewReader(of []Source, h http.Header, decoders map[string]Decoder) *Reader {
	r := &Reader{parts: make([]part, len(of))}
	contentType, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	isStream := strings.EqualFold(httptext.Trim(contentType), "text/event-stream")
	var whole, lists []*part
	for i, s := range of {
		p := &r.parts[i]
		p.source, p.format = s, formatOf(s)
		switch {
		case s.kind == inHeader:
			p.counts[0] = countIn(h[s.name])
		case s.HasParts() && r.content == nil:
			r.content = &content{}
		}
		switch {
		case s.kind == gemini && !isStream:
			lists = append(lists, p)
		case len(p.format.fields[0]) > 0:
			whole = append(whole, p)
		}
	}
	if whole != nil {
		r.texts = append(r.texts, newDocuments(whole, !isStream, false))
	}
	if lists != nil {
		r.texts = append(r.texts, newDocuments(lists, true, true))
	}
	if r.texts == nil {
		return r
	}
	if isStream {
		r.stream = &events{data: r.readData, end: r.endEvent}
	}
	switch open, err := decoderOf(h, decoders); {
	case err != nil:
		r.unreadable = true
	case open != nil:
		r.decoding = newDecoding(open, &r.in, r.read)
	}
	return r
}

// Write reads the next bytes of the body, as they are sent. It never fails. In a stream whose format
// says where it ends, it reports whether the stream ends within p, and how many bytes of p are before the event
// that ends it. A client can notice the end as soon as it has a part of that event. If the body is decoded, before
// is 0. Write allocates only while it decodes or finds a cost.
func (r *Reader) Write(p []byte) (before int, ends bool) {
	if r.ended {
		return len(p), false
	}
	r.bytes += int64(len(p))
	r.isLast, r.before = false, 0
	switch {
	case r.unreadable:
	case r.decoding == nil:
		r.read(p)
	case !r.decoding.over:
		r.in.rest = p
		_, more := r.decoding.resume()
		r.decoding.over, r.in.rest = !more, nil
	}
	r.over = r.over || r.isLast
	if !r.isLast {
		return len(p), false
	}
	return r.before, true
}

// End reads the trailer and frees the decoder. Later calls of Write and End do nothing. trailer is nil
// if the response is not complete.
func (r *Reader) End(trailer http.Header) {
	if r.ended {
		return
	}
	r.ended = true
	if r.decoding != nil {
		r.decoding.stop()
	}
	for i := range r.parts {
		if p := &r.parts[i]; p.source.kind == inTrailer {
			p.counts[0] = countIn(trailer[p.source.name])
		}
	}
}

// Usage returns what source i has said so far. It is ok if the source has said something, and all of
// its latest counts are readable. Otherwise u has what has been counted nevertheless.
//
// The last usage of a stream counts, and of a broken or truncated body the part before the break.
func (r *Reader) Usage(i int) (u Usage, ok bool) {
	p := &r.parts[i]
	if p.source.kind == inBytes {
		return Usage{Output: min(r.bytes, MaxCount)}, true
	}
	u, ok = p.usage()
	if p.from != nil && (r.unreadable || r.decoding != nil && r.decoding.broken) {
		ok = false
	}
	return u, ok
}

// Unread returns the length of a body that nobody reads, because there was no memory for a decoder. Otherwise it
// returns 0.
func (r *Reader) Unread() int64 {
	if r.decoding == nil || !r.decoding.unread {
		return 0
	}
	return min(r.bytes, MaxCount)
}

// Content returns how many bytes of text the response has had so far, in texts that a model writes. It is never less
// than their tokens. It is 0 unless a source has parts.
func (r *Reader) Content() int64 {
	if r.content == nil {
		return 0
	}
	return min(r.content.total(), MaxCount)
}

// Over reports whether source i has said all, because the stream has ended. More bytes can follow, such as
// those that end a gzip file, but many clients do not wait for them.
func (r *Reader) Over(i int) bool { return r.over && r.parts[i].from != nil }

// countIn returns the count in the lines of a header, the largest one if there are several.
func countIn(lines []string) (c count) {
	for _, line := range lines {
		c = c.or(parseCount(httptext.Trim(line), 1))
	}
	return c
}

// byteOrderMark can be in front of a text. Clients ignore it.
var byteOrderMark = []byte("\ufeff")

// read reads the next bytes of the decoded body.
func (r *Reader) read(p []byte) {
	mark := 0
	for ; r.mark < len(byteOrderMark) && len(p) > 0; mark++ {
		if p[0] != byteOrderMark[r.mark] {
			begin := byteOrderMark[:r.mark]
			r.mark = len(byteOrderMark)
			r.readText(begin)
			break
		}
		r.mark++
		p = p[1:]
	}
	r.readText(p)
	if r.stream != nil && r.decoding == nil && r.isLast {
		r.before += mark
	}
}

func (r *Reader) readText(p []byte) {
	if r.content != nil {
		r.content.read(p)
	}
	if r.stream != nil {
		r.stream.write(p)
		return
	}
	for _, d := range r.texts {
		d.write(p)
	}
}

// lastData is the beginning of the data that ends a stream of OpenAI. Other APIs have adopted it.
const lastData = "[DONE]"

// readData reads the next bytes of the data of an event.
func (r *Reader) readData(p []byte) {
	for _, d := range r.texts {
		if d.write(p) {
			r.endHere()
		}
	}
	if r.done < 0 || r.done == len(lastData) {
		return
	}
	rest := lastData[r.done:]
	n := min(len(p), len(rest))
	if !bytes.Equal(p[:n], []byte(rest[:n])) {
		r.done = -1
		return
	}
	if r.done += n; r.done == len(lastData) {
		r.endHere()
	}
}

// endHere notes that the present event ends the stream.
func (r *Reader) endHere() {
	if !r.isLast && r.decoding == nil {
		r.before = r.stream.begin
	}
	r.isLast = true
}

func (r *Reader) endEvent() {
	r.done = 0
	for _, d := range r.texts {
		d.next()
	}
}
