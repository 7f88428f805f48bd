// SPDX-License-Identifier: MIT

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/diana-limiter/diana/rule"
)

// A chain is a list of sources. The first source that has a value names the actor.
type chain []finder

type finder struct {
	text      string // the source's name in Request.Actors
	prefix    string // of the keys, so that keys of different sources never meet
	name      string
	find      func(*http.Request, string) string
	proof     string                           // the kind of the credential that proves the value; empty: none does
	ask       func(rule.Native, string) string // nil: find gets a copy
	canonical func(value, name string) string  // nil: values of a configuration are compared unchanged
}

// A resolver finds the sources of actors.
type resolver struct {
	identity rule.Identity
	kinds    []rule.ActorKind
}

// chains returns the chain of each actor of a rule. The client's address counts where no source
// of a chain has a value.
func (v *resolver) chains(actor []rule.Actor) ([]chain, error) {
	var who []chain
	for _, a := range actor {
		if a == rule.All {
			continue
		}
		c := chain{{text: a.String(), prefix: a.String() + "="}}
		switch a.Kind {
		case "ip":
			c = nil
		case "account", "device":
			list := v.identity.Account
			if a.Kind == "device" {
				list = v.identity.Device
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

func (v *resolver) finder(a rule.Actor) (finder, bool) {
	if a.Kind == "ip" {
		return finder{}, true // the address, which every chain ends in
	}
	for _, k := range v.kinds {
		if k.Kind == a.Kind {
			name := a.Name
			if a.Kind == "header" {
				name = http.CanonicalHeaderKey(name) // once, and not for each request
			}
			f := finder{text: a.String(), prefix: a.String() + "=", name: name, find: k.Find, ask: k.Ask, canonical: k.Canonical}
			if k.Proved && k.Find == nil {
				f.proof = k.Kind
			}
			return f, true
		}
	}
	return finder{}, false
}

// value returns the value of the first source that has one, and the source. It returns "" if no
// source has one, and if the first value is Unclear.
func (c chain) value(r *rule.Request) (value string, by *finder) {
	for i := range c {
		s := &c[i]
		if s.text == "" { // the address
			break
		}
		v := ""
		if len(r.Actors) > 0 {
			v = r.Actors[s.text]
		}
		if v == "" {
			v = s.valueIn(r)
		}
		switch v {
		case "":
		case rule.Unclear:
			return "", nil
		default:
			return v, s
		}
	}
	return "", nil
}

// valueIn returns what a request itself says, without what the program has named. A copy of the Native becomes the
// HTTP, so that no further rule makes one.
func (s *finder) valueIn(r *rule.Request) string {
	switch {
	case s.proof != "":
		if proof := r.Proofs[s.proof]; proof != nil {
			return proof(s.name)
		}
	case r.HTTP != nil && s.find != nil:
		return s.find(r.HTTP, s.name)
	case r.HTTP != nil || r.Native == nil:
	case s.ask != nil:
		return s.ask(r.Native, s.name)
	case s.find != nil:
		r.HTTP = r.Native.HTTP()
		return s.find(r.HTTP, s.name)
	}
	return ""
}

// linesOf returns the lines of a header field of a request.
func linesOf(r *rule.Request, name string) []string {
	switch {
	case r.HTTP != nil:
		return r.HTTP.Header[name]
	case r.Native != nil:
		return r.Native.Field(name)
	}
	return nil
}

// maxIdentity is the longest value, in bytes, that a key holds unhashed.
const maxIdentity = 256

// ActorText returns the key of an actor in the form for logs, lists and explanations, which is
// one line. It quotes a key with characters that cannot be printed, such as the end of a line, and
// a key that would look quoted.
func ActorText(key string) string {
	switch {
	case key == "":
		return rule.All.String() // one counter for everyone
	case key[0] == '"', strings.IndexFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0, !utf8.ValidString(key):
		return strconv.Quote(key)
	}
	return key
}

// ActorName returns the values in the key of an actor, as people know the client: ann for header:X-Account-Id=3:ann;. It
// returns a text that is no key as it is, and does not quote.
func ActorName(key string) string {
	if key == "" {
		return rule.All.String()
	}
	var values []string
	for rest := key; rest != ""; {
		kind, text, ok := strings.Cut(rest, "=")
		if !ok {
			return key
		}
		end := strings.IndexByte(text, ';')
		if length, value, sized := strings.Cut(text, ":"); sized && kind != "ip" {
			if n, err := strconv.Atoi(length); err == nil {
				text, end = value, n
			}
		}
		if end < 0 || end >= len(text) || text[end] != ';' {
			return key
		}
		values, rest = append(values, text[:end]), text[end+1:]
	}
	return strings.Join(values, " + ")
}

// appendKey appends the key, and returns the last value in it that is not an address.
func appendKey(key []byte, who []chain, client *Client) (with []byte, value string) {
	for _, c := range who {
		if v, by := c.value(client.req); v != "" {
			key, value = appendPart(key, by.prefix, v), v
			continue
		}
		key = appendIP(append(key, "ip="...), client.IP())
		key = append(key, ';')
	}
	return key, value
}

func appendPart(key []byte, prefix, value string) []byte {
	key = append(key, prefix...)
	if n := len(key); len(value) > maxIdentity {
		key = append(key, value...)
		sum := sha256.Sum256(key[n:])
		return append(appendSum(key[:n], sum), ';') // no length, so no value looks like it
	}
	key = appendLength(key, len(value))
	key = append(key, value...)
	return append(key, ';')
}

// hashed is the beginning of what appendSum appends.
const hashed = "sha256:"

func appendSum(key []byte, sum [sha256.Size]byte) []byte {
	return hex.AppendEncode(append(key, hashed...), sum[:])
}

// maxGiven is the longest key of a rule.Charge, in bytes, that stays as it is. The keys of three actors
// are shorter.
const maxGiven = 1024

// AppendGiven appends the key of a rule.Charge. It hashes a long key, and one that looks hashed, so that two
// keys never become one. The memory of key does not grow with a long key.
func AppendGiven(key []byte, given string) []byte {
	if len(given) > maxGiven || strings.HasPrefix(given, hashed) {
		return appendSum(key, sha256.Sum256([]byte(given)))
	}
	return append(key, given...)
}

// appendLength appends a number of at most maxIdentity and a colon. It takes half the time of strconv,
// which is a tenth of a decision.
func appendLength(key []byte, n int) []byte {
	if n >= 100 {
		key = append(key, byte('0'+n/100))
	}
	if n >= 10 {
		key = append(key, byte('0'+n/10%10))
	}
	return append(key, byte('0'+n%10), ':')
}
