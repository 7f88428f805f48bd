// SPDX-License-Identifier: MIT

package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
)

// TestBasePath sends paths that climb out of the base path of an upstream, and of one that an
// entry diverts to. None leaves it, however the gateway treats strange paths.
func TestBasePath(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, path.Clean(strings.ReplaceAll(r.URL.Path, `\`, "/")))
	}))
	t.Cleanup(upstream.Close)
	for _, strange := range []string{"refuse", "judge"} {
		r := startTo(t, "paths: {strange: "+strange+"}\nlimits:\n- {url: /diverted, rules: [{rpu: 0}], divert: {upstream: '"+upstream.URL+"/public'}}", upstream.URL+"/base")
		for _, target := range []string{
			"/../base/login", "/%2e%2e/base/login", "/;/../../base/login", "/../admin", "/x/../../admin", "/..%2fadmin", "/..%5cadmin", "/%252e%252e/admin",
			"/.%2e/admin", "//../admin", "/a//../../../admin", "/..;/admin", "/\\..\\admin", "/diverted/../../private", "/diverted/..%2f..%2fprivate",
			"/diverted/%2e%2e/%2e%2e/base/x", "http://x/../admin", "/login", "/a/../login", "/diverted/x", "//host/login", "/a%2Fb",
		} {
			conn, from := r.raw("GET " + target + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
			response, err := http.ReadResponse(from, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			conn.Close()
			got := string(body)
			if response.StatusCode == 200 && !strings.HasPrefix(got, "/base") && !strings.HasPrefix(got, "/public") {
				t.Errorf("strange: %s: %s reached %s", strange, target, got)
			}
			if honest := !strings.Contains(strings.ReplaceAll(target, "%2e", "."), "..") && !strings.Contains(target, "%252e") || target == "/a/../login"; honest != (response.StatusCode == 200) || !honest && response.StatusCode != 400 {
				t.Errorf("strange: %s: %s: %d %s", strange, target, response.StatusCode, got)
			}
		}
	}
}

// TestServerOptions sends OPTIONS *, which counts as a request to /.
func TestServerOptions(t *testing.T) {
	t.Parallel()
	r := start(t, "url: /\nrules: [{unit: day, rpu: 1}]", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the upstream was asked")
	}))
	for _, want := range []int{200, 503} {
		_, from := r.raw("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("status %d, want %d", response.StatusCode, want)
		}
	}
}
