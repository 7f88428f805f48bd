// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/diana-limiter/diana/cmd/diana/internal/live"
)

// topCommand shows what a gateway decides now.
type topCommand struct {
	Admin      *url.URL   `default:"http://127.0.0.1:9090" placeholder:"URL" help:"Admin listener of the gateway (${default})."`
	AdminToken adminToken `placeholder:"file:PATH|env:NAME" help:"The secret of the admin listener, see diana serve."`
	Once       bool       `help:"Print the table once. This is the default if the output is no terminal."`
}

// Help is the end of what --help prints.
func (topCommand) Help() string {
	return `The table has the most refused actors, and the rules that refuse most, and changes each second. Ctrl-C ends it. A gateway on another machine needs the token.`
}

// Run prints the table once, or each second until a signal or the end of ctx.
func (c *topCommand) Run(ctx context.Context, o *output) error {
	if err := validAdmin(c.Admin); err != nil {
		return err
	}
	token := ""
	if c.AdminToken.isSet() {
		var err error
		if token, err = c.AdminToken.value(); err != nil {
			return err
		}
	}
	screen, _ := o.out.(*os.File)
	if c.Once || screen == nil || !term.IsTerminal(int(screen.Fd())) {
		s, err := c.ask(ctx, token, 20)
		if err != nil {
			return err
		}
		o.printf("%s", topTable(s, 0))
		return nil
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	for {
		width, height, err := term.GetSize(int(screen.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		s, err := c.ask(ctx, token, max(height/2, 1))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		o.printf("\x1b[H\x1b[J%s", fitted(topTable(s, height), width, height))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// ask asks the gateway for a snapshot with some of its rules.
func (c *topCommand) ask(ctx context.Context, token string, rules int) (*live.Snapshot, error) {
	to := c.Admin.JoinPath("api/v1/live")
	to.RawQuery = fmt.Sprintf("rules=%d", rules)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	answer, err := askAdmin(r, token, mostSnapshot)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Admin.Redacted(), err)
	}
	if answer.code != http.StatusOK {
		return nil, fmt.Errorf("%s: %s, expected the admin listener of diana serve, and --admin-token if it needs one", c.Admin.Redacted(), answer.status)
	}
	s := &live.Snapshot{}
	if err := json.Unmarshal(answer.body, s); err != nil {
		return nil, fmt.Errorf("%s: expected the admin listener of diana serve: %w", c.Admin.Redacted(), err)
	}
	return s, nil
}

// mostSnapshot is the longest snapshot that is read, in bytes.
const mostSnapshot = 16 << 20

// topTable returns the table. Actors and rules are shown without control characters, because clients choose them.
// At most a third of height lines are for actors, if height is not 0.
func topTable(s *live.Snapshot, height int) string {
	var b bytes.Buffer
	last := func(list []int64) (n int64) {
		if len(list) > 0 {
			n = list[len(list)-1]
		}
		return n
	}
	state := "ok"
	if s.Gateway.Degraded {
		state = "degraded"
	}
	fmt.Fprintf(&b, "%s  %s  %s, version %s  gateways %d  actors %d of %d\n", s.At.Local().Format(time.TimeOnly), state,
		legible(s.Gateway.Source), legible(s.Gateway.ConfigVersion), s.Gateway.Gateways, s.Gateway.Keys, s.Gateway.MaxKeys)
	fmt.Fprintf(&b, "a second: %d allowed, %d refused, %d delayed, %d shadow\n\n",
		last(s.Total.Allowed), last(s.Total.Refused), last(s.Total.Delayed), last(s.Total.Shadow))
	var rows bytes.Buffer
	if len(s.TopRefused) > 0 {
		rows.WriteString("MOST REFUSED\tRULE\tREFUSED\tA SECOND\n")
	}
	for i, r := range s.TopRefused {
		if height > 0 && i >= max(height/3, 1) {
			break
		}
		about := ""
		if !r.Exact {
			about = "~"
		}
		actor := legible(r.Actor)
		if actor == "" {
			actor = "all"
		}
		fmt.Fprintf(&rows, "%s\t%s\t%s%d\t%.1f\n", actor, legible(r.Rule), about, r.Count, r.PerSecond)
	}
	writeColumns(&b, &rows)
	b.WriteString("\n")
	rows.WriteString("RULE\tLIMIT\tALGO\tALLOWED/S\tREFUSED/S\tALLOWED\tREFUSED\n")
	for i := range s.Rules {
		r := &s.Rules[i]
		limit := fmt.Sprint(r.Limit)
		if r.UnitSeconds > 0 {
			limit += "/" + (time.Duration(r.UnitSeconds * float64(time.Second))).String()
		}
		fmt.Fprintf(&rows, "%s\t%s\t%s\t%.1f\t%.1f\t%d\t%d\n", legible(r.Name), limit, r.Algorithm, r.AllowedPerSecond,
			r.RefusedPerSecond+r.ShadowPerSecond, r.Allowed, r.Refused)
	}
	writeColumns(&b, &rows)
	return b.String()
}

// writeColumns empties rows, whose cells end with tabs, into columns of b.
func writeColumns(b, rows *bytes.Buffer) {
	columns := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	_, _ = rows.WriteTo(columns) // a Buffer never fails
	_ = columns.Flush()
}

// fitted cuts a text to the size of a terminal.
func fitted(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	lines = lines[:min(len(lines), max(height-1, 1))]
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width {
			lines[i] = string(runes[:max(width, 0)])
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
