// SPDX-License-Identifier: MIT

package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

// Options say who may use an administrators' listener.
type Options struct {
	// Token returns the secret of the listener. It is called for each request that needs the secret, so a
	// new one takes effect at once. Nil means that there is none: everybody may read and nobody may change
	// anything.
	Token func() (string, error)

	// Open are paths that everybody may read, also from other machines. They show no identity.
	Open []string

	// Logger gets a line for each session and each wrong token. It must not be nil.
	Logger *slog.Logger
}

// Access decides which clients may read, and which may change something. It is safe for concurrent use.
//
// A request that changes something needs the token, or a session and the session's CSRF token. A request that
// reads needs the token or a session if there is a token, except from this machine.
type Access struct {
	options  Options
	sessions sessions
	limits   limits
	bodies   bodies
}

// NewAccess returns an Access without sessions.
func NewAccess(o Options) *Access {
	return &Access{options: o, sessions: sessions{now: time.Now, byID: map[string]*session{}}, limits: newLimits(o.Logger)}
}

// policy allows the page what it has itself, and no inline script or style. So markup that a client smuggles
// into a name runs nothing, even if a mistake in the page inserts it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Guard returns a handler that passes to next the requests that may proceed. It answers the others.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api := strings.HasPrefix(r.URL.Path, "/api/")
		if api && !a.limits.allow(w, r, a.sessionID(r)) || !a.admits(w, r) {
			return
		}
		if changes(r.Method) {
			if api && !hasJSON(w, r) {
				return
			}
			most := int64(mostBody)
			if r.URL.Path == sessionPath {
				most = mostSession
			} else {
				done, ok := a.bodies.admit(w, r, a.options.Token != nil || FromLoopback(r))
				if !ok {
					return
				}
				defer done()
			}
			r.Body = http.MaxBytesReader(w, r.Body, most)
		}
		next.ServeHTTP(w, r)
	})
}

// Protect returns a handler whose answers have the fields that keep other sites and smuggled markup from using
// them.
func Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY") // for browsers that ignore frame-ancestors
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// changes reports whether requests with a method change something, by their method alone.
func changes(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// isPage reports whether a path is that of the page or of its parts.
func isPage(path string) bool { return path == "/" || strings.HasPrefix(path, "/console/") }

// computing are the paths whose POST changes nothing.
var computing = []string{"/api/v1/validate", "/api/v1/compare", "/api/v1/whatif", "/api/v1/peek"}

// readsOnly reports whether a request changes nothing: by its method, or because it only computes.
func readsOnly(r *http.Request) bool {
	return !changes(r.Method) || r.Method == http.MethodPost && slices.Contains(computing, r.URL.Path)
}

// open reports whether everybody may send a request. The page itself shows nothing to a client that may not
// read, and a client without a session begins one at sessionPath.
func (a *Access) open(r *http.Request) bool {
	if changes(r.Method) {
		return false
	}
	return slices.Contains(a.options.Open, r.URL.Path) || isPage(r.URL.Path) || r.URL.Path == sessionPath || r.URL.Path == documentPath
}

// MayRead reports whether the sender of a request may read what shows identities.
func (a *Access) MayRead(r *http.Request) bool {
	if a.options.Token == nil || FromLoopback(r) {
		return true
	}
	s, err := a.session(r)
	return err == nil && s != nil
}

// admits reports whether a request may proceed. If not it answers the request.
func (a *Access) admits(w http.ResponseWriter, r *http.Request) bool {
	if a.open(r) {
		return true
	}
	reads := readsOnly(r)
	if a.options.Token == nil {
		if reads || !strings.HasPrefix(r.URL.Path, "/api/") && r.URL.Path != "/reset" {
			return true
		}
		unauthorized(w, "This listener changes nothing, because diana serve was started without --admin-token.")
		return false
	}
	if reads && FromLoopback(r) || r.Method == http.MethodPost && r.URL.Path == sessionPath {
		return true // the session's handler checks the token itself
	}
	if given := bearer(r); given != "" {
		return a.knows(w, r, func() (string, bool) { return given, true })
	}
	s, err := a.session(r)
	switch {
	case err != nil:
		a.unreadable(w, err)
	case s == nil:
		unauthorized(w, "Send the token of --admin-token in the field Authorization: Bearer TOKEN, or begin a session in the console.")
	case reads:
		return true
	case s.csrf == "":
		adminapi.Problem(w, http.StatusForbidden, "This session can only read. Begin another one with the token to change something.")
	case !same(r.Header.Get(csrfField), s.csrf):
		adminapi.Problem(w, http.StatusForbidden, "The field "+csrfField+" does not have the CSRF token of the session. GET "+sessionPath+" answers with it.")
	default:
		return true
	}
	return false
}

// knows reports whether the text that read returns is the token. If not it answers the request, or read has done so
// and returned false. The right token is accepted also from an address that has sent wrong ones. limits bound the
// guesses, so that nobody finds a token of 20 characters.
func (a *Access) knows(w http.ResponseWriter, r *http.Request, read func() (text string, ok bool)) bool {
	token, err := a.options.Token()
	if err != nil {
		a.unreadable(w, err)
		return false
	}
	right, ok := a.limits.guess(w, r, func() (right, ok bool) {
		text, ok := read()
		return ok && same(text, token), ok
	})
	if ok && !right {
		a.options.Logger.Warn("wrong admin token", "from", r.RemoteAddr)
		unauthorized(w, "The token is not that of --admin-token.")
	}
	return ok && right
}

// unreadable answers a request whose token cannot be checked.
func (a *Access) unreadable(w http.ResponseWriter, err error) {
	a.options.Logger.Error("admin token", "error", err)
	adminapi.Problem(w, http.StatusInternalServerError, "The gateway cannot read its token. Its log says why.")
}

func unauthorized(w http.ResponseWriter, detail string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="diana"`)
	adminapi.Problem(w, http.StatusUnauthorized, detail)
}

// hasJSON reports whether the body of a request is JSON by its Content-Type, which a form of another site
// cannot send. If not it answers the request.
func hasJSON(w http.ResponseWriter, r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength == 0 || err == nil && kind == "application/json" {
		return true
	}
	adminapi.Problem(w, http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type: %q, expected application/json", r.Header.Get("Content-Type")))
	return false
}

// same compares in a time that depends on neither text.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// bearer returns the token that a request has, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimLeft(token, " ")
}

// FromLoopback reports whether a request comes from this machine. A proxy on this machine makes
// every request one.
func FromLoopback(r *http.Request) bool {
	p, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && p.Addr().Unmap().IsLoopback()
}
