// SPDX-License-Identifier: MIT

// Package redisfault sorts the errors of calls to Redis.
package redisfault

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/rueidis"
)

// ErrForeign means that a key of Diana holds a value that Diana has not written.
var ErrForeign = errors.New("a key holds a foreign value")

// Late reports whether an error means that an answer did not arrive in time.
func Late(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// Kind returns the kind of an error for metrics: "timeout", "connection", "foreign", or the first word
// of Redis' error, such as "oom" or "readonly".
func Kind(err error) string {
	var answered *rueidis.RedisError
	switch {
	case errors.Is(err, ErrForeign):
		return "foreign"
	case Late(err):
		return "timeout"
	case errors.As(err, &answered):
		word, _, _ := strings.Cut(answered.Error(), " ")
		return strings.ToLower(word)
	}
	return "connection"
}
