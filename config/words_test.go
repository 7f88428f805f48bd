// SPDX-License-Identifier: MIT

package config

import (
	"net/url"
	"strings"

	"github.com/diana-limiter/diana/rule"
	"github.com/diana-limiter/diana/source"
)

// words is a vocabulary with sources that cannot be opened, of the URLs that Diana's have.
func words() Vocabulary {
	v := DefaultVocabulary()
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "jwt", Named: true, Proved: true})
	v.Verifiers = append(v.Verifiers, Verifier{Kind: "jwt"})
	hasKey := func(u *url.URL) bool { return u.Hostname() != "" && strings.Trim(u.Path, "/") != "" }
	v.Sources = []source.Kind{
		{Schemes: []string{"etcd"}, Form: "etcd://HOST:PORT/KEY", Check: hasKey},
		{Schemes: []string{"consul"}, Form: "consul://HOST:PORT/KEY", Check: hasKey},
		{Schemes: []string{"redis", "rediss"}, Form: "redis://HOST:PORT/DB/KEY", Check: func(u *url.URL) bool {
			db, key, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
			return u.Hostname() != "" && isDatabase(db) && key != ""
		}},
		{Schemes: []string{"http", "https"}, Form: "http://HOST/PATH", Check: func(u *url.URL) bool { return u.Hostname() != "" }},
		{Schemes: []string{"file"}, Form: "file:///PATH", Check: func(u *url.URL) bool {
			return u.Host == "" && u.User == nil && strings.Trim(u.Path, "/") != ""
		}},
	}
	return v
}
