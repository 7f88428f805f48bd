// SPDX-License-Identifier: MIT

package respond

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// DivertedField names, in a response, the rule that has diverted the request to other values in its body.
const DivertedField = "Diana-Diverted"

// maxFile is the largest file that can be a response, in bytes.
const maxFile = 1 << 20

// Diversion is the response that a request gets in place of a problem. It is immutable and safe
// for concurrent use.
type Diversion struct {
	status   int
	header   map[string][]string
	body     []byte
	upstream http.Handler // writes the response; nil: the other fields are the response
}

// Diversions makes the diversions of a configuration's entries, without those that change a body. upstream returns the handler that
// passes requests to a server. Files are read here, so that a diversion costs no more than the
// response. The error names all entries whose file cannot be read.
func Diversions(entries []rule.Entry, upstream func(*url.URL) http.Handler) (map[*rule.Divert]*Diversion, error) {
	all := map[*rule.Divert]*Diversion{}
	var errs []error
	for _, e := range entries {
		if e.Divert == nil || e.Divert.Values != nil {
			continue
		}
		if e.Divert.Upstream != nil {
			all[e.Divert] = &Diversion{upstream: upstream(e.Divert.Upstream)}
			continue
		}
		d, err := newDiversion(e.Divert)
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %q: divert: %w", e.URL, err))
		}
		all[e.Divert] = d
	}
	return all, errors.Join(errs...)
}

// newDiversion returns a diversion to a body or a file.
func newDiversion(d *rule.Divert) (*Diversion, error) {
	body, kind := []byte(d.Body), d.Type
	if d.File != "" {
		var err error
		if body, err = readFile(d.File); err != nil {
			return nil, err
		}
		if kind == "" {
			kind = mime.TypeByExtension(filepath.Ext(d.File))
		}
		if kind == "" {
			kind = http.DetectContentType(body)
		}
	}
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	return &Diversion{status: d.Status, body: body, header: map[string][]string{
		"Content-Type": {kind}, "Content-Length": {strconv.Itoa(len(body))},
	}}, nil
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // reading a pipe could block forever
		return nil, fmt.Errorf("%s is not a file", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(body) > maxFile {
		err = fmt.Errorf("%s: expected at most %d KiB", name, maxFile>>10)
	}
	return body, err
}

// ServeHTTP writes the response.
func (d *Diversion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.upstream != nil {
		d.upstream.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	for field, value := range d.header {
		h[field] = value[:1:1]
	}
	w.WriteHeader(d.status)
	_, _ = w.Write(d.body) // a client that has disconnected needs no response
}

// ReverseProxy returns a handler that passes requests to the server at u and sets the
// X-Forwarded fields. If u has a path, the handler refuses requests that could climb out of it.
func ReverseProxy(u *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.SetXForwarded()
	}}
	if strings.Trim(u.Path, "/") == "" {
		return proxy
	}
	return KeepBelow(proxy)
}
