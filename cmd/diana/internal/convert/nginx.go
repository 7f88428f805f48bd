// SPDX-License-Identifier: MIT

package convert

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/yamltext"
)

const (
	mostPlaces  = 5000      // locations and servers, because each limit looks at all of them
	mostBurst   = 1_000_000 // a bucket must be full within a hundred years
	usualStatus = http.StatusServiceUnavailable
)

// Nginx returns the rules of a configuration of nginx, or of the output of "nginx -T". only is the name of the
// server to convert; empty means all servers. The error is a config.Errors if it has a place.
func Nginx(name, text, only string) (Result, error) {
	list, unread, err := parse(name, text)
	if err != nil {
		return Result{}, err
	}
	c := &nginx{zones: map[string]*zone{}, variables: map[string]*directive{}, groups: map[string]*group{}, settled: map[*directive]bool{}, targets: map[string]bool{}}
	c.doc.title = []string{"Rules for the limits of " + name + " of nginx. docs/gateways/from-nginx.md says what differs for all of them."}
	for _, d := range unread {
		c.doc.remark(d.fault("the file %s is not read; the output of \"nginx -T\" has all files", shown(d.arg(0))))
	}
	if err := c.collect(name, list, only); err != nil {
		return Result{}, err
	}
	if n := len(c.servers); n > 1 {
		c.doc.title = append(c.doc.title, fmt.Sprintf("It has %d servers, and no rule has a condition about the host. --server converts one.", n))
	}
	c.convert()
	return c.doc.result(), nil
}

// nginx is a configuration of nginx that is converted.
type nginx struct {
	doc       document
	zones     map[string]*zone
	variables map[string]*directive // map and geo, by the name of the variable
	servers   []*server
	places    int

	groups map[string]*group
	order  []*group

	errorPages []*directive
	targets    map[string]bool // of errorPages

	limits  []*directive        // each limit_req, limit_conn and limit_rate
	settled map[*directive]bool // those that apply to some place, or have a remark
	realIP  []*directive
}

// zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	d       *directive
	conn    bool
	rate    int64 // of requests in unit
	unit    time.Duration
	missing string // why no rule can have it; empty if one can
	key     *key
	rules   []*written
}

// use is a limit_req or a limit_conn.
type use struct {
	d            *directive
	zone         string
	conn         bool
	n            int64 // of limit_conn
	burst, delay int64 // delay is at most burst
	wrong        string
}

// level is what holds in a block: of http, of a server, of a location.
type level struct {
	req, conn             []*use
	reqDry, connDry       bool
	reqStatus, connStatus int
	rate                  int64 // limit_rate in bytes a second; 0: none
	rateAt                *directive
}

// server is a server block.
type server struct {
	d      *directive
	names  []string
	places []*place
}

// place is a server without its locations, or a location: it handles a request alone.
type place struct {
	server *server
	parent *place // the location around it, if there is one
	d      *directive
	kind   string // "" is a prefix; or ^~, = and ~
	regex  bool   // it is a regular expression, which takes precedence over prefixes, also if kind is another
	closed bool   // nginx answers by return
	path   string
	url    string // of Diana; empty: it has none
	level  level
	order  int
	uses   []*use // of level, and their groups
	groups []*group
}

// String describes the place in messages.
func (p *place) String() string {
	if p.path == "/" && p.d.name != "location" {
		return fmt.Sprintf("the rest of the server in line %d", p.d.line)
	}
	text := strings.Join(p.d.args, " ")
	return fmt.Sprintf("the location %s in line %d", shown(text), p.d.line)
}

// group is a limit with the places in which it applies.
type group struct {
	use    *use
	dry    bool
	places []*place
}

