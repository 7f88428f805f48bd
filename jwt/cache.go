// SPDX-License-Identifier: MIT

package jwt

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/diana-limiter/diana/rule"
)

// The bounds of a cache. It holds twice as much at most.
const (
	mostEntries = 16 << 10
	mostBytes   = 16 << 20
	badFor      = 10 * time.Second
)

// entry is what is known about a token.
type entry struct {
	proof rule.Proof
	err   *rule.CredentialError // why the token is not valid; nil: it is
	until time.Time
	keys  *keys
	key   *key
	size  int // bytes
}

// valid reports whether a good token still is: its key is still one of its issuer, and it has not expired.
func (e *entry) valid(now time.Time) bool {
	return now.Before(e.until) && e.keys.has(e.key, now)
}

// cache remembers tokens by the checksum of the whole token. It has two halves: when the newer one is full, it becomes
// the older one, which is forgotten. So no flood makes it larger, and a token in use stays. The zero value is ready.
type cache struct {
	mu           sync.RWMutex
	newer, older map[[sha256.Size]byte]*entry
	bytes        int // of the tokens in newer
}

// get returns what is known about a token, or nil.
func (c *cache) get(sum [sha256.Size]byte) *entry {
	c.mu.RLock()
	e, old := c.newer[sum], false
	if e == nil {
		e = c.older[sum]
		old = e != nil
	}
	c.mu.RUnlock()
	if old {
		c.put(sum, e)
	}
	return e
}

// put remembers a token.
func (c *cache) put(sum [sha256.Size]byte, e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newer == nil || len(c.newer) >= mostEntries || c.bytes >= mostBytes {
		c.older, c.newer, c.bytes = c.newer, map[[sha256.Size]byte]*entry{}, 0
	}
	if c.newer[sum] == nil {
		c.bytes += e.size
	}
	c.newer[sum] = e
}
