// SPDX-License-Identifier: MIT

package main

import (
	"time"

	"github.com/diana-limiter/diana/config"
)

// vocabulary is what the words of this gateway's configurations mean: those of Diana, and
// its own.
func vocabulary() config.Vocabulary {
	v := config.DefaultVocabulary()
	v.Algorithms = append(v.Algorithms, coolDown())
	v.Actors = append(v.Actors, tenant())
	v.Units["fortnight"] = 14 * 24 * time.Hour
	v.Sources = append(v.Sources, folders())
	return v
}
