// SPDX-License-Identifier: MIT

package source_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/source"
	"github.com/diana-limiter/diana/source/sourcetest"
)

// Every kind passes the tests of sourcetest.
func TestCentres(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	for name, start := range map[string]func(t *testing.T) sourcetest.Remote{
		"file":                fileCentre,
		"http":                httpCentre,
		"https":               httpsCentre,
		"redis":               func(t *testing.T) sourcetest.Remote { return redisCentre(t, false) },
		"rediss":              func(t *testing.T) sourcetest.Remote { return redisCentre(t, true) },
		"fake consul":         func(t *testing.T) sourcetest.Remote { return consulCentre(t, false) },
		"fake consul, by TLS": func(t *testing.T) sourcetest.Remote { return consulCentre(t, true) },
	} {
		running.Go(func() { // all at the same time, because they wait most of the time
			t.Run(name, func(t *testing.T) { sourcetest.Run(t, start) })
		})
	}
	running.Wait()
}

// fileCentre is a file whose folder can be moved away, like a volume that is unmounted.
func fileCentre(t *testing.T) sourcetest.Remote {
	home := t.TempDir()
	here, gone := filepath.Join(home, "here"), filepath.Join(home, "gone")
	must(t, os.Mkdir(here, 0o755))
	folder := here
	move := func(to string) {
		must(t, os.Rename(folder, to))
		folder = to
	}
	return sourcetest.Remote{
		Kind:    source.File(),
		Options: source.Options{URL: parseURL(t, "file://"+here+"/limits.yaml")},
		// Put is not atomic: it truncates the file first.
		Put:    func(text []byte) { must(t, os.WriteFile(filepath.Join(folder, "limits.yaml"), text, 0o644)) },
		Delete: func() { must(t, os.Remove(filepath.Join(folder, "limits.yaml"))) },
		Stop:   func() { move(gone) },
		Start:  func() { move(here) },
	}
}

func httpCentre(t *testing.T) sourcetest.Remote {
	return webCentre(t, false, &document{
		tags: true,
		allowed: func(r *http.Request) bool {
			username, password, _ := r.BasicAuth()
			return username == "gateway" && password == "hidden-password" && r.URL.Query().Get("key") == "hidden-in-url"
		},
	}, source.Options{Credentials: who("gateway", "hidden-password")})
}

func httpsCentre(t *testing.T) sourcetest.Remote {
	return webCentre(t, true, &document{
		allowed: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer hidden-token" },
	}, source.Options{Token: token("hidden-token")})
}

// webCentre is a web server that serves a document.
func webCentre(t *testing.T, secure bool, d *document, o source.Options) sourcetest.Remote {
	t.Helper()
	s := serve(t, secure, d)
	scheme := "http"
	if secure {
		scheme = "https"
	}
	o.URL, o.TLS = parseURL(t, scheme+"://"+s.addr+"/limits.yaml?key=hidden-in-url"), s.trust()
	return sourcetest.Remote{
		Kind:    source.HTTP(),
		Options: o,
		Put:     func(text []byte) { d.set(source.Document{Text: text, Exists: true}) },
		Delete:  func() { d.set(source.Document{}) },
		Stop:    s.stop,
		Start:   s.start,
		Blind:   !d.tags,
	}
}

func consulCentre(t *testing.T, secure bool) sourcetest.Remote {
	c := newFakeConsul("hidden-token")
	s := serve(t, secure, c)
	return sourcetest.Remote{
		Kind: source.Consul(),
		Options: source.Options{
			URL: parseURL(t, "consul://"+s.addr+"/diana/limits%20of%20all"),
			TLS: s.trust(), Token: token("hidden-token"),
		},
		Put:    func(text []byte) { c.change(source.Document{Text: text, Exists: true}) },
		Delete: func() { c.change(source.Document{}) },
		Stop:   s.stop,
		Start:  s.start,
		Wipe: func() {
			s.stop()
			c.restart(source.Document{}, 1)
			s.start()
		},
	}
}

func redisCentre(t *testing.T, secure bool) sourcetest.Remote {
	r := redistest.Options{
		Username: "gateway", Password: "hidden-password", TLS: secure,
		Args: []string{"--appendonly", "yes", "--appendfsync", "always"},
	}.Start(t)
	u := parseURL(t, r.URL()+"/3/diana/limits%20of%20all")
	u.User = nil
	return sourcetest.Remote{
		Kind:    source.Redis(),
		Options: source.Options{URL: u, TLS: r.TLSConfig(), Credentials: who("gateway", "hidden-password")},
		Put:     func(text []byte) { redisDo(t, r, "SET", "diana/limits of all", string(text)) },
		Delete:  func() { redisDo(t, r, "DEL", "diana/limits of all") },
		Stop:    r.Kill,
		Start:   r.Restart,
		Wipe: func() {
			r.Must("FLUSHALL")
			r.Restart()
		},
	}
}

// redisDo runs a command in database 3.
func redisDo(t *testing.T, r *redistest.Server, args ...string) {
	t.Helper()
	call := `redis.call('SELECT', '3') return redis.call(unpack(ARGV))`
	r.Must(append([]string{"EVAL", call, "0"}, args...)...)
}
