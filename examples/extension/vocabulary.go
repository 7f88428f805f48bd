// SPDX-License-Identifier: MIT

package main

import (
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// vocabulary is what the words of this gateway's configurations mean: those of Diana, and
// its own.
func vocabulary() config.Vocabulary {
	v := config.DefaultVocabulary()
	v.Algorithms = append(v.Algorithms, coolDown())
	v.Actors = append(v.Actors, tenant())
	v.Units = append(v.Units, rule.Unit{Name: "week", Length: 7 * 24 * time.Hour})
	v.Sources = append(v.Sources, folders())
	return v
}
