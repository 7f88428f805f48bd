// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"

	dianalib "github.com/diana-limiter/diana"
	"github.com/diana-limiter/diana/config"
)

// openExactLimiter is a Limiter with the limits of exactQuotas, counted in this process or in Redis.
func openExactLimiter(ctx context.Context, algorithm, redis string) (*exactLibrary, error) {
	l, err := openLimiter(ctx, exactConfig(algorithm, redis, 0))
	if err != nil {
		return nil, err
	}
	request := func(unit, key string) dianalib.Request {
		return dianalib.Request{Path: "/" + unit, Actors: map[string]string{"account": key}}
	}
	library, reloads := &exactLibrary{}, 0
	library.decide = func(ctx context.Context, unit, key string) (bool, error) {
		d, err := l.Take(ctx, request(unit, key))
		d.Done()
		if d.Allowed && d.Degraded {
			library.alone.Add(1)
		}
		return d.Allowed, err
	}
	library.probe = func(ctx context.Context) error {
		_, err := take(ctx, l, request("second", "probe"))
		return err
	}
	library.reload = func() error {
		reloads++
		c, err := config.Parse("bench", []byte(exactConfig(algorithm, redis, reloads)))
		if err != nil {
			return err
		}
		return l.Update(c)
	}
	return library, nil
}

// exactConfig makes a configuration with the limits of exactQuotas. One limit that nobody uses makes
// each edition differ.
func exactConfig(algorithm, redis string, edition int) string {
	text, scope := "", "local"
	if redis != "" {
		text, scope = fmt.Sprintf("redis: {url: %q}\n", redis), "global"
	}
	text += fmt.Sprintf("limits:\n- {url: /unused, rules: [{rpu: %d}]}\n", edition+1)
	for unit, q := range exactQuotas {
		text += fmt.Sprintf("- {url: /%s, rules: [{actor: account, algo: %s, unit: %v, rpu: %d, scope: %s}]}\n", unit, algorithm, q.per, q.n, scope)
	}
	return text
}
