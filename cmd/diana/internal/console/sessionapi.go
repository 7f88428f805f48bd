// SPDX-License-Identifier: MIT

package console

import (
	"net/http"
	"slices"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

const (
	sessionPath = "/api/v1/session"
	cookieName  = "diana_session"
	csrfField   = "X-Diana-Csrf"
)

// Register adds the routes of sessions.
func (a *Access) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET "+sessionPath, a.showSession)
	mux.HandleFunc("POST "+sessionPath, a.beginSession)
	mux.HandleFunc("DELETE "+sessionPath, a.endSession)
}

// sessionState answers GET /api/v1/session.
type sessionState struct {
	Mode     string `json:"mode"` // read or write
	CSRF     string `json:"csrf"` // "" if the client can change nothing
	TokenSet bool   `json:"token_set"`
	MayRead  bool   `json:"may_read"` // false: the client needs a session first
	Session  bool   `json:"session"`  // the client has one
}

func (a *Access) showSession(w http.ResponseWriter, r *http.Request) {
	state := sessionState{Mode: "read", TokenSet: a.options.Token != nil, MayRead: a.MayRead(r)}
	s, err := a.session(r)
	if err != nil {
		a.unreadable(w, err)
		return
	}
	if s != nil {
		state.Session = true
		if state.CSRF = s.csrf; s.csrf != "" {
			state.Mode = "write"
		}
	}
	adminapi.Answer(w, state)
}

// beginRequest is the body of POST /api/v1/session.
type beginRequest struct {
	Token string `json:"token"`
	Mode  string `json:"mode"` // read, or write, which "" means
}

// begun is the answer.
type begun struct {
	CSRF  string    `json:"csrf"`
	Until time.Time `json:"until"`
}

func (a *Access) beginSession(w http.ResponseWriter, r *http.Request) {
	const expected = `{"token": "TOKEN"}, optionally with "mode": "read" or "write"`
	var request beginRequest
	read := func() (token string, ok bool) {
		if !adminapi.Read(w, r, expected, mostSession, &request) {
			return "", false
		}
		if request.Token == "" || !slices.Contains([]string{"", "read", "write"}, request.Mode) {
			adminapi.Problem(w, http.StatusBadRequest, "expected "+expected)
			return "", false
		}
		return request.Token, true
	}
	if !a.knows(w, r, read) {
		return
	}
	if old, err := r.Cookie(cookieName); err == nil {
		a.sessions.end(old.Value)
	}
	s := a.sessions.begin(request.Token, request.Mode != "read")
	http.SetCookie(w, cookie(r, s.id, int(sessionLasts/time.Second)))
	a.options.Logger.Info("session", "action", "begin", "from", r.RemoteAddr, "writes", s.csrf != "")
	adminapi.Answer(w, begun{s.csrf, s.until.UTC().Truncate(time.Second)})
}

func (a *Access) endSession(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(cookieName); err == nil {
		a.sessions.end(c.Value)
		a.options.Logger.Info("session", "action", "end", "from", r.RemoteAddr)
	}
	http.SetCookie(w, cookie(r, "", -1))
	w.WriteHeader(http.StatusNoContent)
}

// session returns the session of a request, or nil. It returns an error if the token cannot be read.
func (a *Access) session(r *http.Request) (*session, error) {
	id := a.sessionID(r)
	if id == "" {
		return nil, nil
	}
	token, err := a.options.Token()
	if err != nil {
		return nil, err
	}
	return a.sessions.find(id, token), nil
}

// sessionID returns the id of the session of a request, or "" if no such session has begun. The token may have changed
// since then. sessionID does not read it, so it costs little before a limit is checked.
func (a *Access) sessionID(r *http.Request) (id string) {
	for _, c := range r.CookiesNamed(cookieName) {
		id = c.Value
	}
	if !a.sessions.has(id) {
		return ""
	}
	return id
}

// cookie returns the cookie of a session. No script can read it, and no request that another site causes has
// it.
func cookie(r *http.Request, value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
}
