// SPDX-License-Identifier: MIT

package adaptertest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	oneSlot = "{url: /, rules: [{name: r, algo: C, rpu: 1}]}"
	waiting = "{url: /, rules: [{name: r, algo: C, rpu: 1, wait: 1m}]}"
)

// slotCases are about requests in flight, and about requests that wait.
func slotCases() []testCase {
	watched := strings.Replace(oneSlot, "{url: /,", "{url: /, bandwidth: 1000m,", 1)
	return []testCase{
		{"slot", oneSlot, Setup{}, slot},
		{"slot of a panic inside", oneSlot, Setup{Inside: true}, slotOfPanic},
		{"slot of a panic outside", oneSlot, Setup{}, slotOfPanic},
		{"slot of a client that disconnects", oneSlot, Setup{}, slotOfDisconnect},
		{"slot of a stream", oneSlot, Setup{}, slotOfStream},
		{"slot of a stream that is watched", watched, Setup{}, slotOfStream},
		{"slot of a stream whose client disconnects", oneSlot, Setup{}, slotOfEndless},
		{"slot of a socket", oneSlot, Setup{}, slotOfSocket},
		{"wait", waiting, Setup{}, wait},
		{"wait with a body", waiting, Setup{}, waitWithBody},
		{"wait with a body and an actor", waiting, Setup{Actor: true}, waitWithBody},
		{"wait of a client that disconnects", waiting, Setup{}, waitOfDisconnect},
	}
}

// slot is held while the handler runs.
func slot(s *session) {
	first := s.enter(s.Context())
	wantRefusalOfSlot(s)
	close(s.app.open)
	if a := <-first; a.StatusCode != 200 || a.body != "done" {
		s.Errorf("%d %q", a.StatusCode, a.body)
	}
	s.becomesFree()
}

// wantRefusalOfSlot expects that another request holds the slot.
func wantRefusalOfSlot(s *session) {
	s.Helper()
	if a := s.want(503, "/hello"); !strings.Contains(a.body, `"violated-policies":["r"]`) {
		s.Error(a.body)
	}
}

// becomesFree waits until the slot is released.
func (s *session) becomesFree() {
	s.Helper()
	s.eventually(func() bool { return s.get("/hello").StatusCode == 200 })
}

func slotOfPanic(s *session) {
	s.want(500, "/panic")
	s.becomesFree()
}

func slotOfDisconnect(s *session) {
	ctx, disconnect := context.WithCancel(s.Context())
	first := s.enter(ctx)
	disconnect()
	<-first
	if s.NoDisconnect {
		wantRefusalOfSlot(s)
		close(s.app.open)
	}
	s.becomesFree()
}

// slotOfStream receives the first event while the handler waits, and holds the slot until the last.
func slotOfStream(s *session) {
	r, err := s.send(s.Context(), "GET", "/stream", nil)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	event := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(r.Body, event); err != nil || string(event) != "data: 1\n\n" {
		s.Fatalf("%q %v", event, err)
	}
	<-s.app.entered
	wantRefusalOfSlot(s)
	close(s.app.open)
	if rest, err := io.ReadAll(r.Body); err != nil || string(rest) != "data: 2\n\n" {
		s.Errorf("%q %v", rest, err)
	}
	s.becomesFree()
}

func slotOfEndless(s *session) {
	ctx, disconnect := context.WithCancel(s.Context())
	defer disconnect()
	r, err := s.send(ctx, "GET", "/endless", nil)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if _, err := io.ReadFull(r.Body, make([]byte, 20)); err != nil {
		s.Fatal(err)
	}
	wantRefusalOfSlot(s)
	disconnect()
	s.becomesFree()
}

// slotOfSocket holds the slot until the connection is closed.
func slotOfSocket(s *session) {
	conn, in := s.socket()
	for _, line := range []string{"one\n", "two\n"} {
		_, _ = io.WriteString(conn, line)
		if got, err := in.ReadString('\n'); got != line {
			s.Errorf("%q %v", got, err)
		}
		wantRefusalOfSlot(s)
	}
	_ = conn.Close()
	s.becomesFree()
}

// socket opens a connection that the server takes over.
func (s *session) socket() (net.Conn, *bufio.Reader) {
	s.Helper()
	conn, in, a := s.dial("/socket", "Connection: Upgrade", "Upgrade: echo")
	if a.StatusCode != http.StatusSwitchingProtocols {
		s.Fatalf("%d %v", a.StatusCode, a.Header)
	}
	return conn, in
}

// wait has a request wait until the slot is free.
func wait(s *session) { waitFor(s, http.MethodGet, "/hello", "") }

func waitWithBody(s *session) {
	waitFor(s, http.MethodPost, "/echo", strings.Repeat("body ", 1000))
}

func waitFor(s *session, method, path, body string) {
	first := s.enter(s.Context())
	second := make(chan answer, 1)
	go func() {
		a, err := s.try(s.Context(), method, path, strings.NewReader(body), "X-User", "ann")
		if err != nil {
			s.Error(err)
			a.Response = &http.Response{}
		}
		second <- a
	}()
	s.eventually(func() bool { return s.app.Limiter.Waiting() == 1 })
	if n := s.app.Calls.Load(); n != 0 {
		s.Errorf("the handler was called %d times", n)
	}
	close(s.app.open)
	<-first
	want := body
	if path == "/hello" {
		want = "hello"
	}
	if a := <-second; a.StatusCode != 200 || a.body != want {
		s.Errorf("%d %q", a.StatusCode, a.body)
	}
}

// waitOfDisconnect removes a client that disconnects from the wait queue.
func waitOfDisconnect(s *session) {
	first := s.enter(s.Context())
	ctx, disconnect := context.WithCancel(s.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if a, err := s.try(ctx, "GET", "/hello", nil); err == nil {
			s.Errorf("it got %d", a.StatusCode)
		}
	}()
	s.eventually(func() bool { return s.app.Limiter.Waiting() == 1 })
	disconnect()
	<-gone
	if s.NoDisconnect {
		if n := s.app.Limiter.Waiting(); n != 1 {
			s.Errorf("%d requests wait, want 1", n)
		}
	} else {
		s.eventually(func() bool { return s.app.Limiter.Waiting() == 0 })
	}
	close(s.app.open)
	<-first
	s.becomesFree()
}
