// SPDX-License-Identifier: MIT

package diana

import (
	"github.com/diana-limiter/diana/rule"
	"github.com/diana-limiter/diana/source"
)

// Vocabulary returns the words that Diana knows by itself: those of rule.Default, and the
// configuration centres that take nothing more than the library needs anyway. A program
// appends its own, and gives it to Options.
func Vocabulary() rule.Vocabulary {
	v := rule.Default()
	v.Sources = append(v.Sources, source.Consul(), source.Redis(), source.HTTP(), source.File())
	return v
}
