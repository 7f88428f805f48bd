// SPDX-License-Identifier: MIT

package console

import (
	"log/slog"
	"net/http"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/config"
)

// limits bound what clients may ask of the console. They are rules of Diana.
type limits struct{ limiter *diana.Limiter }

// limitRules are the rules. A guess is charged while it is compared, and refunded if it was right. So many
// guesses at once are no way around the rule.
const limitRules = `
limits:
- url: /api
  rules: [{name: console, actor: ip, unit: second, rpu: 100, burst: 200}]
- url: /session
  rules: [{name: sessions, actor: "cookie:` + cookieName + `", unit: second, rpu: 100, burst: 200}]
- url: /guess
  rules: [{name: guesses, actor: all, unit: second, rpu: 100, algo: SW, charge: [401]}]
- url: /wrong
  rules: [{name: wrong-tokens, actor: ip, unit: minute, rpu: 20, algo: SW}]
`

func newLimits(logger *slog.Logger) limits {
	c, err := config.Parse("limits of the console", []byte(limitRules))
	if err != nil {
		panic(err) // the rules are constant
	}
	l, err := diana.Options{Logger: logger}.New(c)
	if err != nil {
		panic(err)
	}
	return limits{l}
}

// allow reports whether a request to the API may proceed. If not it answers the request. A session, if the request
// has one, counts by itself. So others at its address cannot use up its limit.
func (l limits) allow(w http.ResponseWriter, r *http.Request, session string) bool {
	if session == "" {
		return l.take(w, diana.Request{Path: "/api", HTTP: r})
	}
	return l.take(w, diana.Request{Path: "/session", Actors: map[string]string{"cookie:" + cookieName: session}, HTTP: r})
}

// take reports whether the rules allow a request. If not it answers the request.
func (l limits) take(w http.ResponseWriter, r diana.Request) bool {
	d, err := l.limiter.Take(r.HTTP.Context(), r)
	if err != nil {
		return false // the client has disconnected
	}
	defer d.Done()
	if !d.Allowed {
		refuse(w)
	}
	return d.Allowed
}

// guess has compare read and compare the token of a client, and counts a wrong one. It answers the request and returns
// false if there were too many guesses, or too many wrong ones of the address. It also returns false if compare does,
// because the client has sent no token.
func (l limits) guess(w http.ResponseWriter, r *http.Request, compare func() (right, ok bool)) (right, ok bool) {
	d, err := l.limiter.Take(r.Context(), diana.Request{Path: "/guess", HTTP: r})
	if err != nil {
		return false, false
	}
	defer d.Done()
	if !d.Allowed {
		refuse(w)
		return false, false
	}
	if right, ok = compare(); right || !ok {
		d.SetStatus(http.StatusOK)
		return right, ok
	}
	d.SetStatus(http.StatusUnauthorized)
	return false, l.take(w, diana.Request{Path: "/wrong", HTTP: r})
}

// refuse answers a request that a rule refuses. The answer is the same for every rule. Otherwise it would say whether
// a token was compared.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	adminapi.Problem(w, http.StatusTooManyRequests, "There were too many requests, or too many wrong tokens. Try again later.")
}
