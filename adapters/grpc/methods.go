// SPDX-License-Identifier: MIT

package dianagrpc

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/diana-limiter/diana"
)

// methods are the methods of a server that were called, each prepared once.
type methods struct {
	limiter *diana.Limiter

	mu sync.Mutex                                 // one change at a time
	by atomic.Pointer[map[string]*diana.Prepared] // by full method; never changed, so that calls do not wait
}

// of returns a method of a service. The service is nil for a method that nobody has registered. methods does not
// keep such a method, because clients invent the names.
func (m *methods) of(method string, service any) *diana.Prepared {
	if known := m.known()[method]; known != nil {
		return known
	}
	path, _, _ := strings.Cut(method, "?")
	if service == nil {
		return m.limiter.Prepare(http.MethodPost, path)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := maps.Clone(m.known())
	if known == nil {
		known = map[string]*diana.Prepared{}
	}
	if known[method] == nil {
		known[method] = m.limiter.Prepare(http.MethodPost, path)
	}
	m.by.Store(&known)
	return known[method]
}

func (m *methods) known() map[string]*diana.Prepared {
	if by := m.by.Load(); by != nil {
		return *by
	}
	return nil
}
