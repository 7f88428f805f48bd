// SPDX-License-Identifier: MIT

package diana

import (
	"errors"
	"sync/atomic"

	"github.com/diana-limiter/diana/rule"
)

// rejected counts the requests that are rejected because of their path, by reason.
type rejected struct{ path, length atomic.Int64 }

// byReason returns the counts.
func (n *rejected) byReason() map[string]int64 {
	return map[string]int64{"path": n.path.Load(), "path_length": n.length.Load()}
}

// count counts a request that is rejected because of its path, if err says so, and returns err.
func (n *rejected) count(err error) error {
	var strange *rule.PathError
	switch {
	case !errors.As(err, &strange):
	case strange.TooLong:
		n.length.Add(1)
	default:
		n.path.Add(1)
	}
	return err
}
