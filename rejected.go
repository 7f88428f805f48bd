// SPDX-License-Identifier: MIT

package diana

import (
	"errors"
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

// countRejected counts a request that is rejected because of its path, if err says so, and returns
// err.
func (l *Limiter) countRejected(err error) error {
	var strange *rule.PathError
	switch {
	case !errors.As(err, &strange):
	case strange.TooLong:
		l.rejected.length.Add(1)
	default:
		l.rejected.path.Add(1)
	}
	return err
}
