// SPDX-License-Identifier: MIT

package adaptertest

import (
	"fmt"
	"io"
	"slices"
)

// chargeCases count a request by the status that the client gets, and refund it under a rule that counts
// another one. In the cases of Framework.Unknown the request stays charged.
func chargeCases(f Framework) (list []testCase) {
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/status/201", 201}, {"/status/401", 401}, {"/nowhere", 404}, {"/silent", 200}, {"/error", 409}, {"/panic", 500},
		{"/stream", 200}, {"/big", 200}, {"/trailer", 200}, {"/socket", 101},
	} {
		for _, inside := range []bool{true, false} {
			name := "charge " + c.path
			switch {
			case !inside:
			case c.path == "/error", c.path == "/panic":
				name += " inside"
			default:
				continue // what answers errors does not matter
			}
			unknown := slices.Contains(f.Unknown, name)
			list = append(list, testCase{name, fmt.Sprintf("{url: /, rules: [{unit: hour, rpu: 1, algo: W, align: first, charge: [%d]}]}", c.status),
				Setup{Inside: inside}, func(s *session) {
					close(s.app.open)
					s.fetch(c.path, c.status)
					s.want(503, "/hello")
				}})
			list = append(list, testCase{name + " refunded", "{url: /, rules: [{unit: hour, rpu: 1, algo: W, align: first, charge: [418]}]}",
				Setup{Inside: inside}, func(s *session) {
					close(s.app.open)
					s.fetch(c.path, c.status)
					if unknown {
						s.want(503, "/hello")
						return
					}
					s.fetch(c.path, c.status)
					s.want(200, "/hello")
				}})
		}
	}
	return list
}

// fetch gets a path, which can be that of a socket, and expects a status.
func (s *session) fetch(path string, status int) {
	s.Helper()
	if path != "/socket" {
		s.want(status, path)
		return
	}
	conn, in := s.socket()
	_, _ = io.WriteString(conn, "ping\n")
	if line, err := in.ReadString('\n'); line != "ping\n" {
		s.Errorf("%q %v", line, err)
	}
	_ = conn.Close()
}
