// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"strings"

	dianalib "github.com/diana-limiter/diana"
)

// dianaIn returns Diana with one rule in a framework. put puts a Limiter in front of the handler.
func dianaIn(workload string, s scope, fields bool, put func(*dianalib.Limiter) client) middleware {
	rules := map[scope]string{perAddress: "{actor: ip, unit: minute, rpu: %d}", forAll: "{unit: minute, rpu: %d}"}[s]
	text := func(limit int) string {
		return responseText(fields) + "limits: [{url: /, rules: [" + fmt.Sprintf(rules, limit) + "]}]\n"
	}
	return middleware{workload, dianaWith(s, fields), diana, s, fields, dianaOpener(text, put)}
}

// dianaOpener returns what opens a Limiter with the configuration that text returns for a limit.
func dianaOpener(text func(limit int) string, put func(*dianalib.Limiter) client) opener {
	return func(ctx context.Context, limit int) (client, func(), error) {
		l, err := openLimiter(ctx, text(limit))
		if err != nil {
			return nil, nil, err
		}
		return put(l), func() { closeLimiter(l) }, nil
	}
}

func responseText(fields bool) string {
	return fmt.Sprintf("response: {headers: %v}\n", fields)
}

// rulesOf returns a configuration with that many URLs. One URL has three rules.
func rulesOf(urls int, fields bool, limit int) string {
	var text strings.Builder
	text.WriteString(responseText(fields) + "limits:\n")
	for i := range urls {
		more := ""
		if i == urlAsked {
			more = fmt.Sprintf(", {actor: ip, rpu: %d}, {actor: device, rpu: %d}", limit, limit)
		}
		fmt.Fprintf(&text, "- {url: /api/v%d/orders, rules: [{rpu: %d}%s]}\n", i, limit, more)
	}
	return text.String()
}
