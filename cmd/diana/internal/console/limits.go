// SPDX-License-Identifier: MIT

package console

import (
	"log/slog"
	"net/http"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
	"github.com/diana-limiter/diana/config"
)

// limits bound what one address may ask of the console. They are rules of Diana.
type limits struct{ limiter *diana.Limiter }

// limitRules are the rules. A guess is charged while it is checked, and refunded if it was right. So many
// guesses at once are no way around the rule.
const limitRules = `
limits:
- url: /api
  rules: [{name: console, actor: ip, unit: second, rpu: 100, burst: 200}]
- url: /guess
  rules: [{name: wrong-tokens, actor: ip, unit: minute, rpu: 20, algo: SW, charge: [401]}]
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

// allow reports whether the address of a request may send it. If not it answers the request.
func (l limits) allow(w http.ResponseWriter, r *http.Request, path string) bool {
	d, err := l.limiter.Take(r.Context(), diana.Request{Path: path, HTTP: r})
	if err != nil {
		return false // the client has disconnected
	}
	defer d.Done()
	if !d.Allowed {
		refuse(w, &d)
	}
	return d.Allowed
}

// guess counts a token that a client has sent. It reports whether the client may learn if it was right. If not
// it answers the request.
func (l limits) guess(w http.ResponseWriter, r *http.Request, right bool) bool {
	d, err := l.limiter.Take(r.Context(), diana.Request{Path: "/guess", HTTP: r})
	if err != nil {
		return false
	}
	defer d.Done()
	if !d.Allowed {
		refuse(w, &d)
		return false
	}
	status := http.StatusUnauthorized
	if right {
		status = http.StatusOK
	}
	d.SetStatus(status)
	return true
}

func refuse(w http.ResponseWriter, d *diana.Decision) {
	d.SetFields(w.Header())
	adminapi.Problem(w, http.StatusTooManyRequests, "This address has sent too many requests. Retry-After says when the listener answers again.")
}
