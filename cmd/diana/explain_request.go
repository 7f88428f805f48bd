// SPDX-License-Identifier: MIT

package main

import (
	"net/url"
	"strings"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/rule"
)

// request returns the request that the command line describes. It writes the request as a client
// would and reads it as a server does, so that the rules see what a gateway would receive.
func (c *explainCommand) request() (*rule.Request, error) {
	text, err := c.requestText()
	if err != nil {
		return nil, err
	}
	r, err := command.ReadRequest(text, c.RemoteAddr)
	if err != nil {
		return nil, command.Misuse(err)
	}
	return r, nil
}

// requestText returns the request line and the header of the request.
func (c *explainCommand) requestText() (string, error) {
	host, target, err := splitURL(c.URL)
	if err != nil {
		return "", err
	}
	if part := c.Method + target; strings.ContainsAny(part, " \t") {
		return "", command.Usagef("%q: a method and a URL have no spaces, expected %%20", part)
	}
	lines := []string{c.Method + " " + target + " HTTP/1.1"}
	for _, h := range c.Headers {
		name, _, ok := strings.Cut(h, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return "", command.Usagef("header %q: expected 'NAME: VALUE'", h)
		}
		if strings.EqualFold(name, "Host") {
			host = ""
		}
		lines = append(lines, h)
	}
	if host != "" {
		lines = append(lines, "Host: "+host)
	}
	for _, line := range lines {
		if strings.ContainsAny(line, "\r\n") {
			return "", command.Usagef("%q: line break in a request", line)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n", nil
}

// splitURL returns the host of a URL and the part that a client sends to that host. It does not
// change the path, because its spelling matters.
func splitURL(text string) (host, target string, err error) {
	text, _, _ = strings.Cut(text, "#")
	if strings.HasPrefix(text, "/") {
		return "localhost", text, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", "", command.Misuse(err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", "", command.Usagef("url %q: expected a path such as /sample, or http://HOST/PATH", text)
	}
	_, target, _ = strings.Cut(text, "://")
	if i := strings.IndexAny(target, "/?"); i >= 0 {
		target = target[i:]
	} else {
		target = ""
	}
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	return u.Host, target, nil
}
