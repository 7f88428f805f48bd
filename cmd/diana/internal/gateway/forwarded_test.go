// SPDX-License-Identifier: MIT

package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// sentOn returns the fields about the origin of a request that the upstream gets.
func sentOn(t *testing.T, text string, fields ...string) (host string, h http.Header) {
	t.Helper()
	r := start(t, text, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Test-Host", r.Host)
		_ = json.NewEncoder(w).Encode(r.Header)
	}))
	if err := json.Unmarshal([]byte(r.get("/", fields...).Body), &h); err != nil {
		t.Fatal(err)
	}
	want := r.host
	if len(fields) > 0 && strings.Contains(text, "trusted_proxies") {
		want = "shop.example"
	}
	if got := h.Get("X-Forwarded-Host"); got != want {
		t.Errorf("X-Forwarded-Host is %q, expected %q", got, want)
	}
	return h.Get("X-Test-Host"), h
}

var forged = []string{
	"X-Forwarded-For: 192.0.2.1",
	"X-Forwarded-For: 192.0.2.2, 192.0.2.3",
	"X-Forwarded-Host: shop.example",
	"X-Forwarded-Proto: https",
	"X-Forwarded-Port: 443",
	"X-Forwarded-Prefix: /admin",
	"X_Forwarded_For: 192.0.2.4",
	"x-forwarded_for: 192.0.2.4",
	"X-Real-Ip: 192.0.2.5",
	"Forwarded: for=192.0.2.6",
}

// The upstream gets nothing that a client says about its origin.
func TestForgedForwardingIsDropped(t *testing.T) {
	t.Parallel()
	host, h := sentOn(t, generous, forged...)
	if got := strings.Join(h["X-Forwarded-For"], "|"); got != "127.0.0.1" {
		t.Error("X-Forwarded-For:", got)
	}
	if got := h.Get("X-Forwarded-Proto"); got != "http" {
		t.Error("X-Forwarded-Proto:", got)
	}
	if host == h.Get("X-Forwarded-Host") {
		t.Error("Host is not the upstream's own:", host)
	}
	for field, values := range h {
		if text := strings.Join(values, "|"); strings.Contains(text, "192.0.2.") || text == "443" || text == "/admin" {
			t.Error(field, text)
		}
	}
}

// The upstream gets what a trusted proxy says about the origin.
func TestTrustedForwardingIsPassedOn(t *testing.T) {
	t.Parallel()
	_, h := sentOn(t, "identity: {trusted_proxies: [127.0.0.0/8]}\nlimits: [{url: /, rules: [{rpu: 100}]}]", forged...)
	if got := strings.Join(h["X-Forwarded-For"], "|"); got != "192.0.2.1, 192.0.2.2, 192.0.2.3, 127.0.0.1" {
		t.Error("X-Forwarded-For:", got)
	}
	if h.Get("X-Forwarded-Proto") != "https" || h.Get("X-Forwarded-Port") != "443" || h.Get("X-Real-Ip") != "192.0.2.5" {
		t.Error(h)
	}
	if h.Get("Forwarded") != "" {
		t.Error("Forwarded:", h.Get("Forwarded"))
	}
}

// A trusted proxy that sends no such fields is itself named as the origin.
func TestTrustedWithoutForwarding(t *testing.T) {
	t.Parallel()
	_, h := sentOn(t, "identity: {trusted_proxies: [127.0.0.0/8]}\nlimits: [{url: /, rules: [{rpu: 100}]}]")
	if h.Get("X-Forwarded-For") != "127.0.0.1" || h.Get("X-Forwarded-Proto") != "http" {
		t.Error(h)
	}
}
