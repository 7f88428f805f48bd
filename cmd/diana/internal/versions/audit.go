// SPDX-License-Identifier: MIT

package versions

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// mostLines is how many lines an Audit keeps.
const mostLines = 100

// Line says who changed what.
type Line struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`   // as the request says
	From   string    `json:"from"` // the address of the client
	Action string    `json:"action"`
	Detail string    `json:"detail"`
}

// Audit keeps the last changes that were made by this gateway, and logs each. It is safe for concurrent use. Its
// zero value is not ready, see NewAudit.
type Audit struct {
	logger *slog.Logger

	mu    sync.Mutex
	lines []Line // oldest first
}

// NewAudit returns an Audit without lines.
func NewAudit(logger *slog.Logger) *Audit { return &Audit{logger: logger} }

// Add adds a line about a request. The address is that of the connection, because any client can write a header
// with another one.
func (a *Audit) Add(r *http.Request, by, action, detail string) {
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	a.logger.Info("audit", "action", action, "detail", detail, "by", by, "from", from)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, Line{time.Now().UTC().Truncate(time.Second), by, from, action, detail})
	a.lines = a.lines[max(0, len(a.lines)-mostLines):]
}

// Lines returns the lines, newest first.
func (a *Audit) Lines() []Line {
	a.mu.Lock()
	defer a.mu.Unlock()
	lines := append([]Line{}, a.lines...)
	slices.Reverse(lines)
	return lines
}