// collect reads the blocks. A text without http is a file that http includes.
func (c *nginx) collect(name string, list []*directive, only string) error {
	top := list
	for _, d := range list {
		switch d.name {
		case "http":
			top = d.block
		case "stream", "mail":
			c.inside(d.block, "in a "+d.name+" block, which Diana does not serve")
		}
	}
	var servers []*directive
	for _, d := range top {
		switch d.name {
		case "limit_req_zone", "limit_conn_zone":
			c.addZone(d)
		case "map":
			c.variables[strings.TrimPrefix(d.arg(1), "$")] = d
		case "geo":
			c.variables[strings.TrimPrefix(d.arg(len(d.args)-1), "$")] = d
		case "server":
			servers = append(servers, d)
		}
	}
	c.findTargets(top)
	http := level{reqStatus: usualStatus, connStatus: usualStatus}
	if len(servers) > 0 {
		http = c.apply(http, top)
	} else { // what a server includes
		servers = []*directive{{name: "server", block: top, file: name, line: 1, column: 1}}
	}
	var names []string
	for _, d := range servers {
		s := &server{d: d}
		for _, e := range d.block {
			if e.name == "server_name" {
				s.names = append(s.names, e.args...)
			}
		}
		names = append(names, s.names...)
		if only == "" || slices.Contains(s.names, only) {
			if err := c.addServer(s, http); err != nil {
				return err
			}
		}
	}
	if only != "" && !slices.Contains(names, only) {
		slices.Sort(names)
		return fmt.Errorf("%s: no server has the name %s%s", name, shown(only), yamltext.DidYouMean(only, slices.Compact(names)))
	}
	return nil
}

// findTargets finds the error pages and the trusted proxies in all blocks.
func (c *nginx) findTargets(list []*directive) {
	for _, d := range list {
		switch d.name {
		case "error_page":
			if len(d.args) > 1 {
				c.targets[d.arg(len(d.args)-1)] = true
				c.errorPages = append(c.errorPages, d)
			}
		case "set_real_ip_from", "real_ip_header", "real_ip_recursive":
			c.realIP = append(c.realIP, d)
		case "server", "location", "if":
			c.findTargets(d.block)
		}
	}
}

// addServer adds a server. One that answers everything by return, such as with https, is not what Diana is in front of.
func (c *nginx) addServer(s *server, http level) error {
	in := c.apply(http, s.d.block)
	if d := find(s.d.block, "return"); d != nil {
		c.inside(s.d.block, fmt.Sprintf("without effect, because nginx answers by the return in line %d before it limits", d.line))
		return nil
	}
	c.servers = append(c.servers, s)
	if err := c.addLocations(s, nil, s.d.block, in); err != nil {
		return err
	}
	if slices.ContainsFunc(s.places, func(p *place) bool { return p.path == "/" && p.kind != "=" && p.kind != "~" }) {
		if !slices.ContainsFunc(s.places, func(p *place) bool { return !p.closed }) {
			c.servers = c.servers[:len(c.servers)-1] // as above
		}
		return nil // a location has all the rest
	}
	return c.add(&place{server: s, d: s.d, path: "/", level: in})
}

// addLocations adds the locations of a block.
func (c *nginx) addLocations(s *server, parent *place, block []*directive, around level) error {
	for _, d := range block {
		if d.name != "location" {
			continue
		}
		in := c.apply(around, d.block)
		p := &place{server: s, parent: parent, d: d, level: in}
		p.kind, p.path = locationOf(d)
		p.regex = strings.HasPrefix(d.arg(0), "~")
		if find(d.block, "return") != nil { // before it limits; the locations inside have no return
			p.level, p.closed = level{}, true
		}
		switch {
		case strings.HasPrefix(p.path, "@"):
			c.inside(d.block, "in a named location, which nginx enters after it has limited the request")
			continue
		case find(d.block, "internal") != nil:
			c.inside(d.block, "in an internal location, which clients cannot ask for")
			continue
		case p.kind == "=" && c.targets[p.path]:
			c.inside(d.block, "in the location of an error page, which clients do not ask for")
			continue
		}
		if err := c.add(p); err != nil {
			return err
		}
		if err := c.addLocations(s, p, d.block, in); err != nil {
			return err
		}
	}
	return nil
}

// locationOf returns how a location matches, and its path or its regular expression. A regular expression that
// matches as a prefix or a path does is one.
func locationOf(d *directive) (kind, path string) {
	kind, path = d.arg(0), d.arg(1)
	if len(d.args) < 2 { // nginx accepts =/path too
		for _, kind := range []string{"^~", "~*", "~", "="} {
			if rest, ok := strings.CutPrefix(d.arg(0), kind); ok {
				return simple(kind, rest)
			}
		}
		return "", d.arg(0)
	}
	return simple(kind, path)
}

