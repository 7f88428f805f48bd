// SPDX-License-Identifier: MIT

package redisstore

import (
	"context"
	_ "embed" // the Lua sources
	"fmt"
	"strconv"
	"sync/atomic"
)

//go:embed announce.lua
var announceLua string

//go:embed heartbeat.lua
var heartbeatLua string

var heartbeatScript = plainScript(announceLua + resetsLua + heartbeatLua)

// gateway is this Store among the gateways that use Redis. At each heartbeat it announces itself.
type gateway struct {
	number  int64
	link    *link
	keys    []string    // of the heartbeat
	leaving atomic.Bool // another Store has replaced this one, see Store.Leave
	closing atomic.Bool // requests no longer ask Redis
}

// announcement returns this gateway for announce.lua. A Store that another one has replaced is not
// announced.
func (g *gateway) announcement() []byte {
	switch {
	case g.leaving.Load():
		return nil
	case g.closing.Load():
		return strconv.AppendInt(nil, -g.number, 10)
	}
	return strconv.AppendInt(nil, g.number, 10)
}

// news is Redis' answer to a heartbeat.
type news struct {
	gateways int
	newest   int64 // the score of the newest reset
	resets   []resetNote
}

// announce announces that this gateway lives, or no longer does if the Store is closing. It returns the
// number of gateways, and the resets with a score above since.
func (g *gateway) announce(ctx context.Context, since int64) (n news, err error) {
	arg := fmt.Appendf(nil, "%s %d", g.announcement(), since)
	reply, err := g.link.run(ctx, heartbeatScript, g.keys, arg)
	if err != nil {
		return n, err
	}
	answer, err := reply.AsStrSlice()
	if err != nil {
		return n, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return readNews(answer)
}

// readNews reads the answer of heartbeat.lua.
func readNews(answer []string) (n news, err error) {
	if len(answer) < 2 || len(answer)%2 != 0 {
		return n, errNoNews
	}
	gateways, err1 := strconv.Atoi(answer[0])
	newest, err2 := strconv.ParseInt(answer[1], 10, 64)
	if err1 != nil || err2 != nil {
		return n, errNoNews
	}
	n = news{gateways: max(gateways, 1), newest: newest}
	for i := 2; i < len(answer); i += 2 {
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
