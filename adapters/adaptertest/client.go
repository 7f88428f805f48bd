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

// answer is a response that has been read.
type answer struct {
	*http.Response
	body string
}

// do sends a request and reads the response. fields are names and values in turn.
func (s *session) do(method, path string, body io.Reader, fields ...string) answer {
	s.Helper()
	a, err := s.try(s.Context(), method, path, body, fields...)
	if err != nil {
		s.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// get sends a GET and reads the response.
func (s *session) get(path string, fields ...string) answer {
	s.Helper()
	return s.do(http.MethodGet, path, nil, fields...)
}

// want sends a GET and expects a status.
func (s *session) want(status int, path string, fields ...string) answer {
	s.Helper()
	a := s.get(path, fields...)
	if a.StatusCode != status {
		s.Errorf("GET %s %s: %d %s, want %d", path, fields, a.StatusCode, a.body, status)
	}
	return a
}

// try is do with a context and an error.
func (s *session) try(ctx context.Context, method, path string, body io.Reader, fields ...string) (answer, error) {
	r, err := s.send(ctx, method, path, body, fields...)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	return answer{r, string(text)}, err
}

// send sends a request and returns the response, whose body is unread.
func (s *session) send(ctx context.Context, method, path string, body io.Reader, fields ...string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return s.client.Do(r)
}

// enter sends a GET for /wait, and returns when its handler calls Wait. The channel gets the response.
func (s *session) enter(ctx context.Context) <-chan answer {
	s.Helper()
	answers := make(chan answer, 1)
	go func() {
		a, err := s.try(ctx, http.MethodGet, "/wait", nil)
		if err != nil {
			a = answer{Response: &http.Response{}, body: err.Error()}
		}
		answers <- a
	}()
	select {
	case <-s.app.entered:
	case a := <-answers:
		s.Fatalf("GET /wait: %d %s", a.StatusCode, a.body)
	}
	return answers
}

// dial sends a GET as it is, over a connection of its own, and reads the response. With an Upgrade the
// connection stays open.
func (s *session) dial(target string, fields ...string) (net.Conn, *bufio.Reader, answer) {
	s.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	lines := append([]string{"GET " + target + " HTTP/1.1", "Host: x"}, fields...)
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		s.Fatal(err)
	}
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		s.Fatal(lines, err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.Fatal(lines, err)
	}
	return conn, in, answer{r, string(body)}
}
