// SPDX-License-Identifier: MIT

package config

import (
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/rule"
)

// longestAnswer is the longest body, in bytes. A file can be longer.
const longestAnswer = 64 << 10

// bodyless are the statuses of responses without a body.
var bodyless = []int{204, 205, 304}

// readDivert reads a cheaper response. It reads no file.
//
// A remote configuration can name neither a file nor a server. Otherwise an author of limits could
// publish any file of the gateways, or send all requests with their secrets to a server of his own.
func readDivert(v value) *rule.Divert {
	if !v.given() {
		return nil
	}
	m := v.mapping()
	if m.fields == nil {
		return nil
	}
	first := ""
	for _, way := range divertWays {
		switch {
		case !m.get(way).given():
		case v.r.remote && way != "body":
			m.failKey(way, "%s has no meaning here, expected body; files and servers come from the local file", way)
			first = way
		case first == "":
			first = way
		default:
			m.failKey(way, "divert has %s and %s, expected one of body, file and upstream", first, way)
		}
	}
	if first == "" {
		m.fail("divert lacks an answer, expected one of body, file and upstream")
	}
	for _, key := range []string{"status", "type"} {
		if m.get("upstream").given() && m.get(key).given() {
			m.failKey(key, "%s has no meaning beside upstream, which gives its own", key)
		}
	}
	d := &rule.Divert{
		Status:   int(m.get("status").whole()),
		Type:     readMedia(m.get("type")),
		Upstream: readUpstream(m.get("upstream")),
	}
	if d.Upstream != nil {
		d.Status = 0
	}
	if slices.Contains(bodyless, d.Status) {
		m.get("status").fail("status: expected one of answers that have a body, found %d", d.Status)
	}
	d.Body, _ = m.get("body").text()
	d.File, _ = m.get("file").text()
	return d
}

// readMedia reads a media type.
func readMedia(v value) string {
	text, ok := v.text()
	if !ok {
		return ""
	}
	if kind, _, err := mime.ParseMediaType(text); err != nil || !strings.Contains(kind, "/") {
		v.expected("a media type such as text/html; charset=utf-8")
	}
	return text
}

// readUpstream reads the URL of a server.
func readUpstream(v value) *url.URL {
	text, ok := v.text()
	if !ok {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" || u.Port() != "" && !isPort(u.Port()):
		v.fail("%s: expected http://HOST or https://HOST, and perhaps a path", v.key)
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		v.fail("%s: expected neither a user name nor what stands behind ? or #", v.key)
	}
	return u
}
