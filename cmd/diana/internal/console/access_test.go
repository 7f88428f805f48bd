// SPDX-License-Identifier: MIT

package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

const (
	here      = "127.0.0.1:1234"
	elsewhere = "192.0.2.1:1234"
)

// site is a console whose API counts the changes that reach it.
type site struct {
	http.Handler
	access  *Access
	token   atomic.Pointer[string] // nil: it cannot be read
	changes atomic.Int64
}

// newSite returns a console with this token; "" means none.
func newSite(token string) *site {
	s := &site{}
	o := Options{Open: []string{"/healthz"}, Logger: slog.New(slog.DiscardHandler)}
	if token != "" {
		s.token.Store(&token)
		o.Token = func() (string, error) {
			if now := s.token.Load(); now != nil {
				return *now, nil
			}
			return "", errors.New("no file")
		}
	}
	s.access = NewAccess(o)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			adminapi.Problem(w, http.StatusRequestEntityTooLarge, err.Error())
			return
		}
		s.changes.Add(1)
	})
	s.Handler = Protect(New(s.access, mux))
	return s
}

// send sends a request, and returns its answer. Fields are pairs of a name and a value.
func (s *site) send(method, path, from, body string, fields ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = from
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// begin begins a session, and returns its cookie and its CSRF token.
func (s *site) begin(t *testing.T, body string, fields ...string) (cookie, csrf string) {
	t.Helper()
	w := s.send("POST", sessionPath, elsewhere, body, fields...)
	var got begun
	if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != http.StatusOK || err != nil {
		t.Fatal(w.Code, w.Body, err)
	}
	c := w.Result().Cookies()[0]
	if c.Name != cookieName || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge != 12*60*60 || len(c.Value) != 43 {
		t.Errorf("the cookie is %+v", c)
	}
	return cookieName + "=" + c.Value, got.CSRF
}

var (
	changing = []string{"/api/v1/push", "/api/v1/rollback", "/api/v1/reset", "/api/v1/exempt", "/reset", "/api/v1/other"}
	reading  = []string{"/api/v1/live", "/api/v1/config", "/status"}
)

// Without a token everybody may read and compute, and nobody may change anything.
func TestWithoutToken(t *testing.T) {
	t.Parallel()
	s := newSite("")
	for _, from := range []string{here, elsewhere} {
		for _, path := range changing {
			for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
				if w := s.send(method, path, from, "{}", "Authorization", "Bearer x"); w.Code != http.StatusUnauthorized {
					t.Errorf("%s %s: %d", method, path, w.Code)
				}
			}
		}
		if w := s.send("POST", sessionPath, from, `{"token": "x"}`); w.Code != http.StatusUnauthorized {
			t.Error("a session without a token:", w.Code)
		}
		for _, path := range computing {
			if w := s.send("POST", path, from, "{}"); w.Code != http.StatusOK {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
		for _, path := range append([]string{"/", "/console/app.js", documentPath, sessionPath}, reading...) {
			if w := s.send("GET", path, from, ""); w.Code != http.StatusOK {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
	}
}

// With a token other machines see only what shows no identity, until they have the token or a session.
func TestWithToken(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	bearer := []string{"Authorization", "Bearer s3cret-of-the-operators"}
	session := []string{"Cookie", cookie, csrfField, csrf}
	check := func(method, path, from string, status int, fields ...string) {
		t.Helper()
		body := ""
		if method == "POST" {
			body = "{}"
		}
		if w := s.send(method, path, from, body, fields...); w.Code != status {
			t.Errorf("%s %s from %s with %q: %d, want %d", method, path, from, fields, w.Code, status)
		}
	}
	for _, path := range reading {
		check("GET", path, here, 200)
		check("GET", path, elsewhere, 401)
		check("GET", path, elsewhere, 200, bearer...)
		check("GET", path, elsewhere, 200, "Cookie", cookie)
	}
	for _, path := range computing {
		check("POST", path, here, 200)
		check("POST", path, elsewhere, 401)
		check("POST", path, elsewhere, 200, bearer...)
		check("POST", path, elsewhere, 200, "Cookie", cookie)
	}
	for _, path := range []string{"/", "/console/app.js", documentPath, sessionPath, "/healthz"} {
		check("GET", path, elsewhere, 200)
	}
	for _, path := range changing {
		check("POST", path, here, 401)
		check("POST", path, elsewhere, 401)
		check("POST", path, elsewhere, 200, bearer...)
		check("POST", path, elsewhere, 200, session...)
	}
	if w := s.send("GET", "/", elsewhere, ""); strings.Contains(w.Body.String(), words["en"]["no_state"]) {
		t.Error("the page shows a state to a client that may not read")
	}
}

// A request that has the cookie of a session but not its CSRF token changes nothing.
func TestCrossSiteRequest(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	_, others := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	for _, from := range []string{here, elsewhere} {
		for _, path := range changing {
			for _, fields := range [][]string{
				{"Cookie", cookie},
				{"Cookie", cookie, csrfField, ""},
				{"Cookie", cookie, csrfField, others},
				{"Cookie", cookie, csrfField, csrf[1:]},
				{"Cookie", cookieName + "=x; " + cookie, csrfField, others},
			} {
				if w := s.send("POST", path, from, "{}", fields...); w.Code != http.StatusForbidden && w.Code != http.StatusUnauthorized {
					t.Errorf("%s with %q: %d", path, fields, w.Code)
				}
			}
		}
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "a/b, application/json"} {
		w := s.send("POST", "/api/v1/push", elsewhere, "{}", "Cookie", cookie, csrfField, csrf, "Content-Type", kind)
		if w.Code != http.StatusUnsupportedMediaType {
			t.Errorf("Content-Type %q: %d", kind, w.Code)
		}
	}
	if n := s.changes.Load(); n != 0 {
		t.Errorf("%d requests have changed something", n)
	}
}

// A session that can only read changes nothing, also when somebody steals its cookie and asks for more.
func TestStolenReadOnlySession(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators", "mode": "read"}`)
	_, others := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	if csrf != "" {
		t.Errorf("it has the CSRF token %q", csrf)
	}
	w := s.send("GET", sessionPath, elsewhere, "", "Cookie", cookie)
	var state sessionState
	if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil || state != (sessionState{Mode: "read", TokenSet: true, MayRead: true, Session: true}) {
		t.Error(err, w.Body)
	}
	for _, path := range append([]string{sessionPath}, changing...) {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			for _, token := range []string{"", csrf, others} {
				w := s.send(method, path, elsewhere, `{"mode": "write"}`, "Cookie", cookie, csrfField, token)
				if method == "POST" && path == sessionPath && w.Code == http.StatusBadRequest {
					continue // a session begins with the token only
				}
				if w.Code != http.StatusForbidden {
					t.Errorf("%s %s: %d", method, path, w.Code)
				}
			}
		}
	}
	if s.changes.Load() != 0 {
		t.Error("it has changed something")
	}
	if w := s.send("GET", reading[0], elsewhere, "", "Cookie", cookie); w.Code != http.StatusOK {
		t.Error("it cannot read:", w.Code)
	}
}

// An address that has sent too many wrong tokens learns nothing more, not even about the right one. Sessions
// and other addresses continue.
func TestGuessing(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	refused := 0
	for range 45 {
		for _, w := range []*httptest.ResponseRecorder{
			s.send("POST", sessionPath, elsewhere, `{"token": "guess"}`),
			s.send("GET", "/status", elsewhere, "", "Authorization", "Bearer guess"),
		} {
			switch w.Code {
			case http.StatusUnauthorized:
				if refused > 0 {
					t.Fatal("a guess is checked after the limit")
				}
			case http.StatusTooManyRequests:
				if refused++; w.Header().Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
			default:
				t.Fatal(w.Code)
			}
		}
	}
	if refused != 70 {
		t.Errorf("%d of 90 guesses are refused, want 70", refused)
	}
	for _, test := range []struct {
		from   string
		fields []string
		status int
	}{
		{elsewhere, []string{"Authorization", "Bearer s3cret-of-the-operators"}, 200},
		{elsewhere, []string{"Cookie", cookie, csrfField, csrf}, 200},
		{"192.0.2.2:1", []string{"Authorization", "Bearer s3cret-of-the-operators"}, 200},
	} {
		if w := s.send("POST", "/api/v1/push", test.from, "{}", test.fields...); w.Code != test.status {
			t.Errorf("%+v: %d", test, w.Code)
		}
	}
}

// Many addresses together can guess no more than 100 times a second. A session is not affected.
func TestGuessesOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite("s3cret-of-the-operators")
		cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
		compared := 0
		for n := range 300 {
			w := s.send("GET", "/status", fmt.Sprintf("192.0.2.%d:1", n%100), "", "Authorization", "Bearer guess")
			if w.Code == http.StatusUnauthorized {
				compared++
			}
		}
		if compared != 100 {
			t.Errorf("%d guesses were compared in a moment, want 100", compared)
		}
		if w := s.send("POST", "/api/v1/push", elsewhere, "{}", "Cookie", cookie, csrfField, csrf); w.Code != http.StatusOK {
			t.Error("a session gets", w.Code)
		}
		right := func() int {
			return s.send("GET", "/status", elsewhere, "", "Authorization", "Bearer s3cret-of-the-operators").Code
		}
		if code := right(); code != http.StatusTooManyRequests {
			t.Error("the right token is compared after 100 guesses:", code)
		}
		time.Sleep(2 * time.Second)
		if code := right(); code != http.StatusOK {
			t.Error("the right token gets later", code)
		}
	})
}

