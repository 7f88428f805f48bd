// SPDX-License-Identifier: MIT

package zookeeper

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/diana-limiter/diana/source"
)

// Without a change, wait sends pings and returns after the time that it was given. Without an
// answer to a ping it fails.
func TestWaitInTime(t *testing.T) {
	t.Parallel()
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() {
				defer theirs.Close()
				for {
					m := make([]byte, 12)
					if _, err := io.ReadFull(theirs, m); err != nil {
						return
					}
					if m[11] != byte(callPing) {
						t.Errorf("found %x", m)
					}
					if pong := sized(appendInt(appendLong(appendInt(nil, numberOfPing), 5), 0)); answers {
						_, _ = theirs.Write(pong) // read by wait
					}
				}
			}()
			c := &conn{Conn: ours, messages: bufio.NewReader(ours), askEvery: askEvery}
			if err := c.wait(t.Context(), 10*time.Minute); answers && err != nil || !answers && !errors.Is(err, errSilent) {
				t.Errorf("answers: %v, found %v", answers, err)
			}
		})
	}
}

// recorded is a connection to a server whose answers are known.
type recorded struct {
	net.Conn
	answers *bytes.Reader
}

func (r recorded) Read(b []byte) (int, error)      { return r.answers.Read(b) }
func (r recorded) Write(b []byte) (int, error)     { return len(b), nil }
func (r recorded) SetReadDeadline(time.Time) error { return nil }

// No answer of a server ends the program, and a document has a bound.
func FuzzAnswers(f *testing.F) {
	session := slices.Concat([]byte{0, 0, 0, 37, 0, 0, 0, 0, 0, 0, 0x27, 0x10, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 16}, make([]byte, 17))
	answer := func(number int32, failure code, body []byte) []byte {
		return sized(append(appendInt(appendLong(appendInt(nil, number), 5), int32(failure)), body...))
	}
	synced := slices.Concat(session, answer(1, 0, pathRequest("/a")))
	event := answer(numberOfEvent, 0, appendText(appendInt(appendInt(nil, 3), 3), "/a"))
	f.Add(slices.Concat(synced, answer(2, 0, append(appendText(nil, "text"), make([]byte, 68)...)), event))
	f.Add(slices.Concat(synced, answer(2, codeNoNode, nil), answer(3, codeNoNode, nil)))
	f.Add(slices.Concat(synced, answer(numberOfPing, 0, nil), event))
	f.Fuzz(func(t *testing.T, answers []byte) {
		r := recorded{answers: bytes.NewReader(answers)}
		c := &conn{Conn: r, messages: bufio.NewReader(r)}
		if err := c.open(); err != nil {
			return
		}
		d, err := c.get("/a")
		if err != nil {
			return
		}
		if len(d.Text) > source.MaxSize+1 || d.Version == "" {
			t.Errorf("found %d bytes, version %q", len(d.Text), d.Version)
		}
		_ = c.wait(t.Context(), time.Hour) // fails at the end of the answers, if no event is among them
	})
}
