// SPDX-License-Identifier: MIT

package gateway

import (
	"errors"
	"time"

	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
)

// Timeouts are how long the gateway waits for clients and for upstreams. Each is at least 1 ms.
type Timeouts struct {
	Header time.Duration `name:"header-timeout" default:"10s" placeholder:"TIME" help:"Longest time for a request's header to arrive (${default})."`
	Read   time.Duration `name:"read-timeout" default:"60s" placeholder:"TIME" help:"Longest pause without progress while a request's body is read, until the answer begins (${default}). Then 408."`
	Write  time.Duration `name:"write-timeout" default:"60s" placeholder:"TIME" help:"Longest time that one write to a client may be pending (${default}). A stream that sends nothing has none pending. Then the connection is closed."`
	Idle   time.Duration `name:"idle-timeout" default:"75s" placeholder:"TIME" help:"Longest time that a connection may be open without a request (${default})."`

	upstream.Timeouts

	Drain time.Duration `name:"drain-timeout" default:"30s" placeholder:"TIME" help:"Longest time that requests in flight may take when the gateway stops (${default})."`
}

// valid returns an error that names the first flag whose duration is too short.
func (t *Timeouts) valid() error {
	return errors.Join(
		command.ValidTimeout("header", t.Header),
		command.ValidTimeout("read", t.Read),
		command.ValidTimeout("write", t.Write),
		command.ValidTimeout("idle", t.Idle),
		t.Valid(), // those of upstreams
		command.ValidTimeout("drain", t.Drain),
	)
}