// All refusals of guesses are the same bytes, so that nobody learns which of them were compared. No body is read for
// one that is not compared. A session at the same address continues.
func TestRefusedGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite("s3cret-of-the-operators")
		cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
		guess := func(from string, body io.Reader) *httptest.ResponseRecorder {
			r := httptest.NewRequest("POST", sessionPath, body)
			r.RemoteAddr = from
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			return w
		}
		refusals := map[string]string{}
		for n := range 500 {
			from, cause := elsewhere, "of one address"
			if n > 20 {
				cause = "of all"
			}
			if n > 20 && n <= 100 {
				from = fmt.Sprintf("198.51.100.%d:1", n)
			}
			var body io.Reader = strings.NewReader(`{"token": "guess"}`)
			if n > 100 {
				body = iotest.ErrReader(errors.New("the body is read"))
			}
			if w := guess(from, body); w.Code == http.StatusTooManyRequests {
				refusals[cause] = fmt.Sprint(w.Header(), w.Body)
			} else if w.Code != http.StatusUnauthorized || n > 100 {
				t.Fatal(n, w.Code, w.Body)
			}
		}
		if one, all := refusals["of one address"], refusals["of all"]; one == "" || one != all || strings.Contains(one, "Ratelimit") {
			t.Errorf("the refusals are\n%s\n%s", one, all)
		}
		for _, path := range []string{"/api/v1/push", "/reset"} {
			if w := s.send("POST", path, elsewhere, "{}", "Cookie", cookie, csrfField, csrf); w.Code != http.StatusOK {
				t.Error("a session gets", w.Code, w.Body)
			}
		}
	})
}

