// SPDX-License-Identifier: MIT

package source_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/source"
)

func who(username, password string) func() (string, string, error) {
	return func() (string, string, error) { return username, password, nil }
}

func token(token string) func() (string, error) {
	return func() (string, error) { return token, nil }
}

// The server does not send a document again that has not changed.
func TestHTTPConditions(t *testing.T) {
	t.Parallel()
	const now = "now" // the time of the response
	long := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for name, c := range map[string]struct {
		header http.Header
		want   string // the condition of the next request
	}{
		"tag":                   {http.Header{"Etag": {`"a"`}}, `If-None-Match: "a"`},
		"weak tag":              {http.Header{"Etag": {`W/"a"`}}, `If-None-Match: W/"a"`},
		"time":                  {http.Header{"Last-Modified": {long}}, "If-Modified-Since: " + long},
		"tag and time":          {http.Header{"Etag": {`"a"`}, "Last-Modified": {long}}, `If-None-Match: "a"`},
		"neither":               {http.Header{}, ""},
		"just modified":         {http.Header{"Last-Modified": {now}}, ""},
		"just modified, tagged": {http.Header{"Etag": {`"a"`}, "Last-Modified": {now}}, ""},
		"time that is none":     {http.Header{"Etag": {`"a"`}, "Last-Modified": {"yesterday"}}, ""},
		"modified in future":    {http.Header{"Last-Modified": {time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			condition := ""
			s := serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				condition = ""
				for _, name := range []string{"If-None-Match", "If-Modified-Since"} {
					if value := r.Header.Get(name); value != "" {
						condition += name + ": " + value
					}
				}
				if condition != "" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				for name, values := range c.header {
					if values[0] == now {
						values = []string{time.Now().UTC().Format(http.TimeFormat)}
					}
					w.Header()[name] = values
				}
				_, _ = w.Write([]byte("text")) // read below
			}))
			src := open(t, source.HTTP(), source.Options{URL: parseURL(t, "http://"+s.addr)})
			for i := range 3 {
				d, err := src.Get(t.Context())
				must(t, err)
				if string(d.Text) != "text" || !d.Exists {
					t.Fatalf("found %+v", d)
				}
				if i > 0 && condition != c.want {
					t.Errorf("the condition was %q, expected %q", condition, c.want)
				}
			}
		})
	}
}

// The server sends a document once if it does not change.
func TestHTTPIsSentOnce(t *testing.T) {
	t.Parallel()
	d := &document{tags: true, allowed: func(*http.Request) bool { return true }}
	c := webCentre(t, false, d, source.Options{})
	c.Put([]byte("text"))
	src := open(t, c.Kind, c.Options)
	for range 5 {
		_, err := src.Get(t.Context())
		must(t, err)
	}
	if sent, kept := d.answered(http.StatusOK), d.answered(http.StatusNotModified); sent != 1 || kept != 4 {
		t.Errorf("sent %d times, not modified %d times", sent, kept)
	}
}

func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	s := serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://127.0.0.1:1/?"+r.URL.RawQuery)
		w.WriteHeader(int(status.Load()))
	}))
	src := open(t, source.HTTP(), source.Options{
		URL: parseURL(t, "http://"+s.addr+"/?key=hidden-in-url"), Token: token("hidden-token"),
	})
	for code, want := range map[int]string{
		200: "", 203: "", 204: "", 404: "none", 410: "none",
		202: "202 Accepted", 206: "206 Partial Content", 304: "304 Not Modified", 401: "401 Unauthorized",
		403: "403 Forbidden", 429: "429 Too Many Requests", 500: "500 Internal Server Error", 503: "503 Service Unavailable",
		302: "another host", 307: "another host",
	} {
		status.Store(int64(code))
		d, err := src.Get(t.Context())
		switch {
		case want == "" || want == "none":
			if err != nil || d.Exists != (want == "") || len(d.Text) > 0 {
				t.Errorf("%d: found %+v, %v", code, d, err)
			}
		case err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden"):
			t.Errorf("%d: found %+v, %v, expected an error with %q", code, d, err, want)
		}
		err = src.Put(t.Context(), []byte("text"))
		if good := code/100 == 2; good != (err == nil) || err != nil && strings.Contains(err.Error(), "hidden") {
			t.Errorf("%d: Put: %v", code, err)
		}
	}
}

