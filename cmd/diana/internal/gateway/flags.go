// SPDX-License-Identifier: MIT

package gateway

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/diana-limiter/diana/cmd/diana/internal/admin"
	"github.com/diana-limiter/diana/cmd/diana/internal/certificate"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/logs"
	"github.com/diana-limiter/diana/cmd/diana/internal/upstream"
)

// Flags are the flags of diana serve.
type Flags struct {
	Config   string   `placeholder:"FILE" help:"Configuration file. Default: diana.yaml, or a demonstration if there is none."`
	Listen   string   `placeholder:"ADDR" help:"Address to receive requests at. Port 0 picks a free port. Default: 127.0.0.1:8080, or none with --check or --grpc and without --upstream."`
	Admin    string   `default:"127.0.0.1:9090" placeholder:"ADDR" help:"Address of the administrators' listener, with /metrics, /healthz, /readyz and /status (${default})."`
	Handover string   `placeholder:"SOCKET" help:"Socket of the file system by which a later diana serve takes over all listeners, without a lost request: start it with the same flag. The folder must belong to the user of the gateway, and no other user may write to it."`
	Timeouts Timeouts `embed:""`

	Upstreams upstream.Flags    `embed:""`
	TLS       certificate.Flags `embed:""`
	Decisions DecisionFlags     `embed:""`
	Log       logs.Flags        `embed:""`
	Access    admin.Flags       `embed:""`
	History   history.Flags     `embed:""`
}

// Valid returns an error if a flag is wrong. It sets the address of --listen if that has its default.
func (f *Flags) Valid() error {
	if f.Listen == "" && (!f.Decisions.asked() || len(f.Upstreams.URLs) > 0) {
		f.Listen = "127.0.0.1:8080"
	}
	taken := map[string]string{} // names of flags, by address
	for _, flag := range []struct{ name, address string }{{"--listen", f.Listen}, {"--admin", f.Admin}, {"--check", f.Decisions.Check}, {"--grpc", f.Decisions.GRPC}} {
		if flag.address == "" && flag.name != "--admin" {
			continue
		}
		if err := validAddress(flag.name, flag.address); err != nil {
			return err
		}
		if other := taken[flag.address]; other != "" && !strings.HasSuffix(flag.address, ":0") {
			return fmt.Errorf("%s: %s is the address of %s too, expected another one", flag.name, flag.address, other)
		}
		taken[flag.address] = flag.name
		for _, u := range f.Upstreams.URLs {
			if flag.name == "--listen" && upstream.LeadsTo(u, flag.address) {
				return fmt.Errorf("--upstream: %q is the address of --listen, expected another server", u)
			}
		}
	}
	return errors.Join(f.Timeouts.valid(), f.Upstreams.Valid(), f.TLS.Valid(), f.Decisions.valid(), f.Access.Valid(), f.History.Valid())
}

// validAddress returns an error if a program cannot listen on an address.
func validAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w, expected HOST:PORT", flag, err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%s: %q, expected HOST:PORT with a port of 0 to 65535", flag, address)
	}
	return nil
}
