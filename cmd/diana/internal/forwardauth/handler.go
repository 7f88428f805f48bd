// SPDX-License-Identifier: MIT

// Package forwardauth decides for other gateways that ask over HTTP whether a request may pass: nginx by
// auth_request, Traefik by forwardAuth, Caddy by forward_auth, HAProxy, APISIX, and Envoy by ext_authz.
package forwardauth

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/rule"
)

// root is the path that gateways ask. Some of them append the path of the original request.
const root = "/check"

// Handler answers the questions of gateways. It answers 200 without a body if the original request is
// allowed. Otherwise it answers with the problem and a status below 500, because Envoy takes any other
// status for a failure of Diana, and may then allow the request.
type Handler struct {
	limiter *diana.Limiter
	peers   peers
	told    Told
}

// Told are functions that learn of the questions that get no decision. Several goroutines call them, and
// they must return soon.
type Told struct {
	Peer    func(address string) // an address may not ask; may be nil
	Invalid func(reason string)  // a question is not valid; may be nil
}

func (t *Told) peer(address string) {
	if t.Peer != nil {
		t.Peer(address)
	}
}

func (t *Told) invalid(reason string) {
	if t.Invalid != nil {
		t.Invalid(reason)
	}
}

// New returns a Handler that asks a limiter.
func New(limiter *diana.Limiter, told Told) *Handler {
	return &Handler{limiter: limiter, peers: peers{config: limiter.Config}, told: told}
}

// ServeHTTP answers one question.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	identity := h.peers.identity()
	if !trusts(identity, r.RemoteAddr) {
		h.forbid(w, r)
		return
	}
	behind, ok := behindRoot(r)
	if !ok {
		h.told.invalid(fmt.Sprintf("the path is %.100q, expected %s or one below it", r.URL.Path, root))
		respond.Problem(w, http.StatusNotFound, "Ask "+root+" or a path below it.")
		return
	}
	deny, err := denyStatus(r.URL, behind)
	if err != nil {
		h.told.invalid(err.Error())
		respond.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	of, strange := original(r, behind, identity)
	if strange != nil {
		h.told.invalid(strange.Error())
		h.reject(w, strange, deny)
		return
	}
	h.answer(w, r, of, deny)
}

// behindRoot returns the path of the original request that a gateway has appended to root, or "". ok is
// false for another path than root and those below it.
func behindRoot(r *http.Request) (behind string, ok bool) {
	sent := cmp.Or(r.URL.RawPath, r.URL.EscapedPath()) // EscapedPath alone would decode a path that is not valid
	behind, ok = strings.CutPrefix(sent, root)
	switch {
	case !ok:
		return "", false
	case behind == "*" && r.Method == http.MethodOptions: // it asks about the server, and not about a path
		return "/", true
	}
	return behind, behind == "" || behind[0] == '/'
}

// Guard returns a handler that answers 403 to peers that may not ask, and passes others to next.
func (h *Handler) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !trusts(h.peers.identity(), r.RemoteAddr) {
			h.forbid(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// forbid answers a peer that may not ask.
func (h *Handler) forbid(w http.ResponseWriter, r *http.Request) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr
	}
	h.told.peer(address)
	respond.Problem(w, http.StatusForbidden, "This address may not ask: it is not among trusted_proxies.")
}

// answer decides about an original request. deny is the status of a refusal; 0 means the configured one.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, of diana.Request, deny int) {
	d, err := h.limiter.Take(r.Context(), of)
	defer d.Done()
	if d.Allowed && err == nil {
		d.SetFields(w.Header())
		w.WriteHeader(http.StatusOK)
		return
	}
	var strange *rule.PathError
	var credential *rule.CredentialError
	switch {
	case errors.As(err, &strange):
		h.reject(w, strange, deny)
		return
	case errors.As(err, &credential): // gateways pass on 401, and some take other statuses for a failure
		denied := *credential
		if denied.Status != http.StatusUnauthorized {
			denied.Status = h.status(deny)
		}
		respond.Reject(w, r, &denied, "")
		return
	}
	d.Refuse(w, h.status(deny))
}

// reject answers a question about a path that cannot be evaluated.
func (h *Handler) reject(w http.ResponseWriter, strange *rule.PathError, deny int) {
	respond.RejectPath(w, strange, h.status(deny))
}

// status returns the status of a refusal. Zero means the configured one, if that is below 500.
func (h *Handler) status(deny int) int {
	if deny == 0 {
		deny = h.limiter.Config().Response.Status
	}
	return respond.BelowServerError(deny)
}

// denyStatus returns the parameter deny of a question, or 0. Where a gateway appends the original
// request's path, the parameter can be the client's, and is ignored if it is no status.
func denyStatus(u *url.URL, behind string) (int, error) {
	if u.RawQuery == "" {
		return 0, nil
	}
	text := u.Query().Get("deny")
	if text == "" {
		return 0, nil
	}
	status, err := strconv.Atoi(text)
	switch {
	case err == nil && 400 <= status && status <= 499:
		return status, nil
	case behind != "":
		return 0, nil
	}
	return 0, fmt.Errorf("deny: %.20q, expected a status of 400 to 499", text)
}
