// SPDX-License-Identifier: MIT

package convert

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// status reads the status of refusals.
func (c *nginx) status(d *directive, otherwise int) int {
	n, err := strconv.Atoi(d.arg(0))
	if err != nil || n < 400 || n > 599 {
		c.doc.remark(d.fault("%s: expected 400 to 599, found %s", d.name, shown(d.arg(0))))
		return otherwise
	}
	if n == 444 {
		c.doc.remark(d.fault("444: nginx closes the connection without an answer; Diana answers with this status"))
	}
	return n
}

// addZone reads a zone.
func (c *nginx) addZone(d *directive) {
	z := &zone{d: d, conn: d.name == "limit_conn_zone"}
	name := ""
	keys := 0
	for _, a := range d.args {
		key, value, _ := strings.Cut(a, "=")
		switch {
		case key == "zone":
			name, _, _ = strings.Cut(value, ":")
		case key == "rate" && !z.conn:
			digits, unit := strings.TrimSuffix(value, "r/s"), time.Second
			if digits == value {
				digits, unit = strings.TrimSuffix(value, "r/m"), time.Minute
			}
			n, err := strconv.ParseInt(digits, 10, 32)
			if err == nil && digits != value && n > 0 && n <= bounds.MaxN {
				z.rate, z.unit = n, unit
			}
		case a == "sync":
			c.doc.remark(d.fault("sync: several machines count together under scope: global, see redis in docs/configuration.md"))
		default:
			keys++
		}
	}
	switch {
	case !z.conn && z.rate == 0:
		z.missing = "expected a rate such as 10r/s or 30r/m"
	case keys != 1:
		z.missing = fmt.Sprintf("expected one key, found %d", keys)
	}
	if c.zones[name] == nil {
		c.zones[name] = z
	}
}

// number reads a whole number of nginx.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && n <= mostBurst && text[0] != '+'
}

func readReq(d *directive) *use {
	u := &use{d: d}
	all := false
	for _, a := range d.args {
		key, value, _ := strings.Cut(a, "=")
		ok := true
		switch {
		case key == "zone":
			u.zone = value
		case key == "burst":
			u.burst, ok = number(value)
		case key == "delay":
			u.delay, ok = number(value)
		case a == "nodelay":
			all = true
		default:
			ok = false
		}
		if !ok {
			u.wrong = a
		}
	}
	if u.delay = min(u.delay, u.burst); all {
		u.delay = u.burst
	}
	return u
}

func readConn(d *directive) *use {
	u := &use{d: d, conn: true, zone: d.arg(0)}
	var ok bool
	if u.n, ok = number(d.arg(1)); !ok || u.n == 0 || len(d.args) != 2 {
		u.wrong = strings.Join(d.args[min(1, len(d.args)):], " ")
	}
	return u
}

// readRate reads a limit_rate, in which k is 1,024.
func (c *nginx) readRate(d *directive, in *level) {
	text, factor := strings.ToLower(d.arg(0)), int64(1)
	for i, unit := range "kmg" {
		if rest, ok := strings.CutSuffix(text, string(unit)); ok {
			text, factor = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err != nil || n < 0:
		in.rate = 0
		c.doc.remark(d.fault("limit_rate: expected a number of bytes such as 500k, found %s", shown(d.arg(0))))
	case n > 0 && (n*factor < bounds.MinBandwidth || n*factor > bounds.MaxBandwidth):
		in.rate = 0
		c.doc.remark(d.fault("limit_rate: a bandwidth of Diana is 1,000 to 1,000,000,000 bytes a second"))
	default:
		if in.rate, in.rateAt = n*factor, d; n > 0 {
			c.limits = append(c.limits, d)
		}
	}
}
