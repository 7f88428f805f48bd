// SPDX-License-Identifier: MIT

package replay

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/bounds"
)

// Request is a request of a script, with what is known about its client.
type Request struct {
	At      time.Time
	Method  string
	URL     string
	IP      netip.Addr        // 127.0.0.1 if the script has none
	Header  []string          // NAME: VALUE
	Actors  map[string]string // by their text, as in rule.Request
	Lasts   time.Duration     // how long it runs after its wait
	Latency time.Duration     // until its answer begins; 0 if the script has none
	Answer  int               // the status of its answer; 0 if the script has none
	Costs   *int64            // what its answer turns out to cost; nil if the script has none
}

// Answer is the result of a Request.
type Answer struct {
	Allowed   bool
	By        []string // names of the rules that refuse
	Remaining []int64  // for each rule that is evaluated, in their order
	Wait      time.Duration
	Retry     time.Duration // of a refusal; 0 if no wait helps
	Status    int           // the status of a refusal
}

// Gateway decides requests by a configuration, at the moments of the requests. An error means that
// the request is not valid.
type Gateway func(Request) (Answer, error)

// request reads the words after the time in a row under a configuration.
func (l *line) request(r *row) {
	r.request = Request{
		At:     time.UnixMicro(r.at).UTC(),
		IP:     netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		Actors: map[string]string{},
	}
	method := l.next("a method such as GET")
	if r.request.Method = method.text; method.text == "" || strings.ToUpper(method.text) != method.text {
		l.expected("a method such as GET", method)
	}
	r.request.URL = l.next("a URL").text
	seen := map[string]bool{}
	for len(l.left) > 0 && !l.lost && l.left[0].text != "allowed" && l.left[0].text != "refused" {
		w := l.next("")
		key, value, ok := strings.Cut(w.text, "=")
		if !ok {
			l.expected("allowed, refused, or the client, such as ip=203.0.113.7 or header:NAME=VALUE", w)
			break
		}
		if seen[key] && !strings.HasPrefix(key, "header:") {
			l.errorf(w, "%s is given twice", key)
		}
		seen[key] = true
		l.client(&r.request, key, word{column: w.column + len(key) + 1, text: value})
	}
	r.want = l.result()
}

// client reads a word that describes a client.
func (l *line) client(r *Request, key string, value word) {
	kind, name, _ := strings.Cut(key, ":")
	switch {
	case key == "ip":
		var err error
		if r.IP, err = netip.ParseAddr(value.text); err != nil {
			l.errorf(value, "expected an address, found %v", value)
		}
	case key == "lasts":
		r.Lasts = time.Duration(l.duration(value)) * time.Microsecond
	case key == "latency":
		r.Latency = time.Duration(l.duration(value)) * time.Microsecond
	case key == "answer":
		r.Answer = int(l.count(value, 100, 599))
	case key == "costs":
		n := l.count(value, 0, bounds.MaxSettled)
		r.Costs = &n
	case kind == "header":
		r.Header = append(r.Header, name+": "+value.text)
	case kind == "cookie":
		r.Header = append(r.Header, "Cookie: "+name+"="+value.text)
	default:
		r.Actors[key] = value.text
	}
}

// ask plays the rows of a case of a configuration.
func (c *scenario) ask(file string, gateway Gateway) error {
	var errs []error
	for i := range c.rows {
		r := &c.rows[i]
		a, err := gateway(r.request)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, r.line, err))
			continue
		}
		// A name can have a comma, and then looks like two names in a script.
		got := result{allowed: a.Allowed, by: strings.Split(strings.Join(a.By, ","), ","), remaining: a.Remaining, status: a.Status}
		if got.wait = a.Wait.Microseconds(); !a.Allowed {
			got.wait = a.Retry.Microseconds()
		}
		if !r.want.matches(got) {
			errs = append(errs, fmt.Errorf("%s:%d: expected %s, got %v", file, r.line, r.want.text, got))
		}
	}
	return errors.Join(errs...)
}
