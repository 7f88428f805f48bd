// SPDX-License-Identifier: MIT

package diana

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/diana-limiter/diana/internal/respond"
	"github.com/diana-limiter/diana/rule"
)

// rejected counts the requests that are rejected before any rule counts them, by reason.
type rejected struct {
	path, length atomic.Int64
	bodies       [len(respond.BodyReasons)]atomic.Int64 // by the index in respond.BodyReasons
}

// byReason returns the counts. Those about bodies are among them if bodies says that rules read some, or if
// there are any.
func (n *rejected) byReason(bodies bool) map[string]int64 {
	counts := map[string]int64{"path": n.path.Load(), "path_length": n.length.Load()}
	for i, reason := range respond.BodyReasons {
		if count := n.bodies[i].Load(); bodies || count > 0 {
			counts[reason] = count
		}
	}
	return counts
}

// count counts a request that is rejected because of its path or its body, if err says so, and returns err.
func (n *rejected) count(err error) error {
	var strange *rule.PathError
	var body *respond.BodyError
	switch {
	case errors.As(err, &body):
		n.bodies[slices.Index(respond.BodyReasons[:], body.Reason)].Add(1)
	case !errors.As(err, &strange):
	case strange.TooLong:
		n.length.Add(1)
	default:
		n.path.Add(1)
	}
	return err
}
