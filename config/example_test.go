// SPDX-License-Identifier: MIT

package config_test

import (
	"fmt"
	"log"
	"time"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/rule"
)

// A program adds words of its own to those that every configuration can use.
func ExampleVocabulary() {
	v := config.DefaultVocabulary()
	v.Actors = append(v.Actors, rule.ActorKind{Kind: "tenant"})
	v.Units["week"] = 7 * 24 * time.Hour
	text := []byte("{url: /reports, rules: [{actor: tenant, unit: week, rpu: 500}]}")
	c, err := v.Parse("limits.yaml", text)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range c.Limits[0].Rules {
		fmt.Println(r.Actor, r.Limit.N, r.Limit.Unit)
	}
	_, err = config.Parse("limits.yaml", text) // does not know these words
	fmt.Println(err)
	// Output:
	// [tenant] 500 168h0m0s
	// limits.yaml:1:33: unknown actor "tenant", expected all, account, device, ip, header:NAME, cookie:NAME, query:NAME or host
	// limits.yaml:1:47: unit: expected second, minute, hour, day or a duration such as 10s, found "week"
}
