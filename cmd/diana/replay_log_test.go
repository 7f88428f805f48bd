// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// madeRequest is a line of an invented log.
type madeRequest struct {
	at      time.Time
	client  string
	device  string
	method  string
	target  string
	lasted  time.Duration
	status  int
	bytes   int
	referer string
	agent   string
}

// madeLog invents requests. Some clients come much more often than others, and now and then one of
// them sends a flood.
type madeLog struct {
	random  *rand.Rand
	clients *rand.Zipf
	paths   *rand.Zipf
	at      time.Time
	pause   time.Duration // between requests, on average
	flood   int           // how many more of it
	who     uint64
}

func newMadeLog(seed uint64, pause time.Duration) *madeLog {
	r := rand.New(rand.NewPCG(seed, 0))
	return &madeLog{
		random: r, clients: rand.NewZipf(r, 1.2, 8, 200_000), paths: rand.NewZipf(r, 1.3, 2, 500),
		at: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), pause: pause,
	}
}

var (
	madePaths  = []string{"/", "/sample", "/sample/a", "/login", "/reports", "/img/logo.png", "/api//v1", "/%73ample/x", "/a%2Fb"}
	madeAgents = []string{"curl/8.5.0", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0", "Go-http-client/1.1"}
)

// next invents the next request, with times in whole microseconds.
func (m *madeLog) next() (r madeRequest) {
	switch {
	case m.flood > 0:
		m.flood--
		m.at = m.at.Add(time.Duration(m.random.Int64N(int64(m.pause)/4+1)) / 1000 * 1000)
	case m.random.IntN(2000) == 0:
		m.flood = m.random.IntN(400)
		m.who = m.clients.Uint64()
		fallthrough
	default:
		m.at = m.at.Add(time.Duration(m.random.Int64N(2*int64(m.pause)+1)) / 1000 * 1000)
	}
	who := m.who
	if m.flood == 0 {
		who = m.clients.Uint64()
	}
	path := m.paths.Uint64()
	r = madeRequest{
		at: m.at, client: fmt.Sprintf("10.%d.%d.%d", who>>16, who>>8&255, who&255), method: "GET",
		lasted: time.Duration(m.random.IntN(400_000)) * time.Microsecond,
		status: 200, bytes: m.random.IntN(50_000), referer: "-", agent: madeAgents[who%3],
	}
	if who%7 == 0 {
		r.client = fmt.Sprintf("2001:db8:0:%x::%x", who%1000, who&0xffff)
	}
	if who%2 == 0 {
		r.device = fmt.Sprintf("device-%d", who)
	}
	if r.target = madePaths[path%uint64(len(madePaths))]; path >= uint64(len(madePaths)) {
		r.target += fmt.Sprintf("/%d?page=%d", path, m.random.IntN(50))
	}
	if m.random.IntN(4) == 0 {
		r.status = 401
	}
	if r.target == "/login" {
		r.method = "POST"
	}
	if m.random.IntN(3) == 0 {
		r.referer = "https://www.example.org/some/where?from=here"
	}
	return r
}

// combined returns the line that nginx would write.
func (r *madeRequest) combined() string {
	return fmt.Sprintf("%s - - [%s] \"%s %s HTTP/1.1\" %d %d \"%s\" \"%s\"\n",
		r.client, r.at.Format("02/Jan/2006:15:04:05 -0700"), r.method, r.target, r.status, r.bytes, r.referer, r.agent)
}

// json returns a line with all fields, and the time in microseconds.
func (r *madeRequest) json() string {
	return fmt.Sprintf(`{"start_time":%q,"remote_addr":%q,"method":%q,"request_uri":%q,"status":%d,"duration":%.7f,"http_x_device_id":%q,"http_user_agent":%q}`+"\n",
		r.at.Format("2006-01-02T15:04:05.000000Z07:00"), r.client, r.method, r.target, r.status, r.lasted.Seconds(), r.device, r.agent)
}

// write writes lines until they have size bytes.
func (m *madeLog) write(w io.Writer, size int64, line func(*madeRequest) string) error {
	b := bufio.NewWriter(w)
	for size > 0 {
		r := m.next()
		n, _ := b.WriteString(line(&r))
		size -= int64(n)
	}
	return b.Flush()
}
