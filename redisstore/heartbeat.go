// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	_ "embed" // the Lua sources
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

//go:embed announce.lua
var announceLua string

//go:embed heartbeat.lua
var heartbeatLua string

var heartbeatScript = plainScript(announceLua + receiptsLua + resetsLua + minutesLua + heartbeatLua)

// gateway is this Store among the gateways that use Redis. At each heartbeat it announces itself, and
// reports what it has decided.
type gateway struct {
	number  int64
	link    *link
	store   *Store
	keys    []string     // of the heartbeat, without minutes
	reports reports      // of minutes
	leaving atomic.Bool  // another Store has replaced this one, see Store.Leave
	closing atomic.Bool  // requests no longer ask Redis
	before  atomic.Int64 // how many gateways the process saw that handed over, until Redis answers
}

// announcement returns this gateway for announce.lua. A guest is not announced, nor is a Store that another one has
// replaced.
func (g *gateway) announcement() []byte {
	switch {
	case g.leaving.Load(), g.store.options.Guest:
		return nil
	case g.closing.Load():
		return strconv.AppendInt(nil, -g.number, 10)
	}
	return strconv.AppendInt(nil, g.number, 10)
}

// news is Redis' answer to a heartbeat.
type news struct {
	gateways int
	now      int64  // by Redis' clock, in microseconds
	report   int64  // the number of the newest report, see minutes.lua
	failure  string // why Redis has not kept the report; "": it has
	newest   int64  // the score of the newest reset
	epoch    int64  // when a gateway noticed a loss, see remember.go; 0: none has
	tags     int    // of another gateway, if it has another number of them; otherwise 0
	resets   []resetNote
}

// announce announces that this gateway lives, or no longer does if the Store is closing, and reports
// minutes. It returns the number of gateways, and the resets with a score above since.
func (g *gateway) announce(ctx context.Context, since int64) (n news, err error) {
	var r report
	if !g.leaving.Load() { // otherwise the Store that has replaced this one reports them
		r = g.reports.next(g.store.minute())
	}
	arg := fmt.Appendf(nil, "%s %d %d %d %s", g.announcement(), since, g.store.options.Tags, g.number, r.text())
	reply, err := g.link.run(ctx, heartbeatScript, r.appendKeys(g.keys, g.store), arg)
	if err != nil {
		return n, err
	}
	answer, err := reply.AsStrSlice()
	if err != nil {
		return n, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if n, err = readNews(answer); err == nil {
		g.store.ahead.Store(n.now - time.Now().UnixMicro())
		g.reports.answered(r, n.report, n.failure)
	}
	return n, err
}

// readNews reads the answer of heartbeat.lua.
func readNews(answer []string) (n news, err error) {
	const head = 7 // strings before the resets
	if len(answer) < head || (len(answer)-head)%2 != 0 {
		return n, errNoNews
	}
	gateways, err1 := strconv.Atoi(answer[0])
	now, err2 := strconv.ParseInt(answer[1], 10, 64)
	report, err3 := strconv.ParseInt(answer[2], 10, 64)
	newest, err4 := strconv.ParseInt(answer[4], 10, 64)
	epoch, err5 := strconv.ParseInt(answer[5], 10, 64)
	tags, err6 := strconv.Atoi(answer[6])
	if errors.Join(err1, err2, err3, err4, err5, err6) != nil {
		return n, errNoNews
	}
	n = news{gateways: max(gateways, 1), now: now, report: report, failure: answer[3], newest: newest, epoch: epoch, tags: tags}
	for i := head; i < len(answer); i += 2 {
		at, err := strconv.ParseInt(answer[i+1], 10, 64)
		if err != nil {
			return n, errNoNews
		}
		if r, ok := parseReset(answer[i], at); ok {
			n.resets = append(n.resets, r)
		}
	}
	return n, nil
}

var errNoNews = fmt.Errorf("%w: the answer to a heartbeat cannot be read", ErrUnavailable)
