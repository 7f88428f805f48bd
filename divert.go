// SPDX-License-Identifier: MIT

package diana

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

// longestFile is the largest file that can be an answer.
const longestFile = 1 << 20

// diversion is what a request gets instead of a refusal. It never changes.
type diversion struct {
	status   int
	header   map[string][]string
	body     []byte
	upstream http.Handler // nil: the rest is the answer
}

// diversions makes those of a configuration: files are read now, so that a request costs
// no more than the answer, and one that cannot be read refuses the configuration.
func (l *Limiter) diversions(entries []rule.Entry) (map[*rule.Divert]*diversion, error) {
	all := map[*rule.Divert]*diversion{}
	var errs []error
	for _, e := range entries {
		if e.Divert == nil {
			continue
		}
		d, err := l.diversion(e.Divert)
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %q: divert: %w", e.URL, err))
		}
		all[e.Divert] = d
	}
	return all, errors.Join(errs...)
}

func (l *Limiter) diversion(d *rule.Divert) (*diversion, error) {
	if d.Upstream != nil {
		return &diversion{upstream: l.options.Upstream(d.Upstream)}, nil
	}
	body, kind := []byte(d.Body), d.Type
	if d.File != "" {
		info, err := os.Stat(d.File)
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular(): // reading another might take for ever
			return nil, fmt.Errorf("%s is not a file", d.File)
		}
		if body, err = readFile(d.File, longestFile); err != nil {
			return nil, err
		}
		if len(body) > longestFile {
			return nil, fmt.Errorf("%s: expected at most %d KiB", d.File, longestFile>>10)
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
	return &diversion{status: d.Status, body: body, header: map[string][]string{
		"Content-Type": {kind}, "Content-Length": {strconv.Itoa(len(body))},
	}}, nil
}

// diversion returns that of the first rule that refuses whose entry has one, or nil.
func (d *Decision) diversion() *diversion {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Refused() && v.Rule.Divert != nil {
			return d.j.active.diversions[v.Rule.Divert]
		}
	}
	return nil
}

func (d *diversion) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if d.upstream != nil {
		d.upstream.ServeHTTP(w, r)
		return
	}
	h := w.Header()
	for field, value := range d.header {
		h[field] = value[:1:1]
	}
	w.WriteHeader(d.status)
	_, _ = w.Write(d.body) // a client that is gone needs no answer
}

// passTo is what Options.Upstream is by itself. Where u has a path, it refuses what could climb out
// of that.
func passTo(u *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.SetXForwarded()
	}}
	if strings.Trim(u.Path, "/") == "" {
		return proxy
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path := r.URL.EscapedPath(); path != "" {
			if strange := rule.CheckPath(path); strange != nil { // paths.strange: judge lets it come here
				answerProblem(w, strange.Status(), refusedPath(strange))
				return
			}
		}
		proxy.ServeHTTP(w, r)
	})
}

// readFile returns the contents of a file, or of a file that is larger than most bytes, one
// byte more than that.
func readFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}
