// SPDX-License-Identifier: MIT

package admin

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"strings"

	"github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/cmd/diana/internal/command"
	"github.com/diana-limiter/diana/cmd/diana/internal/history"
	"github.com/diana-limiter/diana/cmd/diana/internal/live"
)

// NewLive returns what an operator sees of the gateway now. ring may be nil.
func NewLive(limiter *diana.Limiter, ring *history.Ring) *live.Live {
	info, _ := debug.ReadBuildInfo()
	version, _, _ := command.Build(info)
	o := live.Options{Limiter: limiter, Version: version, Memory: memoryInUse}
	if ring != nil {
		o.Recent = func() any { return ring.Status() }
	}
	return live.New(o)
}

// memoryInUse returns the memory of this process that the system cannot use for others, in bytes. The system's
// own figure is not read, because it is another one on each system.
func memoryInUse() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64()) //nolint:gosec // far below the largest int64
}

// NoteResets returns reset, and notes each in the time line.
func NoteResets(view *live.Live, reset Resetter) Resetter {
	return func(ctx context.Context, rule string, actor ...string) error {
		err := reset(ctx, rule, actor...)
		if err == nil {
			view.Reset(rule, strings.Join(actor, " "))
		}
		return err
	}
}
