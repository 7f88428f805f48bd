// SPDX-License-Identifier: MIT

package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// httpKind is the kind of a document on a web server. The Source requests it every 1 to 1.8 s. If
// the server sends an ETag or Last-Modified, it sends the document again only when it has
// changed. A status of 404 or 410 means that there is no document. The Source sends a Token as
// a bearer token, and Credentials by basic authentication. Put uses the method PUT.
func httpKind() Kind {
	return Kind{
		Schemes: []string{"http", "https"},
		Form:    "http://HOST/PATH",
		Check:   func(u *url.URL) bool { return u.Hostname() != "" && u.Fragment == "" },
		Open: func(o Options) (Source, error) {
			if o.URL.Scheme == "http" && o.TLS != nil {
				return nil, errors.New("TLS is given: expected https:// and not http://")
			}
			if err := checkCredentials(o); err != nil {
				return nil, err
			}
			u := *o.URL
			return &page{web: newWeb(o, func(h http.Header, token string) {
				h.Set("Authorization", "Bearer "+token)
			}), url: &u}, nil
		},
	}
}

// page is a document on a web server.
type page struct {
	*web
	url *url.URL

	last      Document
	condition http.Header // under which the server omits a document that is still last; nil: none
}

func (p *page) Get(ctx context.Context) (Document, error) {
	header := http.Header{"Cache-Control": {"no-cache"}} // proxies must ask the server
	for name, values := range p.condition {
		header[name] = values
	}
	a, err := p.ask(ctx, http.MethodGet, p.url, header, nil)
	if err != nil {
		return Document{}, err
	}
	switch a.status {
	case http.StatusOK, http.StatusNonAuthoritativeInfo, http.StatusNoContent:
		p.last, p.condition = Document{Text: a.text, Exists: true}, condition(a.header)
	case http.StatusNotFound, http.StatusGone:
		p.last, p.condition = Document{}, nil
	case http.StatusNotModified:
		if p.condition != nil {
			break
		}
		fallthrough
	default:
		return Document{}, a.unexpected()
	}
	return p.last, nil
}

// condition returns the header fields that ask for a document only if it is no longer the one
// that came with header.
//
// Last-Modified has whole seconds. nginx and others make the ETag of the file's time and size,
// so two texts of the same length within a second have the same ETag. Therefore condition
// returns nil for a document that was modified less than two seconds before it was sent.
func condition(header http.Header) http.Header {
	tag, modified := header.Get("ETag"), header.Get("Last-Modified")
	if modified != "" {
		then, err := http.ParseTime(modified)
		now, err2 := http.ParseTime(header.Get("Date"))
		if err != nil || err2 != nil || now.Sub(then) < 2*time.Second {
			return nil
		}
	}
	switch {
	case tag != "":
		return http.Header{"If-None-Match": {tag}}
	case modified != "":
		return http.Header{"If-Modified-Since": {modified}}
	}
	return nil
}

func (p *page) Wait(ctx context.Context, _ Document) error { return Poll(ctx) }

// Swap reads the document and its ETag, and writes it under the condition that the ETag is still the
// same. This needs a server that checks the condition of a PUT, as RFC 9110 demands. A server that
// ignores it replaces any document. A weak ETag cannot be such a condition.
func (p *page) Swap(ctx context.Context, old Document, text []byte) (bool, error) {
	now, err := p.ask(ctx, http.MethodGet, p.url, http.Header{"Cache-Control": {"no-cache"}}, nil)
	if err != nil {
		return false, err
	}
	d, header := Document{}, http.Header{"Content-Type": {"application/yaml"}}
	switch now.status {
	case http.StatusOK, http.StatusNoContent:
		d = Document{Text: now.text, Exists: true}
		header.Set("If-Match", now.header.Get("ETag"))
	case http.StatusNotFound, http.StatusGone:
		header.Set("If-None-Match", "*")
	default:
		return false, now.unexpected()
	}
	if !same(d, old) {
		return false, nil
	}
	if d.Exists && !strings.HasPrefix(header.Get("If-Match"), `"`) {
		return false, fmt.Errorf("the server sends no strong ETag, so a change of another writer could be lost: %w", errors.ErrUnsupported)
	}
	a, err := p.ask(ctx, http.MethodPut, p.url, header, text)
	if err != nil || a.status == http.StatusPreconditionFailed {
		return false, err
	}
	err = a.done()
	return err == nil, err
}

func (p *page) Put(ctx context.Context, text []byte) error {
	a, err := p.ask(ctx, http.MethodPut, p.url, http.Header{"Content-Type": {"application/yaml"}}, text)
	if err != nil {
		return err
	}
	return a.done()
}
