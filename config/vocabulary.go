// SPDX-License-Identifier: MIT

package config

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/diana-limiter/diana/internal/actors"
	"github.com/diana-limiter/diana/internal/httptext"
	"github.com/diana-limiter/diana/internal/names"
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
	Units      []rule.Unit
	Sources    []source.Kind // of remote configurations

	// Scopes are the names of stores that the program brings, besides "local" and "global". If
	// "global" is among them, global rules need no redis.
	Scopes []string
}

// DefaultVocabulary returns the words that Diana itself knows. Its sources are those that need
// no more than the standard library and the Redis client.
//
// In addition to the actors of a vocabulary, a configuration can always name "all", which counts
// all clients together, and "ip", "account" and "device", which [rule.Identity] defines.
func DefaultVocabulary() Vocabulary {
	return Vocabulary{
		Algorithms: limit.Algorithms(),
		Actors:     actors.Kinds(),
		Units:      names.Units(),
		Sources:    []source.Kind{source.Consul(), source.Redis(), source.HTTP(), source.File()},
	}
}

// ParseActor returns the actor that text names. The error says what was expected.
func (v Vocabulary) ParseActor(text string) (rule.Actor, error) {
	switch text {
	case "all", "account", "device", "ip":
		return rule.Actor{Kind: text}, nil
	case "actor": // source 001 writes it for account
		return rule.Actor{Kind: "account"}, nil
	}
	kind, name, named := strings.Cut(text, ":")
	for _, k := range v.Actors {
		if k.Kind != kind {
			continue
		}
		switch {
		case k.Named && name == "":
			return rule.Actor{}, fmt.Errorf("actor %q lacks a name, expected %s:NAME", text, kind)
		case !k.Named && named:
			return rule.Actor{}, fmt.Errorf("actor %q has a name, expected %s", text, kind)
		case k.Kind == "header":
			if !httptext.IsToken(name) {
				return rule.Actor{}, fmt.Errorf("%q is not a name of a header", name)
			}
			name = http.CanonicalHeaderKey(name)
		}
		return rule.Actor{Kind: kind, Name: name}, nil
	}
	return rule.Actor{}, fmt.Errorf("unknown actor %q, expected %s", text, v.actorNames())
}

// actorNames returns the forms of all actors as a list in words.
func (v Vocabulary) actorNames() string {
	names := []string{"all", "account", "device", "ip"}
	for _, k := range v.Actors {
		if k.Named {
			names = append(names, k.Kind+":NAME")
		} else {
			names = append(names, k.Kind)
		}
	}
	return join(names, "or")
}

// algorithm returns the algorithm with a name.
func (v Vocabulary) algorithm(name string) (limit.Algorithm, bool) {
	for _, a := range v.Algorithms {
		if a.Called(name) {
			return a, true
		}
	}
	return limit.Algorithm{}, false
}

// unit returns the length of the unit with a name.
func (v Vocabulary) unit(name string) (time.Duration, bool) {
	for _, u := range v.Units {
		if u.Name == name {
			return u.Length, true
		}
	}
	return 0, false
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
