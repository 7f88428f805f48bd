// SPDX-License-Identifier: MIT

package compat

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// bases are in front of every route. Upstreams serve each route twice, so that a test can tell
// whether a gateway whose upstream has the path /base left it.
var bases = []string{"", "/base"}

// goServers starts upstreams that use net/http. files is the folder that writeFiles made.
func goServers(t testing.TB, files string) []upstream {
	t.Helper()
	var all []upstream
	for name, h := range map[string]http.Handler{
		"Go ServeMux":        goMux(),
		"Go http.FileServer": http.FileServer(http.Dir(files)),
		"Go path.Clean":      http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { say(w, path.Clean(r.URL.Path)) }),
		"Go by any reading":  http.HandlerFunc(anyReading),
		"Go any method":      http.HandlerFunc(anyMethod),
	} {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		all = append(all, upstream{name, s.Listener.Addr().String()})
	}
	return all
}

// say answers with the route that was served.
func say(w http.ResponseWriter, route string) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = fmt.Fprintf(w, "served: %s\n", route)
}

func goMux() http.Handler {
	mux := http.NewServeMux()
	for _, base := range bases {
		for _, pattern := range []string{"/admin", "/admin/x", "/a/b/secret", "/api/{id}/secret", "POST /login", "/"} {
			method, route, ok := strings.Cut(pattern, " ")
			if !ok {
				method, route = "", pattern
			}
			mux.HandleFunc(strings.TrimSpace(method+" "+base+route), func(w http.ResponseWriter, _ *http.Request) {
				if route == "/" && base == "" {
					route = "/other"
				}
				say(w, base+route)
			})
		}
	}
	return mux
}

// anyReading serves the worst route that the target has in any reading of the contract: one that
// leaves /base, or a protected one. It is the model of the servers that are too heavy to start here.
func anyReading(w http.ResponseWriter, r *http.Request) {
	served := "/other"
	for reading := range readings(r.RequestURI) {
		read := reading.of(r.RequestURI)
		if strings.HasPrefix(r.RequestURI, "/base/") && !below(read, "/base") {
			say(w, read)
			return
		}
		if protected(read) || protectedBelowBase(read) {
			served = read
		}
	}
	if served == "/other" && strings.HasPrefix(r.RequestURI, "/base/") {
		served = "/base/"
	}
	say(w, served)
}

// anyMethod serves POST /login for every spelling of the method and every field that overrides it.
func anyMethod(w http.ResponseWriter, r *http.Request) {
	methods := []string{r.Method}
	for field, values := range r.Header {
		dashed := strings.ReplaceAll(field, "_", "-") // as WSGI reads it
		if slices.ContainsFunc(overrides, func(o string) bool { return strings.EqualFold(o, dashed) }) {
			methods = append(methods, strings.Split(strings.Join(values, ","), ",")...)
		}
	}
	for _, method := range methods {
		if strings.EqualFold(strings.TrimSpace(method), "POST") && strings.EqualFold(path.Clean(r.URL.Path), "/login") {
			say(w, "/login")
			return
		}
	}
	http.NotFound(w, r)
}

// writeFiles makes a folder for servers of files. Each file names its route.
func writeFiles(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "compat")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // nginx reads it as another user
		t.Fatal(err)
	}
	for _, base := range bases {
		for file, route := range map[string]string{
			"/index.html": "/", "/admin/index.html": "/admin", "/admin/x": "/admin/x", "/a/b/secret": "/a/b/secret", "/api/7/secret": "/api/7/secret",
		} {
			name := filepath.Join(dir, base, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("served: "+base+route+"\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