// No other host gets the credentials or the query of the URL.
func TestHTTPRedirects(t *testing.T) {
	t.Parallel()
	var referer atomic.Value
	other := serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		referer.Store(r.Referer() + r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("other")) // read below
	}))
	first := serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, "http://"+other.addr+"/", http.StatusFound)
		case "/same":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/here":
			_, _ = w.Write([]byte("here" + r.Header.Get("Authorization"))) // read below
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		}
	}))
	for path, want := range map[string][2]string{ // without and with credentials
		"/other":  {"other", "error"},
		"/same":   {"here", "hereBearer hidden"},
		"/circle": {"error", "error"},
	} {
		for i, o := range []source.Options{{}, {Token: token("hidden")}} {
			o.URL = parseURL(t, "http://"+first.addr+path+"?key=hidden")
			d, err := open(t, source.HTTP(), o).Get(t.Context())
			if got := string(d.Text); (err != nil) != (want[i] == "error") || err == nil && got != want[i] {
				t.Errorf("%s: found %q, %v, expected %s", path, got, err, want[i])
			}
			if err != nil && strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: the error tells a secret: %v", path, err)
			}
		}
	}
	secure := serve(t, true, http.RedirectHandler("http://"+other.addr+"/", http.StatusFound))
	o := source.Options{URL: parseURL(t, "https://"+secure.addr), TLS: secure.trust()}
	if d, err := open(t, source.HTTP(), o).Get(t.Context()); err == nil {
		t.Errorf("from https to http: found %q", d.Text)
	}
	if got := referer.Load(); got != "" {
		t.Errorf("the other host was told %q", got)
	}
}

// The credentials are read for each request.
// An error about an answer quotes nothing of it, because it can be long or repeat a secret.
func TestHTTPIsAnother(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(request string) string{
		"echo":     func(request string) string { return request },
		"garbage":  func(string) string { return strings.Repeat("s3cret", 10_000) },
		"header":   func(string) string { return "HTTP/1.1 200 OK\r\ns3cret\r\n\r\n" },
		"length":   func(string) string { return "HTTP/1.1 200 OK\r\nContent-Length: s3cret\r\n\r\n" },
		"coding":   func(string) string { return "HTTP/1.1 200 OK\r\nTransfer-Encoding: s3cret\r\n\r\n" },
		"location": func(string) string { return "HTTP/1.1 302 Found\r\nLocation: http://%s3cret\r\n\r\n" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			defer l.Close()
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				request := make([]byte, 4096)
				n, _ := c.Read(request)
				_, _ = io.WriteString(c, answer(string(request[:n])))
				_ = c.Close()
			}()
			s := open(t, source.HTTP(), source.Options{URL: &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/x", RawQuery: "token=s3cret"}})
			if d, err := s.Get(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%v, %.200v", d.Exists, err)
			}
		})
	}
}

func TestHTTPCredentialsChange(t *testing.T) {
	t.Parallel()
	s := serve(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.Header.Get("Authorization"))) // read below
	}))
	absent := errors.New("the file is absent")
	current, err := "first", error(nil)
	src := open(t, source.HTTP(), source.Options{
		URL: parseURL(t, "http://"+s.addr), Token: func() (string, error) { return current, err },
	})
	for _, current = range []string{"first", "second"} {
		d, err := src.Get(t.Context())
		must(t, err)
		if string(d.Text) != "Bearer "+current {
			t.Errorf("found %q", d.Text)
		}
	}
	err = absent
	if _, got := src.Get(t.Context()); !errors.Is(got, absent) {
		t.Errorf("found %v", got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind source.Kind
		o    source.Options
		text string
		want string
	}{
		{source.HTTP(), source.Options{TLS: serve(t, true, nil).trust()}, "http://h/", "expected https://"},
		{source.HTTP(), source.Options{Token: token(""), Credentials: who("", "")}, "https://h/", "expected either"},
		{source.Consul(), source.Options{Token: token(""), Credentials: who("", "")}, "consul://h/k", "expected either"},
		{source.Redis(), source.Options{Token: token("")}, "redis://h/0/k", "no token"},
	} {
		c.o.URL = parseURL(t, c.text)
		if _, err := c.kind.Open(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: found %v, expected %q", c.text, err, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"file:///a": true, "file:///a/b%20c": true, "file://a/b": false, "file:///": false, "file:a": false, "file:///a?b": false,
		"http://h": true, "https://h:1/a?b=c": true, "http:///a": false, "http://h/a#b": false,
		"consul://h/a": true, "consul://[::1]:1/a/b": true, "consul://h": false, "consul://h/": false,
		"redis://h/0/a": true, "rediss://h:1/15/a/b": true, "redis://h/a": false, "redis://h/0": false, "redis://h/0/": false,
		"redis://h/00/a": false, "redis:///0/a": false, "redis://h/0/a?b": false,
		"consul:///a": false, "consul://h/a?b": false,
	} {
		u := parseURL(t, text)
		i := slices.IndexFunc(source.Kinds(), func(k source.Kind) bool { return slices.Contains(k.Schemes, u.Scheme) })
		if i < 0 || source.Kinds()[i].Check(u) != want {
			t.Errorf("%s: expected %v", text, want)
		}
	}
}

// Poll returns early enough to notice a change within two seconds, even if the centre is slow.
func TestPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 1000 {
			begin := time.Now()
			must(t, source.Poll(t.Context()))
			took := time.Since(begin)
			if took < time.Second || took > 1800*time.Millisecond {
				t.Fatalf("it is time to ask again after %v", took)
			}
			seen[took/(100*time.Millisecond)] = true
		}
		if len(seen) < 8 {
			t.Errorf("the times to ask again are not spread: %v", seen)
		}
	})
}
