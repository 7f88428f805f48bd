// SPDX-License-Identifier: MIT

package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	sessionLasts = 12 * time.Hour
	mostSessions = 64
)

// session is what a browser has in place of the token.
type session struct {
	id    string            // 256 random bits, the value of the cookie
	csrf  string            // as many others; "" if the session can only read
	token [sha256.Size]byte // the hash of the token that began it
	until time.Time
}

// sessions are the sessions in memory, by id. They end with the process.
type sessions struct {
	now  func() time.Time
	mu   sync.Mutex
	byID map[string]*session
}

// begin returns a new session. Its id is always a new one, so a cookie that somebody else has planted in the
// browser never becomes a session.
func (s *sessions) begin(token string, writes bool) *session {
	made := &session{id: secret(), token: sha256.Sum256([]byte(token)), until: s.now().Add(sessionLasts)}
	if writes {
		made.csrf = secret()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.byID) >= mostSessions {
		s.dropOldest()
	}
	s.byID[made.id] = made
	return made
}

// dropOldest ends the session that would end first. The caller holds mu.
func (s *sessions) dropOldest() {
	var oldest *session
	for _, each := range s.byID {
		if oldest == nil || each.until.Before(oldest.until) {
			oldest = each
		}
	}
	delete(s.byID, oldest.id)
}

// has reports whether a session with this id has begun and not been dropped.
func (s *sessions) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id] != nil
}

// find returns the session with this id, or nil. A session that began with another token has ended.
func (s *sessions) find(id, token string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byID[id]
	if found == nil {
		return nil
	}
	if !s.now().Before(found.until) || found.token != sha256.Sum256([]byte(token)) {
		delete(s.byID, id)
		return nil
	}
	return found
}

// end ends a session. It does nothing if there is none with this id.
func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// secret returns 256 random bits as text.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