func simple(kind, path string) (string, string) {
	if kind != "~" && kind != "~*" {
		return kind, path
	}
	if text, ok := strings.CutPrefix(path, "^"); ok {
		kind := ""
		if rest, ok := strings.CutSuffix(text, "$"); ok && !strings.HasSuffix(rest, `\`) {
			kind, text = "=", strings.TrimSuffix(rest, "/?")
		}
		text = strings.NewReplacer(`\.`, "\x00", `\-`, "-", `\/`, "/").Replace(text)
		if !strings.ContainsAny(text, `.*+?()[]{}|^$\`) {
			return kind, strings.ReplaceAll(text, "\x00", ".")
		}
	}
	return "~", path
}

// add adds a place.
func (c *nginx) add(p *place) error {
	p.order = c.places
	if c.places++; c.places > mostPlaces {
		return config.Errors{p.d.fault("expected at most %d servers and locations, found more; see --server", mostPlaces)}
	}
	if p.kind != "~" {
		p.url = urlOf(p.path)
	}
	p.server.places = append(p.server.places, p)
	if p.level.rateAt != nil {
		c.settled[p.level.rateAt] = true
	}
	for _, u := range slices.Concat(p.level.req, p.level.conn) {
		dry := u.conn && p.level.connDry || !u.conn && p.level.reqDry
		name := fmt.Sprintf("%t %s %d %d %d %t %s", u.conn, u.zone, u.n, u.burst, u.delay, dry, u.wrong)
		g := c.groups[name]
		if g == nil {
			g = &group{use: u, dry: dry}
			c.groups[name], c.order = g, append(c.order, g)
		}
		c.settled[u.d] = true
		g.places, p.uses, p.groups = append(g.places, p), append(p.uses, u), append(p.groups, g)
	}
	return nil
}

// find returns the first directive of a name in a block, or nil.
func find(block []*directive, name string) *directive {
	for _, d := range block {
		if d.name == name {
			return d
		}
	}
	return nil
}

// own adds a remark about each limit of a block itself.
func (c *nginx) own(block []*directive, why string) {
	for _, d := range block {
		if d.name == "limit_req" || d.name == "limit_conn" || d.name == "limit_rate" {
			c.settled[d] = true
			c.doc.remark(d.fault("%s is %s", d.name, why))
		}
	}
}

// inside adds a remark about each limit of a block and of the blocks in it.
func (c *nginx) inside(block []*directive, why string) {
	c.own(block, why)
	for _, d := range block {
		c.inside(d.block, why)
	}
}

// apply returns what holds in a block, and adds remarks about what no rule can say.
func (c *nginx) apply(around level, block []*directive) level {
	in := around
	var req, conn []*use
	for _, d := range block {
		switch d.name {
		case "limit_req":
			req, c.limits = append(req, readReq(d)), append(c.limits, d)
		case "limit_conn":
			conn, c.limits = append(conn, readConn(d)), append(c.limits, d)
		case "limit_req_dry_run":
			in.reqDry = d.arg(0) == "on"
		case "limit_conn_dry_run":
			in.connDry = d.arg(0) == "on"
		case "limit_req_status":
			in.reqStatus = c.status(d, in.reqStatus)
		case "limit_conn_status":
			in.connStatus = c.status(d, in.connStatus)
		case "limit_rate":
			c.readRate(d, &in)
		case "limit_rate_after":
			if strings.Trim(d.arg(0), "0kKmMgG") != "" {
				c.doc.remark(d.fault("limit_rate_after: a bandwidth of Diana begins with the first byte"))
			}
		case "if":
			for _, e := range d.block {
				if strings.HasPrefix(e.name, "limit_") || e.name == "set" && e.arg(0) == "$limit_rate" {
					c.doc.remark(e.fault("%s in an if: no rule of Diana has such a condition", e.name))
				}
			}
		case "set":
			if d.arg(0) == "$limit_rate" {
				c.doc.remark(d.fault("set $limit_rate: a bandwidth of Diana is a number"))
			}
		case "limit_req_zone", "limit_conn_zone", "limit_req_log_level", "limit_conn_log_level", "limit_except":
		default:
			if strings.HasPrefix(d.name, "limit_") || strings.HasSuffix(d.name, "_limit_rate") {
				c.doc.remark(d.fault("%s has no rule", shown(d.name)))
			}
		}
	}
	if req != nil {
		in.req = req
	}
	if conn != nil {
		in.conn = conn
	}
	return in
}
