// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/alecthomas/kong"
)

// timeouts are how long the gateway waits for clients and for the upstream. Each is at least 1 ms.
type timeouts struct {
	Header   time.Duration `name:"header-timeout" default:"10s" placeholder:"TIME" help:"Longest time for a request's header to arrive (${default})."`
	Read     time.Duration `name:"read-timeout" default:"60s" placeholder:"TIME" help:"Longest pause without progress while a request's body is read, until the answer begins (${default}). Then 408."`
	Write    time.Duration `name:"write-timeout" default:"60s" placeholder:"TIME" help:"Longest time that one write to a client may be pending (${default}). A stream that sends nothing has none pending. Then the connection is closed."`
	Idle     time.Duration `name:"idle-timeout" default:"75s" placeholder:"TIME" help:"Longest time that a connection may be open without a request (${default})."`
	Upstream time.Duration `name:"upstream-timeout" default:"60s" placeholder:"TIME" help:"Longest time until the upstream begins to answer, counted from when it last took a part of the request (${default}). Then 504."`
	Dial     time.Duration `name:"dial-timeout" default:"5s" placeholder:"TIME" help:"Longest time until the upstream accepts a connection, and at most --upstream-timeout (${default}). Then 504."`
	TLS      time.Duration `name:"upstream-tls-timeout" default:"10s" placeholder:"TIME" help:"Longest time for the TLS handshake with the upstream, and at most --upstream-timeout (${default}). Then 504."`
	Unused   time.Duration `name:"upstream-idle-timeout" default:"60s" placeholder:"TIME" help:"Longest time that a connection to the upstream is kept without a request (${default})."`
	Drain    time.Duration `name:"drain-timeout" default:"30s" placeholder:"TIME" help:"Longest time that requests in flight may take when the gateway stops (${default})."`
}

// valid returns an error that names the first flag whose duration is too short. Servers differ
// in what 0 means: no limit, the default, or at once. So it is not accepted.
func (t *timeouts) valid() error {
	for _, flag := range []struct {
		name  string
		value time.Duration
	}{
		{"header", t.Header},
		{"read", t.Read},
		{"write", t.Write},
		{"idle", t.Idle},
		{"upstream", t.Upstream},
		{"dial", t.Dial},
		{"upstream-tls", t.TLS},
		{"upstream-idle", t.Unused},
		{"drain", t.Drain},
	} {
		if flag.value > 0 && flag.value < time.Millisecond {
			return fmt.Errorf("--%s-timeout: %v, expected at least 1ms", flag.name, flag.value)
		}
		if flag.value <= 0 {
			return fmt.Errorf("--%s-timeout: %v, expected a duration above 0, such as 60s; for no limit a long one, such as 8760h", flag.name, flag.value)
		}
	}
	return nil
}

var durations = regexp.MustCompile(`^[-+]?([0-9.]+(ns|us|µs|ms|s|m|h))+$`)

// readDuration reads a duration of the command line. kong would not say that one is too long.
func readDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		target.SetInt(int64(d))
		return nil
	case durations.MatchString(text):
		return fmt.Errorf("expected a duration of at most 2562047h but got %q", text)
	}
	return fmt.Errorf("expected duration but got %q, such as 500ms or 60s", text)
}
