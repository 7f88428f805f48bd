// SPDX-License-Identifier: MIT

package live

import (
	"net/http"
	"sync"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

const (
	mostReaders = 64
	readWithin  = 10 * time.Second // for a client to take a snapshot
)

// streams are the clients that follow. The zero value is ready to use.
type streams struct {
	mu      sync.Mutex
	readers map[*reader]struct{}
	closed  bool
}

// reader is a client that follows.
type reader struct {
	query query
	next  chan []byte // has room for one snapshot; closed when the stream ends
}

// add adds a reader, or returns nil if there are too many, or the gateway stops.
func (s *streams) add(q query) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.readers) >= mostReaders {
		return nil
	}
	if s.readers == nil {
		s.readers = map[*reader]struct{}{}
	}
	r := &reader{q, make(chan []byte, 1)}
	s.readers[r] = struct{}{}
	return r
}

func (s *streams) remove(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// any reports whether somebody follows.
func (s *streams) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.readers) > 0
}

// send sends a snapshot to each reader. One that has not taken the snapshot before misses this one. Readers with
// the same query share the text.
func (s *streams) send(encoded func(query) []byte) {
	s.mu.Lock()
	waiting := map[query][]*reader{}
	for r := range s.readers {
		if len(r.next) == 0 {
			waiting[r.query] = append(waiting[r.query], r)
		}
	}
	s.mu.Unlock()
	for q, readers := range waiting {
		text := encoded(q)
		for _, r := range readers {
			select {
			case r.next <- text:
			default:
			}
		}
	}
}

// close ends all streams.
func (s *streams) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for r := range s.readers {
		close(r.next)
	}
	clear(s.readers)
}

// stream answers with a snapshot each second, as server-sent events.
func (l *Live) stream(w http.ResponseWriter, req *http.Request) {
	q, err := parseQuery(req.URL.Query())
	if err != nil {
		adminapi.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	r := l.streams.add(q)
	if r == nil {
		w.Header().Set("Retry-After", "1")
		adminapi.Problem(w, http.StatusServiceUnavailable, "Too many clients follow this gateway, or it stops.")
		return
	}
	defer l.streams.remove(r)
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the server's read timeout would end the context of the request
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	send := func(text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(readWithin)) // in place of the server's, which is for a whole response
		for _, part := range [][]byte{[]byte("event: live\ndata: "), text, []byte("\n\n")} {
			if _, err := w.Write(part); err != nil {
				return false
			}
		}
		return out.Flush() == nil
	}
	if !send(l.encoded(q)) {
		return
	}
	for {
		select {
		case text, ok := <-r.next:
			if !ok || !send(text) {
				return
			}
		case <-req.Context().Done():
			return
		}
	}
}
