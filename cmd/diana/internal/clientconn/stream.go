// SPDX-License-Identifier: MIT

package clientconn

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// stream is a request over HTTP/2 that may not be held up by its client. Its connection carries other requests
// too, so the deadlines of a clientConn would end these as well. A stream has timers of its own:
//
//	each Read of the body         read timeout, until the answer begins
//	each piece of a Write         write timeout, also for a flush
//
// The clientConn below still ends a connection whose client takes no byte of any stream. A client that has
// frozen one stream alone takes bytes of the others, so only the stream ends.
//
// A read timeout ends the body, so that the client gets 408. A write timeout resets the stream. Neither
// applies while the handler does something else, and a stream that sends nothing may be idle. So a call of gRPC
// whose server has answered once can wait for the client as long as it likes.
//
// A piece is a Write of at most pieceSize. net/http does not tell how much of it the client has taken.
type stream struct {
	http.ResponseWriter
	body        io.ReadCloser
	read, write time.Duration
	control     *http.ResponseController

	mu       sync.Mutex  // guards the rest; the transport reads the body in a goroutine of its own
	reading  *time.Timer // nil until the first Read
	writing  *time.Timer // nil until the first Write
	answered bool        // the answer has begun
	buffered bool        // a part of the answer has not been flushed; for the handler's goroutine alone
	late     bool        // the read timeout has passed
	ended    bool        // the handler has returned, and net/http uses the ResponseWriter for another request
}

// pieceSize is how many bytes the client must take within the write timeout. It is the largest frame that
// clients accept unless they ask for larger ones.
const pieceSize = 16 << 10

// past is a deadline that has passed, which makes net/http end a body or a stream at once.
var past = time.Unix(1, 0)

// serveStream has next answer a request over HTTP/2 within the timeouts.
func serveStream(next http.Handler, w http.ResponseWriter, r *http.Request, read, write time.Duration) {
	s := &stream{ResponseWriter: w, body: r.Body, read: read, write: write, control: http.NewResponseController(w)}
	r = r.WithContext(withSlowPeer(r.Context(), s))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = streamBody{s}
	}
	defer s.end()
	next.ServeHTTP(s, r)
	if s.buffered { // net/http would send it when no timer can end the stream any more
		_ = s.FlushError()
	}
}

// end stops the timers.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, t := range []*time.Timer{s.reading, s.writing} {
		if t != nil {
			t.Stop()
		}
	}
}

// Unwrap is for http.ResponseController.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader notes that the answer begins, unless it is informational.
func (s *stream) WriteHeader(status int) {
	if status >= 200 {
		s.begin()
	}
	s.ResponseWriter.WriteHeader(status)
}

// begin ends the read timeout.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = true
	if s.reading != nil {
		s.reading.Stop()
	}
}

// Write writes p in pieces.
func (s *stream) Write(p []byte) (n int, err error) {
	if !s.answered { // which this goroutine alone sets
		s.begin()
	}
	s.buffered = true
	for {
		piece := p[n:min(n+pieceSize, len(p))]
		s.pending(true)
		k, err := s.ResponseWriter.Write(piece)
		s.pending(false)
		if n += k; err != nil || n >= len(p) {
			return n, err
		}
	}
}

// Flush sends what has been written.
func (s *stream) Flush() { _ = s.FlushError() }

// FlushError is Flush for http.ResponseController.
func (s *stream) FlushError() error {
	s.begin()
	s.buffered = false
	s.pending(true)
	defer s.pending(false)
	return s.control.Flush()
}

// pending starts or stops the write timeout.
func (s *stream) pending(starts bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !starts:
		s.writing.Stop()
	case s.writing == nil:
		s.writing = time.AfterFunc(s.write, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.ended {
				_ = s.control.SetWriteDeadline(past)
			}
		})
	default:
		s.writing.Reset(s.write)
	}
}

// waitForBody starts the read timeout, unless the answer has begun.
func (s *stream) waitForBody() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return http.ErrBodyReadAfterClose
	case s.late:
		return os.ErrDeadlineExceeded
	case s.answered:
	case s.reading == nil:
		s.reading = time.AfterFunc(s.read, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.ended && !s.answered {
				s.late = true
				_ = s.control.SetReadDeadline(past)
			}
		})
	default:
		s.reading.Reset(s.read)
	}
	return nil
}

// bodyLate reports whether a Read of the body has timed out.
func (s *stream) bodyLate() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late
}

// streamBody is the body of a stream.
type streamBody struct{ stream *stream }

func (b streamBody) Read(p []byte) (int, error) {
	s := b.stream
	if err := s.waitForBody(); err != nil {
		return 0, err
	}
	n, err := s.body.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading != nil {
		s.reading.Stop()
	}
	if err != nil && s.late && !errors.Is(err, io.EOF) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// Close closes the body.
func (b streamBody) Close() error { return b.stream.body.Close() }
