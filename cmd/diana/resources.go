// SPDX-License-Identifier: MIT

package main

import (
	"log/slog"
	"math"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare is the part of a container's memory that Go may use before it collects garbage more often. The
// rest is for what Go does not count, such as the buffers of the kernel.
const memoryShare = 0.9

// fitContainer bounds the memory of Go by that of the container, unless the environment has GOMEMLIMIT. Go
// itself bounds GOMAXPROCS by the processors of the container. fitContainer logs both.
//
// The floor under the heap stays, because Go collects earlier than the floor says where memory is short.
func fitContainer(logger *slog.Logger) {
	limit, err := memlimit.Set(memlimit.WithRatio(memoryShare))
	if err != nil { // such as on a system without containers
		logger.Debug("the memory of the container is unknown", "error", err)
	}
	attrs := []any{"processors", runtime.GOMAXPROCS(0)}
	if limit != math.MaxInt64 {
		attrs = append(attrs, "memory_limit", limit)
	}
	logger.Info("resources", attrs...)
}
