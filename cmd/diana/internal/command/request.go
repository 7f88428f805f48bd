// SPDX-License-Identifier: MIT

package command

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/diana-limiter/diana/internal/paths"
	"github.com/diana-limiter/diana/rule"
)

// ReadRequest reads the request line and the header that a client at this address sends.
func ReadRequest(text string, from netip.Addr) (*rule.Request, error) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("not a valid request: %w", err)
	}
	r.RemoteAddr = netip.AddrPortFrom(from, 0).String()
	return &rule.Request{Method: r.Method, Path: paths.Sent(r.URL), HTTP: r}, nil
}
