// SPDX-License-Identifier: MIT

// Package hosts reads the several hosts that the URL of a configuration centre can have.
package hosts

import (
	"net"
	"net/url"
	"strings"
)

// Split returns the hosts of a text such as "a,b:2379,[::1]" with their ports, or nil if one of them is not a
// host. A host without a port gets the given one.
func Split(text, port string) []string {
	var list []string
	for host := range strings.SplitSeq(text, ",") {
		u := url.URL{Host: host}
		own := u.Port()
		if own == "" {
			own = port
		}
		if u.Hostname() == "" || strings.ContainsAny(u.Hostname(), "/@") {
			return nil
		}
		list = append(list, net.JoinHostPort(u.Hostname(), own))
	}
	return list
}
