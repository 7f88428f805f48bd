// SPDX-License-Identifier: MIT

package console

import (
	"net/http"
	"net/netip"
	"sync"

	"github.com/diana-limiter/diana/cmd/diana/internal/adminapi"
)

const (
	mostBody    = adminapi.MostBody
	mostSession = 4 << 10  // of a request that begins a session
	ofTrusted   = 16 << 20 // of all bodies at one time that have the token, or are from this machine
	ofStrangers = 4 << 20  // of all others
)

// bodies bound the memory of the bodies that clients send at one time. A stranger sends one at a time, so it cannot
// hold up the others. Those that have the token have memory of their own, so no stranger can hold them up. The zero
// value is ready.
//
// A body that begins a session has its own small bound, because its sender is not known before it has arrived.
type bodies struct {
	mu                 sync.Mutex
	trusted, strangers int64                 // bytes in use
	sending            map[netip.Prefix]bool // strangers
}

// admit reserves memory for the body of a request until done is called. If there is none it answers the request.
func (b *bodies) admit(w http.ResponseWriter, r *http.Request, trusted bool) (done func(), ok bool) {
	size := r.ContentLength
	if size < 0 {
		size = mostBody
	} else if size > mostBody { // nobody reads it
		size = 0
	}
	from := network(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	used, most := &b.strangers, int64(ofStrangers)
	if trusted {
		used, most = &b.trusted, ofTrusted
	}
	if *used+size > most || !trusted && b.sending[from] {
		w.Header().Set("Retry-After", "1")
		adminapi.Problem(w, http.StatusServiceUnavailable, "The listener has no memory for another body now.")
		return nil, false
	}
	*used += size
	if !trusted {
		if b.sending == nil {
			b.sending = map[netip.Prefix]bool{}
		}
		b.sending[from] = true
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		*used -= size
		if !trusted {
			delete(b.sending, from)
		}
	}, true
}

// network returns the IPv4 address of a request, or the /64 of its IPv6 address, because one stranger usually has a
// whole /64. Rules count addresses in the same way, also those of limits.
func network(r *http.Request) netip.Prefix {
	p, _ := netip.ParseAddrPort(r.RemoteAddr)
	from := p.Addr().Unmap()
	n, _ := from.Prefix(min(from.BitLen(), 64))
	return n
}
