// SPDX-License-Identifier: MIT

package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/apikeys"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/names"
	"github.com/diana-limiter/diana/internal/yamltext"
	"github.com/diana-limiter/diana/limit"
	"github.com/diana-limiter/diana/rule"
	"github.com/diana-limiter/diana/source"
)

// Vocabulary is the set of words that a configuration can use. A program appends its own
// algorithms, kinds of actors, units, sources and scopes to those of [DefaultVocabulary]. There
// is no registry. The zero value has no words.
type Vocabulary struct {
	Algorithms []limit.Algorithm // the first is the default of a rule
	Actors     []rule.ActorKind
	Units      map[string]time.Duration
	Sources    []source.Kind // of remote configurations
	Verifiers  []Verifier    // of credentials

	// Scopes are the names of stores that the program brings, besides "local" and "global". If
	// "global" is among them, global rules need no redis.
	Scopes []string

	// Reading, if it is not nil, is called with the size of each text before the text is read, and done
	// afterwards. A program can thereby read one large text at a time.
	Reading func(size int) (done func())
}

// DefaultVocabulary returns the words that Diana itself knows. Its sources are those that need
// no more than the standard library and the Redis client.
//
// In addition to the actors of a vocabulary, a configuration can always name "all", which counts
// all clients together, and "ip", "account" and "device", which [rule.Identity] defines.
func DefaultVocabulary() Vocabulary {
	return Vocabulary{
		Algorithms: append(limit.Algorithms(), limit.AdaptiveConcurrency()),
		Actors:     append(actors.Kinds(), apikeys.Kind()),
		Units:      names.Units(),
		Sources:    source.Kinds(),
		Verifiers:  []Verifier{keyVerifier()},
	}
}

// ParseActor returns the actor that text names. The error says what was expected.
func (v Vocabulary) ParseActor(text string) (rule.Actor, error) {
	switch text {
	case "all", "account", "device", "ip":
		return rule.Actor{Kind: text}, nil
	case "actor": // another name of account
		return rule.Actor{Kind: "account"}, nil
	}
	kind, name, named := strings.Cut(text, ":")
	for _, k := range v.Actors {
		if k.Kind != kind {
			continue
		}
		switch {
		case isBody(k):
			if err := checkPointer(name); err != nil {
				return rule.Actor{}, fmt.Errorf("actor %q: %w", text, err)
			}
		case k.Named && name == "":
			return rule.Actor{}, fmt.Errorf("actor %q lacks a name, expected %s:NAME", text, kind)
		case !k.Named && named:
			return rule.Actor{}, fmt.Errorf("actor %q has a name, expected %s", text, kind)
		case k.Kind == "header":
			if !httptext.IsToken(name) {
				return rule.Actor{}, fmt.Errorf("expected the name of a header, found %q", name)
			}
			name = http.CanonicalHeaderKey(name)
		case k.Check != nil:
			if err := k.Check(name); err != nil {
				return rule.Actor{}, fmt.Errorf("unknown actor %q: %w", text, err)
			}
		}
		return rule.Actor{Kind: kind, Name: name}, nil
	}
	kinds := slices.Clone(actorKinds)
	for _, k := range v.Actors {
		kinds = append(kinds, k.Kind)
	}
	return rule.Actor{}, fmt.Errorf("unknown actor %q%s, expected %s", text, yamltext.DidYouMean(kind, kinds), v.actorNames())
}

// actorNames returns the forms of all actors as a list in words.
func (v Vocabulary) actorNames() string {
	names := slices.Clone(actorKinds)
	for _, k := range v.Actors {
		if isBody(k) {
			names = append(names, "body:/POINTER")
		} else if k.Named {
			names = append(names, k.Kind+":NAME")
		} else {
			names = append(names, k.Kind)
		}
	}
	return yamltext.Join(names, "or")
}

// isBody reports whether a kind of actors is that of Diana for bodies.
func isBody(k rule.ActorKind) bool { return k.Kind == "body" && k.Find == nil }

// algorithm returns the algorithm with a name.
func (v Vocabulary) algorithm(name string) (limit.Algorithm, bool) {
	for _, a := range v.Algorithms {
		if a.Called(name) {
			return a, true
		}
	}
	return limit.Algorithm{}, false
}

// usersOf returns the algorithms that use a key of a rule, as a list in words.
func (v Vocabulary) usersOf(key string) string {
	var users []string
	for _, a := range v.Algorithms {
		if a.Uses(key) {
			users = append(users, a.Name())
		}
	}
	if len(users) == 0 {
		return "none that is known"
	}
	return yamltext.Join(users, "and")
}

// calendars returns the units of the calendar. They are words of every vocabulary with an algorithm for
// them, unless the vocabulary has a unit of the same name.
func (v Vocabulary) calendars() []string {
	if !slices.ContainsFunc(v.Algorithms, func(a limit.Algorithm) bool { return a.Uses("zone") }) {
		return nil
	}
	return slices.DeleteFunc(names.Calendars(), func(name string) bool { return v.Units[name] != 0 })
}

// unitNames returns the names of the units, from the shortest unit to the longest.
func (v Vocabulary) unitNames() []string {
	return slices.SortedFunc(maps.Keys(v.Units), func(a, b string) int {
		return cmp.Or(cmp.Compare(v.Units[a], v.Units[b]), cmp.Compare(a, b))
	})
}

// scopes returns the names of all scopes, each once. The first is the default.
func (v Vocabulary) scopes() []string {
	all := []string{string(rule.Local), string(rule.Global)}
	for _, s := range v.Scopes {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// OpenSource returns the source that o describes, and the name of its kind, which is the first of its
// schemes. It does no network I/O.
func (v Vocabulary) OpenSource(o source.Options) (kind string, s source.Source, err error) {
	k, ok := v.source(o.URL.Scheme)
	if !ok {
		return "", nil, fmt.Errorf("this program has no source for %s", o.URL.Scheme)
	}
	s, err = k.Open(o)
	return k.Schemes[0], s, err
}

// source returns the kind of source that has a scheme.
func (v Vocabulary) source(scheme string) (source.Kind, bool) {
	i := slices.IndexFunc(v.Sources, func(k source.Kind) bool { return slices.Contains(k.Schemes, scheme) })
	if i < 0 {
		return source.Kind{}, false
	}
	return v.Sources[i], true
}

// Schema returns a JSON Schema (draft 2020-12) for one document of a configuration in the words
// of v. Editors use it. A configuration that Parse accepts fits the schema, except for oddities
// such as a colon without a space after it. A schema cannot express everything that Parse checks,
// such as that no two entries have the same url.
func (v Vocabulary) Schema() []byte {
	d := &drawing{words: v, defs: object{}}
	schema := object{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "Configuration of Diana",
		"description": "Settings and limits; or an entry, or a list of entries.",
		"anyOf":       []object{fullKeys.draw(d), entryKeys.draw(d), entriesForm.draw(d)},
		"$defs":       d.defs,
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil { // the tables are wrong
		panic(err)
	}
	return b.Bytes()
}

// otherScopes returns the scopes whose store is outside of this process: global, and those of the
// program.
func (v Vocabulary) otherScopes() []string {
	all := []string{string(rule.Global)}
	for _, s := range v.Scopes {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
