// SPDX-License-Identifier: MIT

package adaptertest

import (
	"bytes"
	"context"
	"io"
	"time"
)

// bodyCases are about bodies. Diana watches the responses of some, and leaves those of others alone.
func bodyCases() (list []testCase) {
	for name, limits := range map[string]string{
		"unwatched":       "{url: /, rules: [{unit: hour, rpu: 1000}]}",
		"with charge":     "{url: /, rules: [{unit: hour, rpu: 1000, charge: [200]}]}",
		"with bandwidth":  "{url: /, bandwidth: 1000m}",
		"with both":       "{url: /, bandwidth: 1000m, rules: [{unit: hour, rpu: 1000, charge: [200]}]}",
		"without a limit": "{url: /other, rules: [{rpu: 1}]}",
	} {
		list = append(list,
			testCase{"a megabyte " + name, limits, Setup{}, megabyte},
			testCase{"trailer " + name, limits, Setup{}, trailer},
			testCase{"flush " + name, limits, Setup{}, flush},
			testCase{"socket " + name, limits, Setup{}, func(s *session) { s.fetch("/socket", 101) }})
	}
	return append(list, testCase{"bandwidth", "{url: /, bandwidth: 1k}", Setup{}, bandwidth})
}

// megabyte sends a body both ways, with and without a known length.
func megabyte(s *session) {
	for _, body := range []io.Reader{bytes.NewReader(Big), io.MultiReader(bytes.NewReader(Big))} {
		if a := s.do("POST", "/echo", body); a.StatusCode != 200 || a.body != string(Big) {
			s.Errorf("echo: %d, %d bytes", a.StatusCode, len(a.body))
		}
	}
	if a := s.want(200, "/big"); a.body != string(Big) {
		s.Errorf("%d bytes", len(a.body))
	}
}

func trailer(s *session) {
	if a := s.want(200, "/trailer"); a.body != "body" || a.Trailer.Get("X-Sum") != "4" {
		s.Errorf("%q %v", a.body, a.Trailer)
	}
}

// flush receives the first event while the handler waits.
func flush(s *session) {
	r, err := s.send(s.Context(), "GET", "/stream", nil)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if _, err := io.ReadFull(r.Body, make([]byte, len("data: 1\n\n"))); err != nil {
		s.Fatal(err)
	}
	close(s.app.open)
	if rest, err := io.ReadAll(r.Body); err != nil || string(rest) != "data: 2\n\n" {
		s.Errorf("%q %v", rest, err)
	}
}

// bandwidth cannot deliver a megabyte at a kilobyte a second while the client waits. A slow machine only
// delivers less.
func bandwidth(s *session) {
	if s.NoBandwidth {
		if a := s.want(200, "/big"); a.body != string(Big) {
			s.Errorf("%d bytes", len(a.body))
		}
		return
	}
	ctx, cancel := context.WithTimeout(s.Context(), 500*time.Millisecond)
	defer cancel()
	if a, err := s.try(ctx, "GET", "/big", nil); err == nil {
		s.Errorf("%d bytes arrived", len(a.body))
	}
}
