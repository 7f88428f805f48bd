// SPDX-License-Identifier: MIT

package diana

import (
	"sync/atomic"

	"github.com/diana-limiter/diana/rule"
)

// rejected counts the requests that are rejected because of their path, by reason.
type rejected struct{ path, length atomic.Int64 }

// Rejected returns how many requests were rejected because of their path, by reason: "path" for
// one that no honest client sends, "path_length" for one that is too long. No rule counts them.
func (l *Limiter) Rejected() map[string]int64 {
	return map[string]int64{"path": l.rejected.path.Load(), "path_length": l.rejected.length.Load()}
}

// reject counts a request that is rejected because of err, and returns err.
func (l *Limiter) reject(err *rule.PathError) error {
	if err == rule.ErrPathLong {
		l.rejected.length.Add(1)
	} else {
		l.rejected.path.Add(1)
	}
	return err
}
