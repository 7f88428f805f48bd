// SPDX-License-Identifier: MIT

package source

import "net/http"

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Replace makes a Source of HTTP or Consul call a function instead of a server.
func Replace(s Source, answer func(*http.Request) (*http.Response, error)) {
	switch s := s.(type) {
	case *page:
		s.client.Transport = transport(answer)
	case *consulKey:
		s.client.Transport = transport(answer)
	}
}

// The kinds, one by one.
func Consul() Kind { return consulKind() }
func File() Kind   { return fileKind() }
func HTTP() Kind   { return httpKind() }
func Redis() Kind  { return redisKind() }
