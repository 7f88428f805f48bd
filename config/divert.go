// SPDX-License-Identifier: MIT

package config

import (
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/diana-limiter/diana/rule"
	"go.yaml.in/yaml/v4"
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
	values := m.get("body").given() && m.get("body").node.Kind == yaml.MappingNode
	for _, key := range []string{"status", "type"} {
		switch {
		case !m.get(key).given():
		case m.get("upstream").given():
			m.failKey(key, "%s has no meaning beside upstream, which gives its own", key)
		case values:
			m.failKey(key, "%s has no meaning beside a body of the request, whose answer is the upstream's", key)
		}
	}
	d := &rule.Divert{
		Status:   int(m.get("status").whole()),
		Type:     readMedia(m.get("type")),
		Upstream: readUpstream(m.get("upstream")),
	}
	if d.Upstream != nil || values {
		d.Status = 0
	}
	if slices.Contains(bodyless, d.Status) {
		m.get("status").fail("status: expected one of answers that have a body, found %d", d.Status)
	}
	if values {
		d.Values = readBodyValues(m.get("body"))
	} else {
		d.Body, _ = m.get("body").text()
	}
	d.File, _ = m.get("file").text()
	return d
}

// answers reports whether a divert is an answer of its own, which has a status.
func answers(d *rule.Divert) bool { return d != nil && d.Upstream == nil && d.Values == nil }

// readBodyValues reads other values for the body of a request, by JSON pointer.
func readBodyValues(v value) map[string]any {
	v.form = bodyValues
	values := map[string]any{}
	for key, val := range v.entries() {
		pointer, ok := key.text()
		if _, twice := values[pointer]; ok && twice {
			key.fail("body: expected each once, found %s again", pointer)
		}
		switch {
		case !ok:
			continue
		case !pointerForm.accepts(pointer):
			key.fail("body: expected a JSON pointer such as /model, found %q", pointer)
			continue
		}
		val.key = pointer
		values[pointer] = readBodyValue(val)
		if other := inside(pointer, values); other != "" {
			key.fail("body: expected no pointer within another, found %s and %s", other, pointer)
		}
	}
	if v.len() == 0 {
		v.fail("body: expected at least one JSON pointer, found an empty mapping")
	}
	return values
}

// readBodyValue reads a text, a whole number or a truth value.
func readBodyValue(v value) any {
	switch {
	case !v.scalar() || v.null():
		v.expected("text, a whole number, true or false")
		return nil
	case v.node.Tag == "!!bool":
		v.form = truthForm{}
		return v.truth()
	case v.node.Tag == "!!int" || v.node.Tag == "!!float":
		v.form = bodyNumber
		return v.whole()
	}
	text, _ := v.text()
	return text
}

// inside returns a pointer of values that contains another pointer or is within it, or "".
func inside(pointer string, values map[string]any) string {
	for other := range values {
		if strings.HasPrefix(pointer, other+"/") || strings.HasPrefix(other, pointer+"/") {
			return other
		}
	}
	return ""
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
