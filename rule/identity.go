// SPDX-License-Identifier: MIT

package rule

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Actor is what a rule counts by: everyone ("all"), or each value of something
// that a request carries. As text it is the Kind, and a Name behind a colon for
// kinds that have one.
type Actor struct {
	Kind string
	Name string
}

func (a Actor) String() string {
	if a.Name == "" {
		return a.Kind
	}
	return a.Kind + ":" + a.Name
}

// All is the actor that everyone is.
var All = Actor{Kind: "all"}

// MaxActors is how many actors a rule may count together as one.
const MaxActors = 3

// ParseActor returns the actor that text names. The error says what was expected.
func (v Vocabulary) ParseActor(text string) (Actor, error) {
	switch text {
	case "all", "account", "device", "ip":
		return Actor{Kind: text}, nil
	case "actor": // source 001 writes it for account
		return Actor{Kind: "account"}, nil
	}
	kind, name, named := strings.Cut(text, ":")
	for _, k := range v.Actors {
		if k.Kind != kind {
			continue
		}
		switch {
		case k.Named && name == "":
			return Actor{}, fmt.Errorf("actor %q lacks a name, expected %s:NAME", text, kind)
		case !k.Named && named:
			return Actor{}, fmt.Errorf("actor %q has a name, expected %s", text, kind)
		case k.Kind == "header":
			if !token(name) {
				return Actor{}, fmt.Errorf("%q is not a name of a header", name)
			}
			name = http.CanonicalHeaderKey(name)
		}
		return Actor{Kind: kind, Name: name}, nil
	}
	return Actor{}, fmt.Errorf("unknown actor %q, expected %s", text, v.actorNames())
}

func (v Vocabulary) actorNames() string {
	names := []string{"all", "account", "device", "ip"}
	for _, k := range v.Actors {
		if k.Named {
			names = append(names, k.Kind+":NAME")
		} else {
			names = append(names, k.Kind)
		}
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// token reports whether s is a token of RFC 9110, such as a header's name.
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c > '~' || strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) >= 0 {
			return false
		}
	}
	return s != ""
}

// Identity says who account and device are, and whom to believe about the
// client's address. The zero value knows account and device by IP alone.
type Identity struct {
	Account, Device []Actor        // tried in order; the client's IP is the last resort
	TrustedProxies  []netip.Prefix // peers whose X-Forwarded-For is read
}

// Request is what is judged. The zero value is a request of the unknown to "/".
type Request struct {
	Method string
	Path   string // as it was sent: still escaped, not cleaned

	// Actors holds what the caller knows of who asks, by an actor's text:
	// "account", "device", "ip", "header:X-Device-Id". It is believed, and goes
	// before what HTTP says.
	Actors map[string]string

	// Costs holds what the caller knows of what the request costs, for rules that go by a
	// header, by the header's canonical name. It is believed, and goes before what HTTP
	// says.
	Costs map[string]int64

	// HTTP is where actors and costs are found that Actors and Costs do not name. May be
	// nil.
	HTTP *http.Request
}

// A chain is a list of sources that are tried until one has a value.
type chain []finder

type finder struct {
	text      string // names it in Request.Actors
	prefix    string // of the keys it makes, so that different sources never meet
	name      string
	find      func(*http.Request, string) string
	canonical func(value, name string) string // nil: what a configuration names is compared as it is
}

// chains resolves the actors of a rule. Each chain ends in the client's IP.
func (id *Identity) chains(v Vocabulary, actor []Actor) ([]chain, error) {
	var who []chain
	for _, a := range actor {
		if a == All {
			continue
		}
		c := chain{{text: a.String(), prefix: a.String() + "="}}
		switch a.Kind {
		case "ip":
			c = nil
		case "account", "device":
			list := id.Account
			if a.Kind == "device" {
				list = id.Device
			}
			for _, sub := range list {
				s, ok := v.finder(sub)
				if !ok {
					return nil, fmt.Errorf("%s: unknown source %q", a.Kind, sub)
				}
				c = append(c, s)
			}
		default:
			s, ok := v.finder(a)
			if !ok {
				return nil, fmt.Errorf("unknown actor %q", a)
			}
			c[0] = s
		}
		who = append(who, c)
	}
	return who, nil
}

func (v Vocabulary) finder(a Actor) (finder, bool) {
	if a.Kind == "ip" {
		return finder{}, true // what every chain ends in
	}
	for _, k := range v.Actors {
		if k.Kind == a.Kind {
			return finder{text: a.String(), prefix: a.String() + "=", name: a.Name, find: k.Find, canonical: k.Canonical}, true
		}
	}
	return finder{}, false
}

func (s *finder) value(r *Request) string {
	if len(r.Actors) > 0 {
		if v := r.Actors[s.text]; v != "" {
			return v
		}
	}
	if r.HTTP == nil || s.find == nil {
		return ""
	}
	return s.find(r.HTTP, s.name)
}

// value returns what the first source finds that finds something, and the source; else, and
// where that is Unclear, "".
func (c chain) value(r *Request) (value string, by *finder) {
	for i := range c {
		if c[i].text == "" { // the address
			break
		}
		switch v := c[i].value(r); v {
		case "":
		case Unclear:
			return "", nil
		default:
			return v, &c[i]
		}
	}
	return "", nil
}

// CountsAll reports whether the rule counts everyone together, without exceptions.
func (r *Rule) CountsAll() bool { return len(r.who) == 0 && r.exceptions == nil }

// maxIdentity is the longest value that a key holds as it is.
const maxIdentity = 256

// AppendKey appends the key of who makes the request, as this rule counts it. ip is
// the client's address, see [Identity.ClientIP]. The key of All is empty. Keys
// differ when the actors do: each part tells its source and its length.
//
// It returns the rule as it holds for them: r itself, one of Set.Variants if they have an
// override, or nil if they are excepted.
func (r *Rule) AppendKey(key []byte, req *Request, ip netip.Addr) ([]byte, *Rule) {
	key, value := appendKey(key, r.who, req, ip)
	if r.exceptions != nil {
		r = r.exceptions.of(r, value, ip)
	}
	return key, r
}

// ActorText returns the key of an actor as people read it: in logs, lists and explanations. It
// is one line: a key that holds what cannot be printed, such as an end of a line, is quoted, and so
// is one that would look quoted.
func ActorText(key string) string {
	switch {
	case key == "":
		return All.String() // one counter for everyone
	case key[0] == '"', strings.IndexFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0, !utf8.ValidString(key):
		return strconv.Quote(key)
	}
	return key
}

// appendKey appends the key, and returns the value in it, of the last part that has one.
func appendKey(key []byte, who []chain, req *Request, ip netip.Addr) (with []byte, value string) {
	for _, c := range who {
		if v, by := c.value(req); v != "" {
			key, value = appendPart(key, by.prefix, v), v
			continue
		}
		key = appendIP(append(key, "ip="...), ip)
		key = append(key, ';')
	}
	return key, value
}

func appendPart(key []byte, prefix, value string) []byte {
	key = append(key, prefix...)
	if n := len(key); len(value) > maxIdentity {
		key = append(key, value...)
		sum := sha256.Sum256(key[n:])
		key = append(key[:n], "sha256:"...) // no length, so no value looks like it
		return append(hex.AppendEncode(key, sum[:]), ';')
	}
	key = strconv.AppendInt(key, int64(len(value)), 10)
	key = append(key, ':')
	key = append(key, value...)
	return append(key, ';')
}
