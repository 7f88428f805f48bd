// SPDX-License-Identifier: MIT

package convert

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/bounds"
)

// convert writes the rules.
func (c *nginx) convert() {
	c.trust()
	for _, g := range c.order {
		c.convertGroup(g)
	}
	for _, name := range slices.Sorted(maps.Keys(c.zones)) {
		z := c.zones[name]
		if len(z.rules) > 1 {
			c.doc.remark(z.d.fault("nginx counts all uses of the zone %s together; its %d rules count apart", shown(name), len(z.rules)))
		}
	}
	c.bandwidths()
	slices.SortStableFunc(c.doc.entries, func(a, b *entry) int {
		return cmp.Compare(strings.Count(strings.TrimSuffix(a.url, "/"), "/"), strings.Count(strings.TrimSuffix(b.url, "/"), "/"))
	})
	c.statuses()
	for _, d := range c.limits {
		if !c.settled[d] {
			c.doc.remark(d.fault("%s applies to no request: each location has its own, or nginx answers by return", d.name))
		}
	}
	slices.SortStableFunc(c.doc.remarks, func(a, b config.Error) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// useOf returns the directive that applies a limit to a place.
func (g *group) useOf(p *place) *directive { return p.uses[slices.Index(p.groups, g)].d }

// without adds a remark for each directive of a limit that has no rule.
func (c *nginx) without(g *group, why string) {
	seen := map[*directive]bool{}
	for _, p := range g.places {
		if d := g.useOf(p); !seen[d] {
			seen[d] = true
			c.doc.remark(d.fault("this limit has no rule: %s", why))
		}
	}
}

// convertGroup writes the rules of a limit.
func (c *nginx) convertGroup(g *group) {
	u := g.use
	z := c.zones[u.zone]
	switch {
	case u.wrong != "":
		c.without(g, shown(u.wrong)+" is not understood")
		return
	case z == nil || z.conn != u.conn:
		c.without(g, "the zone "+shown(u.zone)+" is not defined here")
		return
	}
	if z.key == nil {
		if z.key = c.keyOf(z.d); z.missing == "" {
			z.missing = z.key.why
		}
		if z.missing == "" && z.key.remark != "" {
			c.doc.remark(z.d.fault("%s", z.key.remark))
		}
	}
	if z.missing != "" {
		c.without(g, fmt.Sprintf("%s, see the zone in line %d", z.missing, z.d.line))
		return
	}
	roots, lost := c.cover(g.places, func(p *place) bool { return slices.Contains(p.groups, g) })
	for _, p := range lost {
		c.doc.remark(g.useOf(p).fault("this limit has no rule for %s: no url of Diana is like it", p))
	}
	for _, r := range roots {
		d := g.useOf(r.place)
		w := &written{name: u.zone, file: d.file, line: d.line, column: d.column, shadow: g.dry}
		switch {
		case g.dry:
		case u.conn:
			w.status = r.place.level.connStatus
		default:
			w.status = r.place.level.reqStatus
		}
		w.keys = append(w.keys, "actor: "+yamlList(z.key.actors))
		c.limit(w, u, z)
		if len(z.key.except) > 0 {
			w.keys = append(w.keys, "except: ["+strings.Join(z.key.except, ", ")+"]")
		}
		if z.key.empty != "" {
			w.shadow = true
			w.remarks = append(w.remarks, z.d.fault("nginx does not limit a request without %s; the rule counts it by its address, so it has mode: shadow", z.key.empty))
		}
		if text := r.excess(); text != "" {
			w.shadow = true
			w.remarks = append(w.remarks, d.fault("nginx does not apply this limit to %s; the rule does, so it has mode: shadow", text))
		}
		if last := r.place.path[len(r.place.path)-1]; r.place.kind != "=" && strings.IndexByte("-_.~=@+", last) >= 0 {
			w.remarks = append(w.remarks, r.place.d.fault("in nginx it covers all paths that begin so; a url covers whole segments"))
		}
		both := slices.Contains(z.key.methods, http.MethodGet) // a url with GET covers HEAD
		if both && !slices.Contains(z.key.methods, http.MethodHead) {
			w.shadow = true
			w.remarks = append(w.remarks, z.d.fault("nginx does not limit HEAD; the rule of GET does, so it has mode: shadow"))
		}
		urls := []string{r.url}
		if len(z.key.methods) > 0 {
			urls = nil
			for _, method := range z.key.methods {
				if method != http.MethodHead || !both {
					urls = append(urls, method+" "+r.url)
				}
			}
		}
		for _, url := range urls {
			e, of := c.doc.entry(url), *w
			e.rules, z.rules = append(e.rules, &of), append(z.rules, &of)
		}
	}
}

// limit adds the keys of the limit itself.
func (c *nginx) limit(w *written, u *use, z *zone) {
	add := func(format string, args ...any) { w.keys = append(w.keys, fmt.Sprintf(format, args...)) }
	if u.conn {
		add("algo: C")
		add("rpu: %d", u.n)
		return
	}
	unit := "second"
	if z.unit == time.Minute {
		unit = "minute"
	}
	add("unit: %s", unit)
	add("rpu: %d", z.rate)
	n := u.burst - u.delay // requests that wait
	longest := time.Duration((n*z.unit.Microseconds()+z.rate-1)/z.rate) * time.Microsecond
	switch {
	case u.delay == u.burst:
		add("burst: %d", u.burst+1)
	case u.delay == 0 && longest <= bounds.MaxQueueWait:
		add("algo: LB")
		add("queue: %d", u.burst)
	default:
		if longest > bounds.MaxWait {
			w.shadow = true
			w.remarks = append(w.remarks, w.fault("nginx delays a request for up to %v; in Diana no request waits for over %v, so the rule has mode: shadow", longest, bounds.MaxWait))
			longest = bounds.MaxWait
		}
		add("burst: %d", u.delay+1)
		add("wait: %s", strings.Replace(max(longest, time.Millisecond).String(), "m0s", "m", 1))
	}
}

// bandwidths writes the bandwidths of limit_rate.
func (c *nginx) bandwidths() {
	byRate := map[int64][]*place{}
	for _, s := range c.servers {
		for _, p := range s.places {
			if p.level.rate > 0 {
				byRate[p.level.rate] = append(byRate[p.level.rate], p)
			}
		}
	}
	for _, rate := range slices.Sorted(maps.Keys(byRate)) {
		roots, lost := c.cover(byRate[rate], func(p *place) bool { return p.level.rate > 0 && p.level.rate <= rate })
		for _, p := range lost {
			c.doc.remark(p.level.rateAt.fault("no url of Diana is like %s, so its answers have no bandwidth", p))
		}
		for _, r := range roots {
			at := r.place.level.rateAt
			if text := r.excess(); text != "" {
				c.doc.remark(at.fault("nginx does not apply this rate to %s; bandwidth: %s on %s would, so it is not there", text, bandwidth(rate), plain(r.url)))
				continue
			}
			e := c.doc.entry(r.url)
			e.bandwidth = true
			e.keys = append(e.keys, fmt.Sprintf("bandwidth: %s # %s", bandwidth(rate), printable(fmt.Sprintf("%s:%d", at.file, at.line))))
		}
	}
}

// bandwidth writes a number of bytes a second.
func bandwidth(n int64) string {
	switch {
	case n%1_000_000 == 0:
		return fmt.Sprintf("%dm", n/1_000_000)
	case n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return strconv.FormatInt(n, 10)
}

// statuses writes the statuses of refusals: the most frequent for all, another as a diversion of the entry.
func (c *nginx) statuses() {
	count, usual := map[int]int{}, 0
	for _, e := range c.doc.entries {
		for _, r := range e.rules {
			if r.status == 0 { // a dry run refuses nothing
				continue
			}
			if count[r.status]++; count[r.status] > count[usual] {
				usual = r.status
			}
		}
	}
	if usual != usualStatus && usual != 0 {
		c.doc.settings = append(c.doc.settings, fmt.Sprintf("response: {status: %d}", usual))
	}
	for _, e := range c.doc.entries {
		status := 0
		for _, r := range e.rules {
			if status = cmp.Or(status, r.status); r.status != 0 && r.status != status {
				r.remarks = append(r.remarks, r.fault("nginx refuses with %d by this limit; all rules of a url have one status", r.status))
			}
		}
		if status != usual && status != 0 {
			text := cmp.Or(http.StatusText(status), "Refused")
			e.keys = append(e.keys, fmt.Sprintf("divert: {status: %d, body: %s}", status, strconv.Quote(text)))
		}
	}
	for _, d := range c.errorPages {
		for _, code := range d.args[:len(d.args)-1] {
			if n, err := strconv.Atoi(code); err == nil && count[n] > 0 {
				c.doc.remark(d.fault("error_page: nginx answers a refusal with %s; see divert in docs/configuration.md", shown(d.arg(len(d.args)-1))))
				break
			}
		}
	}
}

// trust writes the trusted proxies of the module realip.
func (c *nginx) trust() {
	var list []string
	header, recursive := &directive{args: []string{"X-Real-IP"}}, false
	var from *directive
	for _, d := range c.realIP {
		switch d.name {
		case "real_ip_header":
			header = d
		case "real_ip_recursive":
			recursive = d.arg(0) == "on"
		default:
			from = d
			network, err := netip.ParsePrefix(d.arg(0))
			if err != nil {
				address, failed := netip.ParseAddr(d.arg(0))
				if failed != nil {
					c.doc.remark(d.fault("set_real_ip_from: expected an address or a network, found %s", shown(d.arg(0))))
					continue
				}
				network = netip.PrefixFrom(address, address.BitLen())
			}
			if text := network.Masked().String(); !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	if from == nil {
		return
	}
	if !strings.EqualFold(header.arg(0), "X-Forwarded-For") {
		c.doc.remark(from.fault("nginx takes the address of the client from %s; Diana takes it from X-Forwarded-For of trusted_proxies", shown(header.arg(0))))
		return
	}
	if !recursive {
		c.doc.remark(from.fault("without real_ip_recursive nginx takes the last address of X-Forwarded-For; Diana takes the last that is not trusted"))
	}
	if len(list) > 0 {
		c.doc.settings = append(c.doc.settings, "identity: {trusted_proxies: ["+strings.Join(quotedAll(list), ", ")+"]}")
	}
}

func quotedAll(texts []string) []string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = plain(text)
	}
	return quoted
}
