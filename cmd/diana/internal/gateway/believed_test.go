// SPDX-License-Identifier: MIT

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestTwinsAreDropped sends fields whose names differ from those of believed fields by a hyphen or
// an underscore. A server that reads both as the same would take them for those that count.
func TestTwinsAreDropped(t *testing.T) {
	t.Parallel()
	got := make(chan []string, 1)
	r := start(t, `
identity: {account: [header:X-Account-Id], device: [header:x_device]}
limits:
- {url: /, rules: [{rpu: 1000, actor: header:X-Team, cost: header:X-Cost, class: header:X-Plan, classes: {pro: {rpu: 2000}}}]}
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var names []string
		for name := range r.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		got <- names
	}))
	fields := ""
	for _, field := range []string{
		"X-Account-Id", "X_Account_Id", "X-Account_Id", "x_account-id", "X_Device", "X-Device", "X-Team", "X_Team", "X-Cost", "X_COST", "X-Plan", "X_Plan",
		"X_Forwarded_For", "X_Real_IP", "X_HTTP_Method_Override", "Content_Length", "content_length", "TRANSFER_ENCODING", "X-HTTP-Method", "X_Request_Id", "X-Account--Id", "X__Account_Id", "X_Other", "X-Other", "Under_Score",
	} {
		fields += field + ": 1\r\n"
	}
	_, from := r.raw("GET / HTTP/1.1\r\nHost: h\r\n" + fields + "Connection: close\r\n\r\n")
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	want := []string{"Under_score", "X-Account--Id", "X-Account-Id", "X-Cost", "X-Http-Method", "X-Other", "X-Plan", "X-Team", "X__account_id", "X_device", "X_other"}
	passed := slices.DeleteFunc(<-got, func(name string) bool {
		return slices.Contains([]string{"Accept-Encoding", "User-Agent", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id"}, name)
	})
	if !slices.Equal(passed, want) {
		t.Errorf("the upstream got %q, want %q", passed, want)
	}
}

// TestConnectionFields names the field of an account in Connection. The upstream does not get that
// field and would serve the request as the cookie's, so it counts as the cookie's.
func TestConnectionFields(t *testing.T) {
	t.Parallel()
	r := start(t, `
identity: {account: [header:X-Acc, cookie:sid]}
limits:
- {url: /, rules: [{unit: day, rpu: 3, actor: account}]}
`, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Acc") != "" {
			t.Error("the upstream got X-Acc")
		}
	}))
	for i, want := range []int{200, 200, 200, 503} {
		_, from := r.raw(fmt.Sprintf("GET / HTTP/1.1\r\nHost: h\r\nConnection: close, x-acc\r\nX-Acc: k%d\r\nCookie: sid=bob\r\n\r\n", i))
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, response.StatusCode, want)
		}
	}
	_, from := r.raw("GET / HTTP/1.1\r\nHost: h\r\nConnection: close" + strings.Repeat(",", 60_000) + "\r\n\r\n")
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("60,000 names: status %d, want 400", response.StatusCode)
	}
}

// A body in chunks of HTTP/1.0, which net/http ignores, is not the next request. A proxy in front of the gateway could
// take it for a body.
func TestHTTP10EndsItsConnection(t *testing.T) {
	t.Parallel()
	r := start(t, "- {url: /, rules: [{rpu: 1000}]}\n- {url: /refused, rules: [{rpu: 0}]}", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			t.Error("the body was read as a request")
		}
	}))
	for _, path := range []string{"/", "/refused", "/%2e%2e/"} {
		_, answer := r.raw("POST " + path + " HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\nGET /body HTTP/1.1\r\nHost: h\r\n\r\n")
		text, err := io.ReadAll(answer)
		if n := strings.Count(string(text), "HTTP/1."); n != 1 || err != nil {
			t.Errorf("%s: %d answers, %v: %q", path, n, err, text)
		}
	}
}
