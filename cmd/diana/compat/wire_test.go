// SPDX-License-Identifier: MIT

package compat

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience is how long an answer may take. A slower server has not understood where the request
// ends.
const patience = 10 * time.Second

// wire sends requests byte by byte over one connection at a time, which stays open until the server
// closes it. http.Client would change the path.
type wire struct {
	host string
	conn net.Conn
	r    *bufio.Reader
}

// ask sends the head of a request without a body, and returns the status and the body of the
// answer. The status is 0 where the server closes the connection instead.
func (w *wire) ask(head string) (status int, body string, err error) {
	for fresh := false; !fresh; {
		if fresh = w.conn == nil; fresh {
			if w.conn, err = net.Dial("tcp", w.host); err != nil {
				return 0, "", err
			}
			w.r = bufio.NewReader(w.conn)
		}
		if status, body, err = w.exchange(head); err == nil {
			return status, body, nil
		}
		w.close() // and again, as the server may have closed the connection before this request
	}
	return 0, "", nil
}

func (w *wire) exchange(head string) (status int, body string, err error) {
	if err = w.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, "", err
	}
	if _, err = io.WriteString(w.conn, head); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	var b strings.Builder
	if _, err = io.Copy(&b, answer.Body); err != nil {
		return 0, "", err
	}
	if answer.Close {
		w.close()
	}
	return answer.StatusCode, b.String(), nil
}

func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}