// Right tokens are no guesses, however many there are.
func TestRightTokensAreNoGuesses(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	for range 100 {
		if w := s.send("GET", "/status", elsewhere, "", "Authorization", "Bearer s3cret-of-the-operators"); w.Code != http.StatusOK {
			t.Fatal(w.Code)
		}
	}
}

// The console limits how much an address asks of its API, and how much a session does.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	cookie, _ := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	flood := func(fields ...string) {
		for range 10_000 {
			if w := s.send("GET", documentPath, elsewhere, "", fields...); w.Code == http.StatusTooManyRequests {
				return
			}
		}
		t.Errorf("%q: no request is refused", fields)
	}
	flood()
	if w := s.send("GET", documentPath, "192.0.2.2:1", ""); w.Code != http.StatusOK {
		t.Error("another address:", w.Code)
	}
	flood("Cookie", cookie)
}

// A cookie that somebody else has planted in a browser never becomes a session, and a new session ends the
// one before.
func TestFixation(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	planted := cookieName + "=" + strings.Repeat("A", 43)
	cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`, "Cookie", planted)
	if cookie == planted {
		t.Error("the planted cookie is the session's")
	}
	next, _ := s.begin(t, `{"token": "s3cret-of-the-operators"}`, "Cookie", cookie)
	for _, ended := range []string{planted, cookie} {
		if w := s.send("POST", changing[0], elsewhere, "{}", "Cookie", ended, csrfField, csrf); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d", ended, w.Code)
		}
	}
	if w := s.send("GET", reading[0], elsewhere, "", "Cookie", next); w.Code != http.StatusOK {
		t.Error(w.Code)
	}
}

// A session ends after twelve hours, when its operator ends it, when the token changes, and when 64 others
// have begun.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	alive := func(s *site, cookie string) bool {
		return s.send("GET", reading[0], elsewhere, "", "Cookie", cookie).Code == http.StatusOK
	}
	for name, end := range map[string]func(t *testing.T, s *site, cookie, csrf string){
		"time": func(_ *testing.T, s *site, _, _ string) {
			s.access.sessions.now = func() time.Time { return time.Now().Add(12 * time.Hour) }
		},
		"operator": func(t *testing.T, s *site, cookie, csrf string) {
			if w := s.send("DELETE", sessionPath, elsewhere, "", "Cookie", cookie, csrfField, csrf); w.Code != http.StatusNoContent {
				t.Error(w.Code)
			}
		},
		"token": func(_ *testing.T, s *site, _, _ string) {
			other := "0ther"
			s.token.Store(&other)
		},
		"others": func(t *testing.T, s *site, _, _ string) {
			for range mostSessions {
				s.begin(t, `{"token": "s3cret-of-the-operators"}`)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite("s3cret-of-the-operators")
			cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
			if !alive(s, cookie) {
				t.Fatal("it has not begun")
			}
			if end(t, s, cookie, csrf); alive(s, cookie) {
				t.Error("it has not ended")
			}
		})
	}
}

// A token that cannot be read admits nobody.
func TestUnreadableToken(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	cookie, csrf := s.begin(t, `{"token": "s3cret-of-the-operators"}`)
	s.token.Store(nil)
	for _, fields := range [][]string{{"Authorization", "Bearer s3cret-of-the-operators"}, {"Authorization", "Bearer "}, {"Cookie", cookie, csrfField, csrf}} {
		if w := s.send("POST", changing[0], elsewhere, "{}", fields...); w.Code != http.StatusInternalServerError && w.Code != http.StatusUnauthorized {
			t.Errorf("%q: %d", fields, w.Code)
		}
	}
	if s.changes.Load() != 0 {
		t.Error("something has changed")
	}
}

// A body of more than 2 MiB is refused, and so is a text that is no request for a session.
func TestOversizedAndMalformed(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	large := `{"token": "` + strings.Repeat("x", mostBody) + `"}`
	for _, test := range []struct {
		path, body string
		status     int
	}{
		{"/api/v1/validate", large, 413},
		{sessionPath, large, 413},
		{sessionPath, "{}", 400},
		{sessionPath, `{"token": ""}`, 400},
		{sessionPath, `{"token": "s3cret-of-the-operators", "admin": true}`, 400},
		{sessionPath, `{"token": "s3cret-of-the-operators", "mode": "all"}`, 400},
		{sessionPath, `{"token": "s3cret-of-the-operators"} {}`, 400},
		{sessionPath, `["s3cret-of-the-operators"]`, 400},
	} {
		if w := s.send("POST", test.path, here, test.body); w.Code != test.status || !strings.HasPrefix(w.Header().Get("Content-Type"), "application/problem+json") {
			t.Errorf("%s %.60s: %d, want %d", test.path, test.body, w.Code, test.status)
		}
	}
}

// No page of another site can show the console in a frame, and no script runs that is not the console's.
func TestFieldsOfAnswers(t *testing.T) {
	t.Parallel()
	s := newSite("s3cret-of-the-operators")
	for _, path := range []string{"/", "/?q=x", "/console/app.js", "/console/none", "/healthz", "/status", "/none", "/api/v1/live", "/api/v1/none", sessionPath, documentPath} {
		for _, from := range []string{here, elsewhere} {
			h := s.send("GET", path, from, "").Header()
			for name, want := range map[string]string{
				"Content-Security-Policy": policy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
				"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
			} {
				if got := h.Get(name); got != want {
					t.Errorf("%s: %s: %q", path, name, got)
				}
			}
		}
	}
}
